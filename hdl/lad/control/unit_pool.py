"""The vector units of a tile, shared by the attention pipeline and the other layers."""

from amaranth.hdl import Module, Value
from amaranth.lib import enum
from amaranth.lib.wiring import In

from hdl.lad.vpu.vector_processing_unit import (
    VectorPort,
    VectorProcessingUnit,
    VectorProcessingUnitParameters,
)
from hdl.unit import Unit


class Turn(enum.Enum, shape=2):
    """User of the vector units.

    Members
    -------
    ATTENTION : int
        The modules of the attention pipeline.
    LINEAR : int
        The linear module.
    FUNCTION : int
        The special function module, which uses the first unit only.
    """

    ATTENTION = 0
    LINEAR = 1
    FUNCTION = 2


class UnitPool(Unit):
    """Connect all vector units to one of three users at a time.

    Results are connected to all users; their valid bits are gated by `turn`. `turn` may change only
    while no operation is in flight.

    **Latency** and **Throughput** those of the vector units.

    Parameters
    ----------
    parameters : VectorProcessingUnitParameters
        Vector size and register stages of the units.
    number : int
        Number of vector units.

    Members
    -------
    turn : In(Turn)
        The current user.
    attention, linear : In(VectorPort).array(number)
        Ports of the pipeline's modules and of the linear module.
    function : In(VectorPort)
        Port of the special function module.
    """

    def __init__(self, *, parameters: VectorProcessingUnitParameters, number: int) -> None:
        self.parameters, self.number = parameters, number
        port = VectorPort(parameters)
        ports = In(port).array(number)
        super().__init__(
            {"turn": In(Turn), "attention": ports, "linear": ports, "function": In(port)}
        )

    def elaborate(self, platform: object) -> Module:
        """Select the operands by `turn`; gate the valid bits of the results."""
        m = Module()
        for index in range(self.number):
            unit = VectorProcessingUnit(parameters=self.parameters)
            m.submodules[f"unit_{index}"] = unit
            # In the pipeline each unit is assigned to one module, as the colours of the paper's
            # Figure 4 show.
            users = [(Turn.ATTENTION, self.attention[index]), (Turn.LINEAR, self.linear[index])]
            if index == 0:
                users.append((Turn.FUNCTION, self.function))
            for turn, user in users:
                selected = self.turn == turn
                with m.If(selected):
                    m.d.comb += [
                        Value.cast(getattr(unit.port, name)).eq(Value.cast(getattr(user, name)))
                        for name in ("load", "i_vec1", "valid", "operation", "i_vec2", "i_scal")
                    ]
                # Results need no multiplexer: a user reads them only when its valid bit is 1.
                m.d.comb += [
                    user.o_vec.eq(unit.port.o_vec),
                    user.o_scal.eq(unit.port.o_scal),
                    user.o_vec_valid.eq(unit.port.o_vec_valid & selected),
                    user.o_scal_valid.eq(unit.port.o_scal_valid & selected),
                ]
        return m

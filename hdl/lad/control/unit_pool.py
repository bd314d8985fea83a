"""The vector units of a tile, which work for the attention pipeline or for other layers."""

from typing import Any

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
    """Who has the vector units.

    Members
    -------
    ATTENTION : int
        The modules of the pipeline.
    LINEAR : int
        Linear layers.
    FUNCTION : int
        The special function module, which needs the first one only.
    """

    ATTENTION = 0
    LINEAR = 1
    FUNCTION = 2


class UnitPool(Unit):
    """Give all vector units to one of three users at a time.

    Results are shown to all, but valid for the one whose turn it is: who changes the turn waits
    until no operation is under way.

    **Latency** and **Throughput** those of the vector units.

    Parameters
    ----------
    parameters : VectorProcessingUnitParameters
        The vector units.
    number : int
        How many.

    Members
    -------
    turn : In(Turn)
        Whom they work for.
    attention, linear : In(VectorPort).array(number)
        The users' ports.
    function : In(VectorPort)
        The special function module's.
    """

    def __init__(self, *, parameters: VectorProcessingUnitParameters, number: int) -> None:
        self.parameters, self.number = parameters, number
        port = VectorPort(parameters)
        ports = In(port).array(number)
        super().__init__(
            {"turn": In(Turn), "attention": ports, "linear": ports, "function": In(port)}
        )

    def elaborate(self, platform: Any) -> Module:
        """Choose operands by turn; gate what says that there is a result."""
        m = Module()
        for index in range(self.number):
            unit = VectorProcessingUnit(parameters=self.parameters)
            m.submodules[f"unit_{index}"] = unit
            # In the pipeline each unit belongs to a module for good, as the paper's colours show.
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
                # Results need no multiplexer: a user looks at them only where they are valid.
                m.d.comb += [
                    user.o_vec.eq(unit.port.o_vec),
                    user.o_scal.eq(unit.port.o_scal),
                    user.o_vec_valid.eq(unit.port.o_vec_valid & selected),
                    user.o_scal_valid.eq(unit.port.o_scal_valid & selected),
                ]
        return m

"""LAD's vector processing unit (VPU): Section IV-B (1), Figure 5 (b)."""

from typing import Annotated

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out, PureInterface, Signature

from hdl.arith.delay_line import delay_line
from hdl.arith.float_multiply import FloatMultiply
from hdl.arith.float_tree import FloatTree
from hdl.lad.fp16 import FP16
from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit


class Operation(enum.Enum, shape=unsigned(2)):
    """Operation of a vector processing unit.

    Members
    -------
    DOT_PRODUCT : int
        DP: the dot product of the register row and `i_vec2`.
    ELEMENT_WISE : int
        EM: their element-wise product.
    SCALE : int
        S: the product of `i_scal` and `i_vec2`.
    """

    DOT_PRODUCT = 0
    ELEMENT_WISE = 1
    SCALE = 2


@parameter_object
class VectorProcessingUnitParameters(Parameters):
    """Dimensions and pipeline stages of a vector processing unit.

    `docs/lad/vpu/vector_processing_unit.md` lists the clock that the default stages reach.

    Parameters
    ----------
    head_size : int
        Elements of a vector: the dimension d of an attention head.
    multiply_stages : int
        Register stages of a multiplier.
    add_stages : int
        Register stages of each level of the adder tree.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    head_size: Annotated[int, Range(2, 256, "elements")] = 128
    multiply_stages: Annotated[int, Range(1, 4, "stages")] = 2
    add_stages: Annotated[int, Range(1, 4, "stages")] = 3

    @property
    def vector_layout(self) -> data.ArrayLayout:
        """Shape of a vector of FP16 codes."""
        return data.ArrayLayout(FP16, self.head_size)

    @property
    def tree_stages(self) -> int:
        """Register stages of the adder tree."""
        return (self.head_size - 1).bit_length() * self.add_stages

    @property
    def vector_latency(self) -> int:
        """Cycles from the operands to `o_vec`; the operands are registered first."""
        return 1 + self.multiply_stages

    @property
    def scalar_latency(self) -> int:
        """Cycles from the operands to `o_scal`."""
        return self.vector_latency + self.tree_stages


class VectorPort(Signature):
    """Connection of a module to a vector processing unit.

    Directions are those of the module that uses the unit.

    Parameters
    ----------
    parameters : VectorProcessingUnitParameters
        Vector size of the unit.

    Members
    -------
    load : Out(1)
        The register row loads `i_vec1`, for operations from the next cycle on.
    i_vec1 : Out(ArrayLayout(16, head_size))
        The vector to load.
    valid : Out(1)
        An operation begins in this cycle.
    operation : Out(Operation)
        The kind of the operation.
    i_vec2 : Out(ArrayLayout(16, head_size))
        The second vector of the operation.
    i_scal : Out(16)
        The scalar of an `Operation.SCALE`.
    o_vec : In(ArrayLayout(16, head_size))
        The products, `vector_latency` cycles after the operands.
    o_vec_valid : In(1)
        An `Operation.ELEMENT_WISE` or `Operation.SCALE` completes in this cycle.
    o_scal : In(16)
        The dot product, `scalar_latency` cycles after the operands.
    o_scal_valid : In(1)
        An `Operation.DOT_PRODUCT` completes in this cycle.
    """

    def __init__(self, parameters: VectorProcessingUnitParameters) -> None:
        vector = parameters.vector_layout
        super().__init__(
            {
                "load": Out(1),
                "i_vec1": Out(vector),
                "valid": Out(1),
                "operation": Out(Operation),
                "i_vec2": Out(vector),
                "i_scal": Out(FP16),
                "o_vec": In(vector),
                "o_vec_valid": In(1),
                "o_scal": In(FP16),
                "o_scal_valid": In(1),
            }
        )

    def create(
        self, *, path: tuple[str | int, ...] | None = None, src_loc_at: int = 0
    ) -> "VectorInterface":
        """Return signals of the connection."""
        return VectorInterface(self, path=path or (), src_loc_at=1 + src_loc_at)


class VectorInterface(PureInterface):
    """Signals of a `VectorPort`, whose members it has as attributes."""

    load: Signal
    i_vec1: data.View
    valid: Signal
    operation: enum.EnumView
    i_vec2: data.View
    i_scal: Signal
    o_vec: data.View
    o_vec_valid: Signal
    o_scal: Signal
    o_scal_valid: Signal


class VectorProcessingUnit(Unit):
    """Dot products, element-wise products and scaled vectors of `head_size` FP16 numbers.

    The register row holds one vector for many dot products, so that only the other vector is read
    from a memory. The unit cannot stall: its user reserves room for each result.

    **Latency** `vector_latency` = ``multiply_stages + 1`` cycles to a vector, `scalar_latency` =
    ``multiply_stages + 1 + ceil(log2(head_size)) * add_stages`` cycles to a dot product.
    **Throughput** one operation per cycle, in any sequence of kinds. The row can be loaded in the
    cycle of an operation that uses its old vector.

    **Numerics** FP16: each product and each sum is rounded to nearest, ties to even, subnormals
    included. Adjacent pairs are added first. For a dot product without overflow, ``abs(o_scal -
    exact) <= (levels + 1) * 2**-11 * 1.01 * sum(abs(a * b)) + head_size * 2**-25``. Infinities and
    NaNs as in IEEE 754. LAD, Section IV-B (1), Figure 5 (b).

    Parameters
    ----------
    parameters : VectorProcessingUnitParameters
        Vector size and register stages.

    Members
    -------
    port : In(VectorPort)
        Operations and their results.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `VectorProcessingUnitParameters`.
    """

    def __init__(self, *, parameters: VectorProcessingUnitParameters) -> None:
        self.parameters = parameters
        super().__init__({"port": In(VectorPort(parameters))})

    def elaborate(self, platform: object) -> Module:
        """Select and register the factors, multiply, and add in a tree."""
        m = Module()
        p, port = self.parameters, self.port
        # The row serves many operations; only the other vector changes every cycle.
        row = Signal(p.vector_layout, reset_less=True)
        with m.If(port.load):
            m.d.sync += row.eq(port.i_vec1)

        # The tree's registers have no enable, which would cost one multiplexer per bit. The tree
        # also adds the products of vector operations; that sum is ignored.
        m.submodules.tree = tree = FloatTree(terms=p.head_size, stages=p.tree_stages)
        # The multiplexers of the paper's Figure 5 (b): port 0 is the register row, port 1 the
        # scalar.
        scale = port.operation == Operation.SCALE
        for lane in range(p.head_size):
            m.submodules[f"multiply_{lane}"] = multiply = FloatMultiply(stages=p.multiply_stages)
            # The users of a unit are multiplexed: a multiplier begins one cycle later.
            factors = Cat(Mux(scale, port.i_scal, row[lane]), port.i_vec2[lane])
            held = delay_line(m, factors, 1, name=f"factors_{lane}")[-1]
            m.d.comb += [
                Value.cast(multiply.a).eq(held[:16]),
                Value.cast(multiply.b).eq(held[16:]),
                port.o_vec[lane].eq(Value.cast(multiply.result)),
                tree.terms[lane].eq(multiply.result),
            ]
        m.d.comb += port.o_scal.eq(Value.cast(tree.result))

        # Only the valid bits are reset.
        dot_product = port.valid & (port.operation == Operation.DOT_PRODUCT)
        vector = port.valid & (port.operation != Operation.DOT_PRODUCT)
        for name, begins, cycles, ends in (
            ("dot", dot_product, p.scalar_latency, port.o_scal_valid),
            ("vector", vector, p.vector_latency, port.o_vec_valid),
        ):
            m.d.comb += ends.eq(delay_line(m, begins, cycles, name=name, reset=True)[-1])
        return m

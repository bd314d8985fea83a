"""The adders of the special function module, one per element of a vector."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.unit import Unit


class VectorAdders(Unit):
    """Add two vectors, element by element.

    **Latency** ``add_stages + 1`` cycles: a register separates the operands' selection from the
    addition. **Throughput** one sum per cycle. **Numerics** FP16, each sum rounded once.

    Parameters
    ----------
    parameters : SpecialFunctionModuleParameters
        Vector size and register stages.

    Members
    -------
    valid, a, b : In
        Two vectors in FP16.
    added, sums : Out
        Their sum.
    """

    def __init__(self, *, parameters: SpecialFunctionModuleParameters) -> None:
        self.parameters = p = parameters
        vector = p.vector.vector_layout
        super().__init__(
            {"valid": In(1), "a": In(vector), "b": In(vector), "added": Out(1), "sums": Out(vector)}
        )

    def elaborate(self, platform: object) -> Module:
        """Register the operands in front of the adders."""
        m = Module()
        p = self.parameters
        for lane in range(p.vector.head_size):
            m.submodules[f"add_{lane}"] = add = FloatAdd(stages=p.add_stages)
            terms = delay_line(m, Cat(self.a[lane], self.b[lane]), 1, name=f"terms_{lane}")[-1]
            m.d.comb += [
                Value.cast(add.a).eq(terms[:16]),
                Value.cast(add.b).eq(terms[16:]),
                self.sums[lane].eq(Value.cast(add.result)),
            ]
        added = delay_line(m, self.valid, 1 + p.add_stages, name="added", reset=True)[-1]
        m.d.comb += self.added.eq(added)
        return m

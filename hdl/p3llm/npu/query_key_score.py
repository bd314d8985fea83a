"""Scores of FP16 queries and keys, with `pre_rope`: Q K^T in the NPU."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_format import BINARY32
from hdl.arith.float_normal_multiply import FloatNormalMultiply
from hdl.arith.float_tree import FloatTree
from hdl.arith.float_widening_multiply import FloatWideningMultiply
from hdl.p3llm.npu.number_lanes import ADD_STAGES, score_factor
from hdl.p3llm.parameters import P3llmParameters
from hdl.unit import Unit


class QueryKeyScore(Unit):
    """Scores in base 2: dot products over a head, times ``log2(e) / sqrt(head_size)``.

    **Latency** 1 cycle for the products, `ADD_STAGES` for each level of both trees, 1 between them,
    `ADD_STAGES` for the constant. **Throughput** one slice per cycle. **Numerics** products of FP16
    are exact in binary32. Those of a slice are added in adjacent pairs, level by level, then the
    slices' sums likewise; each addition and the product with the constant in binary32 are rounded
    to nearest, ties to even.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    query, key : In(array)
        A slice of each, in FP16.
    strobe : In(1)
        The slices are valid.
    last : In(1)
        The slices are the last ones of the head.
    score : Out(32)
        The score in binary32.
    valid : Out(1)
        A score is output.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        halves = data.ArrayLayout(16, p.lanes)
        super().__init__(
            {
                "query": In(halves),
                "key": In(halves),
                "strobe": In(1),
                "last": In(1),
                "score": Out(BINARY32.layout),
                "valid": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply, add within slices, collect and add the slice sums, multiply by the constant."""
        m, p = Module(), self.parameters
        count = p.head_size // p.lanes
        in_slice, slices = (
            FloatTree(
                number_format=BINARY32,
                terms=terms,
                stages=ADD_STAGES * (terms - 1).bit_length(),
            )
            for terms in (p.lanes, count)
        )
        m.submodules.in_slice, m.submodules.slices = in_slice, slices
        for i in range(p.lanes):
            m.submodules[f"product_{i}"] = product = FloatWideningMultiply(stages=1)
            m.d.comb += [
                product.a.eq(self.query[i]),
                product.b.eq(self.key[i]),
                in_slice.terms[i].eq(product.result),
            ]
        m.submodules.score = score = FloatNormalMultiply(stages=ADD_STAGES)
        # A shift register collects the slice sums of a head; it is full after the last slice.
        summed = delay_line(m, self.strobe, 1 + in_slice.stages, name="summed", reset=True)[-1]
        for number, term in enumerate(slices.terms):
            gathered = Signal(BINARY32.layout, name=f"slice_{number}", reset_less=True)
            following = slices.terms[number + 1] if number + 1 < count else in_slice.result
            with m.If(summed):
                m.d.sync += gathered.eq(following)
            m.d.comb += term.eq(gathered)
        m.d.comb += [
            score.a.eq(slices.result),
            score.b.eq(score_factor(p.head_size)),
            self.score.eq(score.result),
        ]
        latency = 1 + in_slice.stages + 1 + slices.stages + score.stages
        ends = delay_line(m, self.strobe & self.last, latency, name="ends", reset=True)[-1]
        m.d.comb += self.valid.eq(ends)
        return m

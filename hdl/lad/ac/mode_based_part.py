"""The part of numerator and denominator that the intermediate caches contain (AC.1, AC.2)."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.correction_factor import CorrectionFactor
from hdl.lad.fp16 import FP16
from hdl.unit import Unit


class ModeBasedPart(Unit):
    """Compute ``<q, A[:, p]> - max_s * B[p] + C[p]`` of each column p, and the same of D, E and F.

    The vector units, which are outside, compute the dot product.

    **Latency** 2 cycles from `read` to the operands of the vector units, `factor_stages` cycles
    from their results to `parts`. **Throughput** one group of columns per cycle. **Numerics** FP16:
    columns are rounded when they are read; the caches keep their format.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Number and format of the columns, register stages.

    Members
    -------
    read, group : In
        A group of columns is read from the caches.
    words : In(word_layout).array(lanes)
        The columns, one cycle later.
    maximum : In(16)
        The maximum of the step's scores, the paper's max_s, in FP16.
    valid : Out(1)
        `columns` are operands of the vector units.
    columns : Out(ArrayLayout(16, head_size)).array(lanes)
        The columns of A, or D, in FP16.
    products : In(16).array(lanes)
        Their dot products with the query, `sum_latency` cycles later.
    part_valid, part_group : Out
        `parts` are valid; their group.
    parts : Out(16).array(lanes)
        The results in FP16.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "read": In(1),
                "group": In(p.group_shape),
                "words": In(p.word_layout).array(p.lanes),
                "maximum": In(FP16),
                "valid": Out(1),
                "columns": Out(p.vector.vector_layout).array(p.lanes),
                "products": In(FP16).array(p.lanes),
                "part_valid": Out(1),
                "part_group": Out(p.group_shape),
                "parts": Out(FP16).array(p.lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Round the columns; delay the elements of B and C until the dot products are valid."""
        m = Module()
        p, size = self.parameters, self.parameters.vector.head_size
        for lane, word in enumerate(self.words):
            codes = []
            for element in range(size + 2):
                code = Value.cast(word[element])
                if p.cache_format != BINARY16:
                    narrow = FloatConvert(source=p.cache_format, target=BINARY16)
                    m.submodules[f"narrow_{lane}_{element}"] = narrow
                    m.d.comb += Value.cast(narrow.a).eq(code)
                    code = Value.cast(narrow.result)
                codes.append(code)
            narrowed = delay_line(m, Cat(codes), 1, name=f"narrowed_{lane}")[-1]
            scalars = narrowed[16 * size :]
            scalars = delay_line(m, scalars, p.sum_latency, name=f"scalars_{lane}")[-1]
            m.submodules[f"part_{lane}"] = part = CorrectionFactor(parameters=p)
            m.d.comb += [
                Value.cast(self.columns[lane]).eq(narrowed[: 16 * size]),
                part.enable.eq(1),
                part.x.eq(self.products[lane]),
                part.maximum.eq(self.maximum),
                part.slope.eq(scalars[:16]),
                part.intercept.eq(scalars[16:]),
                self.parts[lane].eq(part.result),
            ]
        # Parts are output while later columns are read: their group is delayed with them.
        latency = 2 + p.sum_latency + p.factor_stages
        valid = delay_line(m, self.read, latency, name="valid", reset=True)
        m.d.comb += [
            self.valid.eq(valid[2]),
            self.part_valid.eq(valid[-1]),
            self.part_group.eq(delay_line(m, self.group, latency, name="group")[-1]),
        ]
        return m

"""The factor that an operation's sums have in common."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.arith.float_normal_multiply import FloatNormalMultiply
from hdl.arith.integer_to_float import POINT
from hdl.p3llm.instructions import NpuOperation, npu_instruction
from hdl.p3llm.npu.number_lanes import score_factor
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.operand_decoder import FRACTION_BITS, Mode
from hdl.unit import Unit

COMMON_STAGES = 3
"""Cycles until the common factor of an operation is valid: as many as until its first sum."""


class SumFactor(Unit):
    """Hold the scales of quantised vectors, and compute the factor of the sums of their products.

    Two pairs of heads may be in flight in each pseudo-channel, with one scale per head, while a
    linear layer is in flight. The factor of a linear layer's sums is the scale of its inputs; that
    of scores, the scale of the query times ``log2(e) / sqrt(head_size)``; that of a head, the
    largest scale of its values.

    **Latency** `COMMON_STAGES` cycles from `instruction` to `common`. **Numerics** the product is
    rounded once, in binary32.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    instruction : In(struct)
        The operation in flight; its `scale_index` and `head` select the scale.
    scale, largest : In(struct)
        The scale of inputs that the operation quantises, and the largest scale of values that it
        uses; `valid` and `value` in FP16.
    common : Out
        The factor in binary32.
    point : Out
        Fraction bits of the sums.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        scale = data.StructLayout({"valid": 1, "value": 16})
        super().__init__(
            {
                "instruction": In(npu_instruction(p)),
                "scale": In(scale),
                "largest": In(scale),
                "common": Out(32),
                "point": Out(POINT),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Store scales by query head; multiply the selected one by the constant."""
        m = Module()
        p, given = self.parameters, self.instruction
        bits = p.channel_bits
        scale_index = Cat(given.scale_index, given.head[:bits]) if bits else given.scale_index
        of_scores = given.operation == NpuOperation.SCORES
        of_query = of_scores | (given.operation == NpuOperation.QUERY)
        inputs = Array(Signal(16, name=f"inputs_{i}") for i in range(p.in_flight))
        scales = Array(Signal(16, name=f"scale_{i}") for i in range(p.scale_count))
        largest = Array(Signal(16, name=f"largest_{i}") for i in range(p.scale_count))
        of_inputs = inputs[given.scale_index[: p.in_flight - 1]]
        with m.If(self.scale.valid & of_query):
            m.d.sync += scales[scale_index].eq(self.scale.value)
        with m.If(self.scale.valid & ~of_query):
            m.d.sync += of_inputs.eq(self.scale.value)
        with m.If(self.largest.valid):
            m.d.sync += largest[scale_index].eq(self.largest.value)
        of_head = given.operation == NpuOperation.HEAD_OUTPUT
        m.submodules.widen = widen = FloatConvert(source=BINARY16, target=BINARY32)
        # FP16 factors are far above binary32's subnormal numbers, and so are their products.
        m.submodules.product = product = FloatNormalMultiply(stages=COMMON_STAGES)
        of_product = Mux(of_head, FRACTION_BITS[Mode.PV], FRACTION_BITS[Mode.LINEAR])
        m.d.comb += [
            widen.a.eq(
                Mux(of_head, largest[scale_index], Mux(of_query, scales[scale_index], of_inputs))
            ),
            product.a.eq(widen.result),
            # Scores are in base 2.
            product.b.eq(Mux(of_scores, score_factor(p.head_size), BINARY32.one)),
            self.common.eq(product.result),
            self.point.eq(Mux(of_scores, FRACTION_BITS[Mode.QK], of_product)),
        ]
        return m

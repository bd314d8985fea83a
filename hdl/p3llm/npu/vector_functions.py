"""The functions of the vector unit, and their connections to the source of a vector."""

from amaranth.hdl import Const, Module, Signal, Value, ValueLike
from amaranth.lib import stream

from hdl.arith.delay_line import delay_line
from hdl.arith.float_format import BINARY16
from hdl.nonlinear.activation_functions import ActivationFunctions, Function
from hdl.nonlinear.rms_norm import RmsNorm
from hdl.nonlinear.rotary_embedding import RotaryEmbedding
from hdl.nonlinear.softmax import Softmax
from hdl.p3llm.npu.block_fixed import BlockFixed, BlockFixedParameters
from hdl.p3llm.npu.epsilon_steps import EpsilonSteps
from hdl.p3llm.npu.fixed_lanes import FixedLanes, FixedLanesParameters
from hdl.p3llm.npu.half_lanes import HalfLanes, HalfLanesParameters
from hdl.p3llm.npu.result_scaler import ResultScaler, ResultScalerParameters
from hdl.p3llm.npu.single_lanes import SingleLanes, SingleLanesParameters
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.parts import place_parts
from hdl.p3llm.quantisers.e4m3_quantiser import E4m3Quantiser
from hdl.p3llm.quantisers.int4_quantiser import Int4Quantiser
from hdl.p3llm.quantisers.key_smoothing import KeySmoothing
from hdl.p3llm.quantisers.key_smoothing import Operation as Smoothing
from hdl.p3llm.quantisers.probability_quantiser import ProbabilityQuantiser
from hdl.p3llm.quantisers.value_scaling import ValueScaling
from hdl.stream.connect import join_handshake

KEYS = 3
"""With `pre_rope`, keys in the conversion to integers: one each is written, searched and read."""


class VectorFunctions:
    """The functions that all operations share, as submodules of the vector unit.

    Each method connects a stream of slices to a function and returns the stream of its results.
    The connections of an operation are made in its case of the vector unit's switch. Every source
    has `values` and `last`.

    Parameters
    ----------
    m : Module
        Module of the vector unit.
    p : P3llmParameters
        Model, pseudo-channels and NPU of the system.
    """

    def __init__(self, m: Module, p: P3llmParameters) -> None:
        self.m, self.p, self.lanes = m, p, p.lanes
        lanes = self.lanes
        slices = max(p.hidden_size, p.head_size) // lanes
        vectors = KEYS if p.pre_rope else 1
        self.scaler = ResultScaler(parameters=ResultScalerParameters(lanes=lanes))
        self.block = BlockFixed(
            parameters=BlockFixedParameters(lanes=lanes, slices=slices, vectors=vectors)
        )
        self.epsilon = EpsilonSteps(width=p.hidden_size)
        self.norm, self.rotary = RmsNorm(parameters=p.norm), RotaryEmbedding(parameters=p.rotary)
        self.softmax = Softmax(parameters=p.softmax)
        self.activation = ActivationFunctions(parameters=p.activation)
        self.half = HalfLanes(parameters=HalfLanesParameters(lanes=lanes))
        self.fixed = FixedLanes(parameters=FixedLanesParameters(lanes=lanes))
        self.single = SingleLanes(parameters=SingleLanesParameters(lanes=lanes))
        self.e4m3, self.int4 = E4m3Quantiser(parameters=p.e4m3), Int4Quantiser(parameters=p.int4)
        self.smoothing = KeySmoothing(parameters=p.smoothing)
        self.scaling = ValueScaling(parameters=p.scaling)
        self.probability = ProbabilityQuantiser(parameters=p.probabilities)
        place_parts(m, self)
        point = self.block.results.payload.point
        m.d.comb += [
            # The norm's epsilon is in squared steps of its row.
            self.epsilon.point.eq(point),
            self.norm.states.payload.epsilon.eq(self.epsilon.steps),
        ]
        # A vector's binary point at the output of the rotation. It is held, or delayed if vectors
        # follow each other.
        self.rotated_point = Signal.like(point)
        if vectors > 1:
            moves, stages = self.rotary.vectors.ready, p.rotary.stages
            delayed = delay_line(m, point, stages, name="point", enable=moves)[-1]
            m.d.comb += self.rotated_point.eq(delayed)
        else:
            with m.If(self.block.results.valid):
                m.d.sync += self.rotated_point.eq(point)

    def scaled(
        self, sums: stream.Interface, factors: stream.Interface | None = None
    ) -> stream.Interface:
        """Multiply sums by their common factor and by a factor each, or by 1; in binary32."""
        slices = self.scaler.slices
        sources, own = [sums], Const(BINARY16.one, 16).replicate(self.lanes)
        if factors is not None:
            sources, own = [sums, factors], Value.cast(factors.payload["values"])
        self.m.d.comb += [
            slices.valid.eq(join_handshake(self.m, sources, slices.ready)),
            slices.payload.sums.eq(sums.payload["values"]),
            Value.cast(slices.payload.factors).eq(own),
            slices.payload.last.eq(sums.payload.last),
        ]
        return self.scaler.results

    def integers(self, source: stream.Interface, *, spare: int) -> stream.Interface:
        """Convert a vector in binary32 to integers with a common `point`; `spare` bits are free."""
        self._link(source, self.block.vectors, spare=spare)
        return self.block.results

    def normalised(self, states: stream.Interface, weights: stream.Interface) -> stream.Interface:
        """Divide integers by their root mean square, and weight them; in Q6.10."""
        norm = self.norm
        self._link(states, norm.states)
        self.m.d.comb += [
            norm.weights.valid.eq(weights.valid),
            Value.cast(norm.weights.payload).eq(Value.cast(weights.payload["values"])),
            weights.ready.eq(norm.weights.ready),
        ]
        return norm.results

    def rotated(self, source: stream.Interface, position: ValueLike) -> stream.Interface:
        """Rotate the head of integers by a position; in FP16."""
        self._link(source, self.rotary.vectors, position=position)
        return self.halves(self.rotary.rotated, point=self.rotated_point)

    def halves(self, source: stream.Interface, *, point: Value | None = None) -> stream.Interface:
        """Round numbers in binary32, or integers with a binary point, to FP16."""
        half, values = self.half.slices, source.payload["values"]
        link(self.m, source, half, whole=point is not None, last=source.payload.last)
        if point is None:
            self.m.d.comb += half.payload.singles.eq(values)
        else:
            integers = half.payload.integers
            self.m.d.comb += half.payload.point.eq(point)
            self.m.d.comb += [integers[i].eq(values[i]) for i in range(self.lanes)]
        return self.half.results

    def fixed_point(self, source: stream.Interface) -> stream.Interface:
        """Round numbers in binary32 to Q6.10."""
        self._link(source, self.fixed.slices)
        return self.fixed.results

    def silu(self, source: stream.Interface) -> stream.Interface:
        """Compute SiLU of Q6.10."""
        self._link(source, self.activation.inputs, function=Function.SILU.value)
        return self.activation.outputs

    def added(self, terms: stream.Interface, addends: stream.Interface) -> stream.Interface:
        """Add numbers in binary32."""
        return self._combined(terms, addends, "addends")

    def multiplied(self, numbers: stream.Interface, factors: stream.Interface) -> stream.Interface:
        """Multiply numbers in binary32 by factors in Q6.10."""
        self.m.d.comb += self.single.slices.payload.multiply.eq(1)
        return self._combined(numbers, factors, "factors")

    def _combined(
        self, numbers: stream.Interface, operands: stream.Interface, name: str
    ) -> stream.Interface:
        """Connect two operands to the lanes of binary32."""
        slices = self.single.slices
        self.m.d.comb += [
            slices.valid.eq(join_handshake(self.m, [numbers, operands], slices.ready)),
            slices.payload["values"].eq(numbers.payload["values"]),
            slices.payload[name].eq(operands.payload["values"]),
            slices.payload.last.eq(numbers.payload.last),
        ]
        return self.single.results

    def smoothed(
        self, source: stream.Interface, operation: Smoothing, head: Value
    ) -> stream.Interface:
        """Smooth a key or a query in FP16, or load the head's factors."""
        self._link(source, self.smoothing.vectors, operation=operation, head=head)
        return self.smoothing.results

    def input_codes(self, source: stream.Interface) -> stream.Interface:
        """Quantise FP16 to E4M3."""
        self._link(source, self.e4m3.vectors)
        return self.e4m3.results

    def cache_codes(self, source: stream.Interface) -> stream.Interface:
        """Quantise FP16 to INT4."""
        self._link(source, self.int4.vectors)
        return self.int4.results

    def probabilities(self, scores: stream.Interface, keep: Value) -> stream.Interface:
        """Compute the softmax of Q6.10, of the tokens to `keep`."""
        self._link(scores, self.softmax.scores, keep=keep)
        return self.softmax.probabilities

    def second_level_scaled(self, probabilities: stream.Interface) -> stream.Interface:
        """Multiply probabilities in FP16 by the scales of the values, over their largest."""
        self._link(probabilities, self.scaling.probabilities)
        return self.scaling.results

    def probability_codes(self, source: stream.Interface) -> stream.Interface:
        """Quantise FP16 to S0E4M4."""
        self._link(source, self.probability.probabilities)
        return self.probability.results

    def _link(self, source: stream.Interface, sink: stream.Interface, **fields: ValueLike) -> None:
        """Connect `values` and `last`, and further fields of the sink."""
        payload = source.payload
        link(self.m, source, sink, values=payload["values"], last=payload.last, **fields)


def link(m: Module, source: stream.Interface, sink: stream.Interface, **fields: ValueLike) -> None:
    """Connect the handshake of two streams, and the fields of the sink's payload to values."""
    m.d.comb += [sink.valid.eq(source.valid), source.ready.eq(sink.ready)]
    m.d.comb += [Value.cast(sink.payload[name]).eq(fields[name]) for name in fields]

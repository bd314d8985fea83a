"""Datapaths of vectors through the NPU's functions, one for each operation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from amaranth.hdl import Const, Module, Value
from amaranth.lib import stream

from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.npu.logit_argmax import LogitArgmax
from hdl.p3llm.npu.number_lanes import FIXED_FRACTION
from hdl.p3llm.npu.operation_control import OperationControl
from hdl.p3llm.npu.result_store import ResultStore
from hdl.p3llm.npu.vector_functions import VectorFunctions, link
from hdl.p3llm.quantisers.key_smoothing import Operation as Smoothing


@dataclass(frozen=True)
class Operands:
    """The slices that an operation reads: `values` and `last`.

    Members
    -------
    numbers, factors, sums : stream.Interface
        Numbers in binary32; FP16 numbers from the banks; sums of the compute units.
    """

    numbers: stream.Interface
    factors: stream.Interface
    sums: stream.Interface


@dataclass(frozen=True)
class Ends:
    """The vector unit's own streams, and the end of an operation that stores nothing.

    Members
    -------
    states_in, states_out, codes : stream.Interface
        Ports of the vector unit.
    finished : Value
        The operation ends.
    """

    states_in: stream.Interface
    states_out: stream.Interface
    codes: stream.Interface
    finished: Value


class ScoreDatapaths(Protocol):
    """The datapaths of Q K^T and softmax: `UnitScoreDatapaths` or `NpuScoreDatapaths`."""

    def query(self) -> None:
        """Prepare a query."""
        ...

    def key(self) -> stream.Interface:
        """Return the new key, in FP16 and smoothed."""
        ...

    def scores(self) -> None:
        """Compute scores, probabilities, and their products with the values' scales as inputs."""
        ...


@dataclass(frozen=True)
class Datapaths:
    """Connections of the functions for each operation; one operation is active at a time.

    Parameters
    ----------
    m : Module
        Module of the vector unit.
    functions : VectorFunctions
        Its functions.
    operands : Operands
        What an operation reads.
    control : OperationControl
        The FSM of its operations.
    store : ResultStore
        Where results are stored.
    ends : Ends
        Its ports, and the end of an operation.
    attention : ScoreDatapaths
        The datapaths of Q K^T and softmax.
    argmax : LogitArgmax or None
        The argmax, with a vocabulary.
    """

    m: Module
    functions: VectorFunctions
    operands: Operands
    control: OperationControl
    store: ResultStore
    ends: Ends
    attention: ScoreDatapaths
    argmax: LogitArgmax | None

    @property
    def table(self) -> dict[NpuOperation, Callable[[], None]]:
        """Datapath of each operation."""
        vocabulary = {NpuOperation.LOGITS: self.logits, NpuOperation.PREDICT: self.predict}
        return (vocabulary if self.argmax else {}) | {
            NpuOperation.LOAD: self.load,
            NpuOperation.OUTPUT: self.output,
            NpuOperation.NORM: self.norm,
            NpuOperation.SCALE: self.scale,
            NpuOperation.RESIDUAL: self.residual,
            NpuOperation.SWIGLU: self.swiglu,
            NpuOperation.SMOOTHING: self.smoothing,
            NpuOperation.QUERY: self.attention.query,
            NpuOperation.KEY: self.key,
            NpuOperation.VALUE: self.value,
            NpuOperation.SCORES: self.attention.scores,
            NpuOperation.HEAD_OUTPUT: self.head_output,
            NpuOperation.QUANTISE: self.quantise,
        }

    def load(self) -> None:
        """Load a hidden state; the stream stalls until the operation runs."""
        states, numbers, running = self.ends.states_in, self.store.numbers, self.control.running
        self.m.d.comb += [
            numbers.valid.eq(states.valid & running),
            numbers.payload.eq(states.payload),
            states.ready.eq(running),
        ]

    def output(self) -> None:
        """Output a hidden state."""
        slices, states = self.operands.numbers, self.ends.states_out
        self.m.d.comb += [
            states.valid.eq(slices.valid & self.control.running),
            states.payload.eq(slices.payload),
            slices.ready.eq(states.ready),
            self.ends.finished.eq(slices.valid & states.ready & slices.payload.last),
        ]

    def norm(self) -> None:
        """Normalise and quantise a hidden state."""
        functions = self.functions
        integers = functions.integers(self.operands.numbers, spare=0)
        normalised = functions.normalised(integers, self.operands.factors)
        self._inputs(functions.halves(normalised, point=Const(FIXED_FRACTION)))

    def scale(self) -> None:
        """Scale a linear layer's sums to binary32."""
        self._numbers(self.functions.scaled(self.operands.sums, self.operands.factors))

    def head_output(self) -> None:
        """Scale a head's sums, whose only factor is the largest scale of its values."""
        self._numbers(self.functions.scaled(self.operands.sums))

    def residual(self) -> None:
        """Add a linear layer's outputs to the hidden state."""
        scaled = self.functions.scaled(self.operands.sums, self.operands.factors)
        self._numbers(self.functions.added(scaled, self.operands.numbers))

    def swiglu(self) -> None:
        """Multiply `up_proj` by SiLU of the gate, and quantise the products."""
        functions = self.functions
        scaled = functions.scaled(self.operands.sums, self.operands.factors)
        gates = functions.silu(functions.fixed_point(self.operands.numbers))
        self._inputs(functions.halves(functions.multiplied(scaled, gates)))

    def smoothing(self) -> None:
        """Load a head's factors into the smoothing unit; the operation ends with the last ones."""
        factors, head = self.operands.factors, self.control.instruction.head
        self.functions.smoothed(factors, Smoothing.BEGIN, head)
        ends = factors.valid & factors.ready & factors.payload.last
        self.m.d.comb += self.ends.finished.eq(ends)

    def key(self) -> None:
        """Quantise a new key for the cache."""
        self._cached(self.attention.key())

    def value(self) -> None:
        """Quantise a value for the cache."""
        self._cached(self.functions.halves(self.operands.numbers))

    def quantise(self) -> None:
        """Quantise numbers as inputs."""
        self._inputs(self.functions.halves(self.operands.numbers))

    def logits(self) -> None:
        """Scale the sums of the LM head, and compare them; the last slice ends the operation."""
        assert self.argmax is not None
        scaled, logits = (
            self.functions.scaled(self.operands.sums, self.operands.factors),
            self.argmax.logits,
        )
        payload = scaled.payload
        link(self.m, scaled, logits, values=payload["values"], last=payload.last)
        self.m.d.comb += self.ends.finished.eq(scaled.valid & payload.last)

    def predict(self) -> None:
        """Output the argmax of a request's logits."""
        assert self.argmax is not None
        predictions = self.argmax.predictions
        self.m.d.comb += [
            self.argmax.predict.eq(self.control.starts),
            self.ends.finished.eq(predictions.valid & predictions.ready),
        ]

    def _numbers(self, results: stream.Interface) -> None:
        """Store numbers in binary32."""
        payload = results.payload
        link(self.m, results, self.store.numbers, values=payload["values"], last=payload.last)

    def _inputs(self, halves: stream.Interface) -> None:
        """Quantise FP16 as inputs of the units."""
        results = self.functions.input_codes(halves)
        payload = results.payload
        link(self.m, results, self.store.codes, codes=payload.codes, last=payload.last)

    def _cached(self, halves: stream.Interface) -> None:
        """Quantise FP16 for the cache."""
        results, codes = self.functions.cache_codes(halves), self.ends.codes
        given, payload = self.control.instruction, results.payload
        # Codes of keys and values share a port; `value` distinguishes them.
        fields = {name: payload[name] for name, _field in payload.shape()}
        channel = given.head[: len(codes.payload.channel)]
        of_value = given.operation == NpuOperation.VALUE
        # The last round of heads may have fewer heads than there are pseudo-channels.
        last_head = given.head == self.functions.p.kv_heads - 1
        last_head |= channel == self.functions.p.pseudo_channels - 1
        fields["value"], fields["channel"] = of_value, channel
        fields["complete"] = of_value & last_head & payload.last
        link(self.m, results, codes, **fields)
        self.m.d.comb += self.ends.finished.eq(results.valid & codes.ready & payload.last)

"""Dynamic key smoothing (Equation 2): division of keys, and multiplication of queries."""

from enum import Enum
from typing import Annotated

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.arith.float_divide import FloatDivide
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.memory.memory import Memory
from hdl.p3llm.quantisers.quantiser_parameters import finite_magnitude
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.unit import Unit


class Operation(Enum):
    """Operation on a slice.

    Members
    -------
    BEGIN : int
        A key of a prompt's first token: its magnitudes are the initial factors.
    OBSERVE : int
        A key of a later token of the prompt: it may increase the factors.
    KEY : int
        A key to be divided by the factors.
    QUERY : int
        A query to be multiplied by the factors.
    """

    BEGIN = 0
    OBSERVE = 1
    KEY = 2
    QUERY = 3


@parameter_object
class KeySmoothingParameters(Parameters):
    """Dimensions of the key smoothing.

    Parameters
    ----------
    lanes : int
        Channels per slice.
    head_size : int
        Channels of a head, a multiple of `lanes`.
    heads : int
        Key/value heads whose factors are stored; at least two slices in total.
    stages : int
        Pipeline stages of a lane's division, and of its multiplication.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "channels")] = 32
    head_size: Annotated[int, Range(2, 512, "channels")] = 128
    heads: Annotated[int, Range(1, 1024, "heads")] = 8
    stages: Annotated[int, Range(1, 16, "stages")] = 8

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(
            self.head_size % self.lanes == 0,
            "head_size must be a multiple of lanes",
            self.head_size,
        )
        require(self.slices * self.heads >= 2, "heads must have at least two slices", self.heads)

    @property
    def slices(self) -> int:
        """Number of slices of a head."""
        return self.head_size // self.lanes

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of a key or query; `head` is the key/value head."""
        return data.StructLayout(
            {
                "operation": Operation,
                "head": ceil_log2(self.heads),
                "values": data.ArrayLayout(16, self.lanes),
                "last": 1,
            }
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of a smoothed key or query."""
        return data.StructLayout({"values": data.ArrayLayout(16, self.lanes), "last": 1})


class KeySmoothing(Unit):
    """Divide keys by their channels' smoothing factors, and multiply queries by them.

    A factor, the paper's S_SF, is the largest magnitude of a head's channel over a prompt. Factors
    do not change during decoding. The keys of the prompt are input twice: to be observed, and to be
    divided. The product of a query and a key does not change, as the factors cancel (P3-LLM,
    Sections IV-A and V-B, Equation 2).

    **Latency** ``stages + 1`` cycles. **Throughput** one slice per cycle. **Numerics** quotients
    and products are FP16, rounded to nearest, ties to even. A factor of zero is treated as one. In
    the maximum an infinity is treated as 65504 and a NaN is ignored.

    Parameters
    ----------
    parameters : KeySmoothingParameters
        Lanes, heads and pipeline stages.

    Members
    -------
    vectors : In(stream)
        `operation`, `head`, `values` in FP16, and `last` in a vector's last slice; all slices of a
        head have the same operation. The factors of a head are defined after its first `BEGIN`.
    results : Out(stream)
        `values` in FP16 and `last`, for `KEY` and `QUERY` only.

    Raises
    ------
    ValueError
        If `KeySmoothingParameters` rejects a value.
    """

    def __init__(self, *, parameters: KeySmoothingParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "vectors": In(stream.Signature(parameters.slice_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read a slice's factors, update or apply them; all stages advance together."""
        m = Module()
        p = self.parameters
        source, results = self.vectors, self.results
        vectors = source.payload
        m.submodules.factors = memory = Memory(depth=p.slices * p.heads, width=15 * p.lanes)
        move, take = Signal(), Signal()
        place = Signal(range(p.slices))
        address = Signal(ceil_log2(memory.depth))
        m.d.comb += [
            move.eq(~results.valid | results.ready),
            take.eq(source.valid & move),
            source.ready.eq(move),
            address.eq(vectors.head * p.slices + place),
            memory.read_enable.eq(take),
            memory.read_address.eq(address),
        ]
        # Slices of a head arrive in order: a counter selects the channels.
        with m.If(take):
            m.d.sync += place.eq(Mux(vectors.last, 0, place + 1))

        valid, now = Signal(), Signal(p.slice_layout, reset_less=True)
        written, forward = Signal(memory.width, reset_less=True), Signal()
        target = Signal(len(address), reset_less=True)
        with m.If(move):
            m.d.sync += [
                valid.eq(take),
                now.eq(vectors),
                target.eq(address),
                # The memory outputs the old word if it is written in this cycle.
                forward.eq(memory.write_enable & (address == target)),
                written.eq(memory.write_data),
            ]
        word = Signal(memory.width)
        observes = (now.operation == Operation.BEGIN) | (now.operation == Operation.OBSERVE)
        m.d.comb += [
            word.eq(Mux(forward, written, memory.read_data)),
            memory.write_enable.eq(valid & observes & move),
            memory.write_address.eq(target),
        ]
        beside = Cat(now.last, now.operation == Operation.KEY)
        stages = {"enable": move, "cycles": p.stages}
        marks = delay_line(m, beside, name="marks", **stages)[-1]
        smoothed = delay_line(m, valid & ~observes, name="smoothed", reset=True, **stages)[-1]
        m.d.comb += [results.valid.eq(smoothed), results.payload.last.eq(marks[0])]
        m.d.comb += memory.write_data.eq(self._raised(m, now, word))
        self._apply(m, now, word, move, marks[1])
        return m

    def _apply(self, m: Module, now: data.View, word: Signal, move: Signal, divides: Value) -> None:
        """Divide every lane by its factor, and multiply it by the factor."""
        p = self.parameters
        for i in range(p.lanes):
            factor = word.word_select(i, 15)
            # A channel that was zero in the whole prompt is not scaled.
            guarded = Mux(factor.any(), factor, Const(BINARY16.one, 15))
            divide = FloatDivide(stages=p.stages, enable=True)
            multiply = FloatMultiply(stages=min(p.stages, 2), enable=True)
            m.submodules[f"divide_{i}"], m.submodules[f"multiply_{i}"] = divide, multiply
            for operator in (divide, multiply):
                m.d.comb += [
                    operator.enable.eq(move),
                    operator.a.eq(now.values[i]),
                    operator.b.eq(guarded),
                ]
            # A product has a shorter latency than a quotient.
            waiting = max(p.stages - 2, 0)
            product = delay_line(m, multiply.result, waiting, name=f"product_{i}", enable=move)[-1]
            m.d.comb += self.results.payload.values[i].eq(
                Mux(divides, divide.result.as_value(), product.as_value())
            )

    def _raised(self, m: Module, now: data.View, word: Signal) -> Value:
        """Return the factors of a slice of channels, updated by one key."""
        factors = []
        # The first key of a prompt replaces the factors of an earlier prompt.
        fresh = now.operation == Operation.BEGIN
        for lane in range(self.parameters.lanes):
            factor, magnitude = word.word_select(lane, 15), finite_magnitude(m, now.values[lane])
            raised = Signal(15, name=f"raised_{lane}")
            m.d.comb += raised.eq(Mux(fresh | (magnitude > factor), magnitude, factor))
            factors.append(raised)
        return Cat(factors)

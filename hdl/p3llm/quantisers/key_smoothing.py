"""Dynamic key smoothing: per-channel maxima of a prompt's keys, for keys and queries."""

from enum import Enum
from typing import Annotated, Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
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
    """What becomes of a slice.

    Members
    -------
    BEGIN : int
        A key of a prompt's first token: its magnitudes are the factors so far.
    OBSERVE : int
        A key of a later token of the prompt: raises the factors.
    KEY : int
        A key that is divided by the factors.
    QUERY : int
        A query that is multiplied by them.
    """

    BEGIN = 0
    OBSERVE = 1
    KEY = 2
    QUERY = 3


@parameter_object
class KeySmoothingParameters(Parameters):
    """Dimensions of the key smoothing; they also drive its golden model and its testbench.

    Parameters
    ----------
    lanes : int
        Channels in a slice.
    head_size : int
        Channels of a head, a multiple of `lanes`.
    heads : int
        Key/value heads whose factors are kept, at least two slices of them in all.
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
        """Slices of a head."""
        return self.head_size // self.lanes

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of a key or query; `head` is that of its key."""
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
    """Keys over their channels' factors, and queries times them.

    A factor is the largest magnitude of a head's channel over a prompt. While decoding, keys and
    queries come and factors stand still. The prompt's own keys come twice: to be observed, and to
    be divided. What dividing keys takes from a score, multiplying queries gives back (P3-LLM,
    Sections IV-A and V-B, Equation 2).

    **Latency** ``stages + 1`` cycles. **Throughput** one slice per cycle. **Numerics** quotients and
    products are FP16, rounded to nearest, ties to even. A factor of zero counts as one. In the
    maximum an infinity counts as 65504 and a NaN does not count.

    Parameters
    ----------
    parameters : KeySmoothingParameters
        Lanes, heads and pipeline stages.

    Members
    -------
    vectors : In(stream)
        `operation`, `head`, `values` in FP16, and `last` in a vector's last slice; all slices of a
        head, with one operation. Factors of a head are there once it had a `BEGIN`.
    results : Out(stream)
        `values` in FP16 and `last`, of `KEY` and `QUERY` alone.

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

    def elaborate(self, platform: Any) -> Module:
        """Read a slice's factors, raise them or divide by them; all stages move together."""
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
        # Slices of a head come in their order: a counter says which channels.
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
                # The memory still has the old word of what is written in this cycle.
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
        self._lanes(m, memory, word, now, move, marks[1])
        return m

    def _lanes(
        self, m: Module, memory: Memory, word: Signal, now: Any, move: Signal, divides: Any
    ) -> None:
        """Raise every lane's factor, divide by it, and multiply by it."""
        p = self.parameters
        raised = []
        for i in range(p.lanes):
            factor = word.word_select(i, 15)
            raised.append(self._raised(m, i, now, factor))
            # A channel that was zero in the whole prompt is left as it is.
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
            # A product is ready sooner than a quotient.
            waiting = max(p.stages - 2, 0)
            product = delay_line(m, multiply.result, waiting, name=f"product_{i}", enable=move)[-1]
            m.d.comb += self.results.payload.values[i].eq(
                Mux(divides, divide.result.as_value(), product.as_value())
            )
        m.d.comb += memory.write_data.eq(Cat(raised))

    def _raised(self, m: Module, lane: int, now: Any, factor: Any) -> Signal:
        """Return a channel's factor with one more key."""
        magnitude = finite_magnitude(m, now.values[lane])
        raised = Signal(15, name=f"raised_{lane}")
        # A prompt's first key stands for itself, whatever the memory had.
        fresh = now.operation == Operation.BEGIN
        m.d.comb += raised.eq(Mux(fresh | (magnitude > factor), magnitude, factor))
        return raised

"""Several tiles share one stream of requests and one of answers."""

from typing import Annotated

from amaranth.hdl import Array, Const, Module, Mux, Shape, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.memory_fifo import MemoryFifo
from hdl.parameters import Parameters, Range, parameter_object, require
from hdl.stream.arbiter import Arbiter
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

MOST_PARTS = 1 << 20
"""Largest number of parts in a tile's answer memory."""


@parameter_object
class SharedReadsParameters(Parameters):
    """Dimensions of shared reads; they also configure model and testbench.

    Parameters
    ----------
    request_bits : int
        Bits of a request.
    answer_bits : int
        Bits of a part of an answer.
    tiles : int
        Number of tiles.
    waiting : int
        Answers per tile for which there is room.
    parts : int
        Largest number of parts of an answer; `waiting` answers have at most 2**20 parts.
    step : int
        Amount of a request that one part covers.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    request_bits: Annotated[int, Range(1, 64, "bits")] = 18
    answer_bits: Annotated[int, Range(1, 1 << 14, "bits")] = 576
    tiles: Annotated[int, Range(2, 16, "tiles")] = 6
    waiting: Annotated[int, Range(1, 1024, "answers")] = 2
    parts: Annotated[int, Range(1, 1 << 16, "parts")] = 342
    step: Annotated[int, Range(1, 64, "items")] = 12

    def __post_init__(self) -> None:
        """Check each parameter, and that the answers fit into a tile's memory."""
        super().__post_init__()
        held = self.waiting * self.parts
        require(held <= MOST_PARTS, f"waiting * parts must be at most {MOST_PARTS}", held)

    @property
    def most(self) -> int:
        """Largest amount of a request."""
        return self.parts * self.step

    @property
    def answer(self) -> Shape:
        """Shape of a part of an answer."""
        return unsigned(self.answer_bits)

    @property
    def asked_layout(self) -> data.StructLayout:
        """Payload of a tile's requests."""
        return data.StructLayout(
            {"item": unsigned(self.request_bits), "amount": range(self.most + 1)}
        )

    @property
    def request_layout(self) -> data.StructLayout:
        """Payload of the memory's requests."""
        return data.StructLayout({"item": unsigned(self.request_bits), "tile": range(self.tiles)})


class SharedReads(Unit):
    """Arbitrate the requests of several tiles, round-robin, and distribute the answers.

    The memory answers in the order of the requests. An answer that its tile does not accept would
    block the others' answers, and tiles whose streams depend on each other could deadlock. A
    request is therefore sent only if its tile's memory has room for the whole answer.

    **Latency** 0 cycles for a request, 2 for an answer. **Throughput** one request and one part per
    cycle.

    Parameters
    ----------
    parameters : SharedReadsParameters
        Widths, tiles and answer memories.

    Members
    -------
    asked : In(stream).array(tiles)
        An `item`, and the requested `amount`, at least 1.
    answered : Out(stream).array(tiles)
        The parts of a tile's answers, in order.
    requests : Out(stream)
        An `item`, and the requesting `tile`.
    fetched : In(stream)
        The parts of all answers, in the order of the requests.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `SharedReadsParameters`.
    """

    def __init__(self, *, parameters: SharedReadsParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "asked": In(stream.Signature(p.asked_layout)).array(p.tiles),
                "answered": Out(stream.Signature(p.answer)).array(p.tiles),
                "requests": Out(stream.Signature(p.request_layout)),
                "fetched": In(stream.Signature(p.answer)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Arbitrate requests, queue their tiles and amounts, and distribute the parts."""
        m = Module()
        p = self.parameters
        m.submodules.turns = turns = Arbiter(shape=p.asked_layout, sources=p.tiles)
        owed = data.StructLayout({"amount": range(p.most + 1), "tile": range(p.tiles)})
        # The oldest entry of a FIFO is in its output register, and needs no entry of the memory.
        m.submodules.owed = owes = MemoryFifo(shape=owed, depth=max(p.tiles * p.waiting - 1, 2))
        m.submodules.requests = out = Fifo(shape=p.request_layout, depth=2)
        connect_streams(m, out.sink, self.requests)
        granted = turns.sink.payload
        m.d.comb += [
            # The queue has room for all requests in flight, since each tile has room for `waiting`
            # answers.
            turns.sink.ready.eq(out.source.ready),
            out.source.valid.eq(turns.sink.valid),
            out.source.payload["item"].eq(granted["item"]["item"]),
            out.source.payload.tile.eq(granted.source),
            owes.source.valid.eq(turns.sink.valid & out.source.ready),
            owes.source.payload.amount.eq(granted["item"].amount),
            owes.source.payload.tile.eq(granted.source),
        ]
        last = self._count(m, owes.sink)
        answers = [self._tile(m, number, turns.sources[number], last) for number in range(p.tiles)]
        takes = Array(answer.ready for answer in answers)[owes.sink.payload.tile]
        m.d.comb += self.fetched.ready.eq(owes.sink.valid & takes)
        for number, answer in enumerate(answers):
            mine = owes.sink.valid & (owes.sink.payload.tile == number)
            m.d.comb += answer.valid.eq(self.fetched.valid & mine)
        return m

    def _count(self, m: Module, owed: stream.Interface) -> Signal:
        """Count the parts of an answer; return whether this is its last part."""
        p = self.parameters
        begun, last = Signal(), Signal()
        rest = Signal.like(owed.payload.amount)
        left = Mux(begun, rest, owed.payload.amount)
        moves = self.fetched.valid & self.fetched.ready
        ends = left <= p.step if p.parts > 1 else Const(1)
        m.d.comb += [last.eq(ends), owed.ready.eq(moves & last)]
        with m.If(moves):
            m.d.sync += [begun.eq(~last), rest.eq(left - p.step)]
        return last

    def _tile(
        self, m: Module, number: int, granted: stream.Interface, last: Signal
    ) -> stream.Interface:
        """Reserve room for a tile's answers; return the sink of the parts."""
        p = self.parameters
        kept = data.StructLayout({"part": p.answer, "last": 1})
        depth = max(p.waiting * p.parts - 1, 2)
        m.submodules[f"answers_{number}"] = answers = MemoryFifo(shape=kept, depth=depth)
        pending = Signal(range(p.waiting + 1), name=f"pending_{number}")
        asked, answered = self.asked[number], self.answered[number]
        goes, ends, room = Signal(), Signal(), pending != p.waiting
        m.d.comb += [
            granted.payload["item"].eq(asked.payload),
            granted.valid.eq(asked.valid & room),
            asked.ready.eq(granted.ready & room),
            goes.eq(asked.valid & asked.ready),
            answers.source.payload.part.eq(self.fetched.payload),
            answers.source.payload.last.eq(last),
            answered.valid.eq(answers.sink.valid),
            answers.sink.ready.eq(answered.ready),
            answered.payload.eq(answers.sink.payload.part),
            ends.eq(answered.valid & answered.ready & answers.sink.payload.last),
        ]
        m.d.sync += pending.eq(pending + goes - ends)
        return answers.source

"""One stream of requests and one of answers for several tiles."""

from typing import Any

from amaranth.hdl import Array, Const, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.arbiter import Arbiter
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class SharedReads(Unit):
    """Let tiles take turns in asking a memory that answers all of them in order.

    What a tile does not take at once would stand before the others' answers, and tiles whose
    streams wait for each other's would wait for ever. So a request goes out only if its whole
    answer has room in a memory of its tile.

    **Latency** 0 cycles to a request, 2 more to an answer. **Throughput** one of each a cycle.

    Parameters
    ----------
    request, answer : ShapeLike
        Shapes of a request and of a part of an answer; hashable.
    tiles : int
        How many, 2 at least.
    waiting : int
        Answers of a tile that have room.
    parts : int
        Parts of an answer at most.
    step : int
        What a part covers of a request's `amount`.

    Members
    -------
    asked : In(stream).array(tiles)
        An `item`, and the `amount` that it asks for, 1 at least.
    answered : Out(stream).array(tiles)
        The parts, in order.
    requests : Out(stream)
        An `item`, and the `tile` that asks.
    fetched : In(stream)
        The parts of all answers, in the order of the requests.
    """

    def __init__(
        self,
        *,
        request: ShapeLike,
        answer: ShapeLike,
        tiles: int,
        waiting: int,
        parts: int,
        step: int = 1,
    ) -> None:
        self.tiles, self.waiting, self.parts, self.step = tiles, waiting, parts, step
        self.answer, self.depth = answer, max(waiting * parts, 2)
        self.asked_layout = data.StructLayout({"item": request, "amount": range(parts * step + 1)})
        sent = data.StructLayout({"item": request, "tile": range(tiles)})
        super().__init__(
            {
                "asked": In(stream.Signature(self.asked_layout)).array(tiles),
                "answered": Out(stream.Signature(answer)).array(tiles),
                "requests": Out(stream.Signature(sent)),
                "fetched": In(stream.Signature(answer)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Ask in turns, remember who asked for how much, and hand out parts by that."""
        m = Module()
        m.submodules.turns = turns = Arbiter(shape=self.asked_layout, sources=self.tiles)
        owed = data.StructLayout(
            {"amount": self.asked_layout["amount"].shape, "tile": range(self.tiles)}
        )
        m.submodules.owed = owes = MemoryFifo(shape=owed, depth=self.tiles * self.waiting)
        m.submodules.requests = out = Fifo(shape=self.requests.payload.shape(), depth=2)
        connect_streams(m, out.sink, self.requests)
        granted = turns.sink.payload
        m.d.comb += [
            # Who is owed always has a place: no tile has more requests than answers have room.
            turns.sink.ready.eq(out.source.ready),
            out.source.valid.eq(turns.sink.valid),
            Value.cast(out.source.payload["item"]).eq(Value.cast(granted["item"]["item"])),
            out.source.payload.tile.eq(granted.source),
            owes.source.valid.eq(turns.sink.valid & out.source.ready),
            owes.source.payload.amount.eq(granted["item"].amount),
            owes.source.payload.tile.eq(granted.source),
        ]
        last = self._count(m, owes.sink)
        answers = [self._tile(m, number, turns, last) for number in range(self.tiles)]
        takes = Array(answer.ready for answer in answers)[owes.sink.payload.tile]
        m.d.comb += self.fetched.ready.eq(owes.sink.valid & takes)
        for number, answer in enumerate(answers):
            mine = owes.sink.valid & (owes.sink.payload.tile == number)
            m.d.comb += answer.valid.eq(self.fetched.valid & mine)
        return m

    def _count(self, m: Module, owed: Any) -> Signal:
        """Count an answer's parts; return whether this one is its last."""
        begun, last = Signal(), Signal()
        rest = Signal.like(owed.payload.amount)
        left = Mux(begun, rest, owed.payload.amount)
        moves = self.fetched.valid & self.fetched.ready
        ends = left <= self.step if self.parts > 1 else Const(1)
        m.d.comb += [last.eq(ends), owed.ready.eq(moves & last)]
        with m.If(moves):
            m.d.sync += [begun.eq(~last), rest.eq(left - self.step)]
        return last

    def _tile(self, m: Module, number: int, turns: Any, last: Signal) -> Any:
        """Keep room for a tile's answers; return where they go."""
        width = Shape.cast(self.answer).width
        kept = data.StructLayout({"part": width, "last": 1})
        m.submodules[f"answers_{number}"] = answers = MemoryFifo(shape=kept, depth=self.depth)
        pending = Signal(range(self.waiting + 1), name=f"pending_{number}")
        asked, source, answered = self.asked[number], turns.sources[number], self.answered[number]
        goes, ends, room = Signal(), Signal(), pending != self.waiting
        m.d.comb += [
            source.payload["item"].eq(asked.payload),
            source.valid.eq(asked.valid & room),
            asked.ready.eq(source.ready & room),
            goes.eq(asked.valid & asked.ready),
            answers.source.payload.part.eq(Value.cast(self.fetched.payload)),
            answers.source.payload.last.eq(last),
            answered.valid.eq(answers.sink.valid),
            answers.sink.ready.eq(answered.ready),
            Value.cast(answered.payload).eq(answers.sink.payload.part),
            ends.eq(answered.valid & answered.ready & answers.sink.payload.last),
        ]
        m.d.sync += pending.eq(pending + goes - ends)
        return answers.source

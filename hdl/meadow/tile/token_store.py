"""The input memory of TPHS: tokens come in once, and each lane reads its own for every head."""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.attention_parameters import AttentionParameters
from hdl.meadow.tile.group_counter import group_counter
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.stream.collector import Collector
from hdl.unit import Unit


class TokenStore(Unit):
    """Deal tokens out to the lanes, one each in turn, and replay each lane's for all heads.

    Where the last group has fewer tokens than there are lanes, the others get what comes to hand.

    **Latency** 4 cycles. **Throughput** one word in a cycle; a word of each slice and lane out.

    Parameters
    ----------
    parameters : AttentionParameters
        Dimensions.

    Members
    -------
    command : In
        As of the pipeline.
    start : In(1)
        A block begins.
    tokens : In(stream)
        Words of the tokens, one after the other; `last` with the last.
    lane_0, lane_1, ... : Out(stream)
        A lane's tokens, once for each head.
    """

    def __init__(self, *, parameters: AttentionParameters) -> None:
        self.parameters = p = parameters
        lanes = {f"lane_{n}": Out(stream.Signature(p.inputs_layout)) for n in range(p.lanes)}
        super().__init__(
            {
                "command": In(p.command_layout),
                "start": In(1),
                "tokens": In(stream.Signature(p.word_layout)),
                **lanes,
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Collect a word of each slice, and write it to the lane whose turn it is."""
        m = Module()
        p, command = self.parameters, self.command
        # All slices are read at once: a word of each is written together.
        m.submodules.slices = slices = Collector(shape=p.element.word_layout, items=p.slices)
        m.d.comb += [
            slices.items.valid.eq(self.tokens.valid),
            slices.items.payload["item"].eq(self.tokens.payload.word),
            slices.items.payload.last.eq(self.tokens.payload.last),
            self.tokens.ready.eq(slices.items.ready),
        ]
        stores = [
            ReplayBuffer(shape=p.inputs_layout, depth=max(p.lane_words, 2)) for _ in range(p.lanes)
        ]
        # Who gets the next word: whole tokens go to one lane after the other.
        active, lane, chunk = Signal(), Signal(range(p.lanes)), Signal(range(p.chunks))
        taken, absent, ready = Signal(), Signal(), Signal()
        chunk_last, lane_last = chunk + 1 == command.chunks, lane == p.lanes - 1
        first, group_last = group_counter(
            m, "first", command.tokens, p.lanes, ends=taken & chunk_last & lane_last
        )
        words, item = slices.groups, stores[0].source.payload["item"]
        m.d.comb += [
            # A lane without a token is filled up, and computes what nobody takes.
            absent.eq(first + lane >= command.tokens),
            ready.eq(Array(store.source.ready for store in stores)[lane]),
            taken.eq(active & ready & (absent | words.valid)),
            words.ready.eq(taken & ~absent),
        ]
        for number, store in enumerate(stores):
            m.submodules[f"store_{number}"] = store
            item = store.source.payload["item"]
            m.d.comb += [
                store.source.valid.eq(active & (lane == number) & (absent | words.valid)),
                Value.cast(item.words).eq(Value.cast(words.payload["items"])),
                item.last.eq(chunk_last),
                item.end.eq(chunk_last & group_last),
                store.source.payload.last.eq(chunk_last & group_last),
            ]
            self._replay(m, number, store)
        with m.If(self.start):
            m.d.sync += active.eq(1)
        with m.If(taken):
            m.d.sync += chunk.eq(Mux(chunk_last, 0, chunk + 1))
            with m.If(chunk_last):
                m.d.sync += lane.eq(Mux(lane_last, 0, lane + 1))
            with m.If(chunk_last & lane_last & group_last):
                m.d.sync += active.eq(0)
        return m

    def _replay(self, m: Module, number: int, store: ReplayBuffer) -> None:
        """Offer a lane's tokens as often as there are heads."""
        p, port = self.parameters, getattr(self, f"lane_{number}")
        head = Signal(range(p.heads + 1), name=f"head_{number}")
        head_last = head + 1 == self.command.heads
        m.d.comb += [
            port.valid.eq(store.sink.valid),
            port.payload.eq(store.sink.payload),
            store.sink.ready.eq(port.ready),
            # The last head's pass sets the room free for the next block's tokens.
            store.release.eq(head_last & port.payload.end),
        ]
        with m.If(port.valid & port.ready & port.payload.end):
            m.d.sync += head.eq(Mux(head_last, 0, head + 1))

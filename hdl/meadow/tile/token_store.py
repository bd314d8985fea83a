"""Input memory of TPHS: tokens are written once, and each lane reads its own for every head."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.tile.group_counter import group_counter
from hdl.meadow.tile.tile_parameters import TileParameters
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.stream.collector import Collector
from hdl.unit import Unit


class TokenStore(Unit):
    """Round-robin distribution of tokens to the lanes, with replay for all heads.

    Lanes without a token in the last group receive arbitrary words.

    **Latency** 4 cycles. **Throughput** one input word per cycle; one output word per cycle for
    each slice and lane.

    Parameters
    ----------
    parameters : TileParameters
        Number of lanes and dimensions of tokens.

    Members
    -------
    command : In
        As in `HybridTile`.
    start : In(1)
        A block begins.
    tokens : In(stream)
        Words of the tokens in order; `last` with the last word.
    lane_0, lane_1, ... : Out(stream)
        The tokens of a lane, once for each head.
    """

    def __init__(self, *, parameters: TileParameters) -> None:
        self.parameters = p = parameters
        lanes = {f"lane_{n}": Out(stream.Signature(p.inputs_layout)) for n in range(p.lanes)}
        super().__init__(
            {
                "command": In(p.command_layout),
                "start": In(1),
                "tokens": In(stream.Signature(p.token_layout)),
                **lanes,
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Collect one word per slice, and write them to the store of the current lane."""
        m = Module()
        p, command = self.parameters, self.command
        # All slices are read in the same cycle, so that their words are written together.
        # The whole item of a slice is collected: its word, and the exponent of the token.
        item = data.StructLayout({n: s for n, s in p.token_layout.members.items() if n != "last"})
        m.submodules.slices = slices = Collector(shape=item, items=p.slices)
        m.d.comb += [
            slices.items.valid.eq(self.tokens.valid),
            *(
                slices.items.payload["item"][name].eq(self.tokens.payload[name])
                for name, _field in item
            ),
            slices.items.payload.last.eq(self.tokens.payload.last),
            self.tokens.ready.eq(slices.items.ready),
        ]
        stores = [
            ReplayBuffer(shape=p.inputs_layout, depth=max(p.lane_words, 2)) for _ in range(p.lanes)
        ]
        # Whole tokens are assigned to the lanes in round-robin order.
        active, lane, slice_word = Signal(), Signal(range(p.lanes)), Signal(range(p.slice_words))
        taken, absent, ready = Signal(), Signal(), Signal()
        word_last, lane_last = slice_word + 1 == command.slice_words, lane == p.lanes - 1
        first, group_last = group_counter(
            m, "first", command.tokens, p.lanes, ends=taken & word_last & lane_last
        )
        words = slices.groups
        held = words.payload["items"]
        m.d.comb += [
            # A lane without a token gets padding; its results are discarded.
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
                *(own.eq(slot.word) for own, slot in zip(item.words, held, strict=True)),
                *([item.exponent.eq(held[0].exponent)] if p.token_exponents else []),
                item.last.eq(word_last),
                item.end.eq(word_last & group_last),
                store.source.payload.last.eq(word_last & group_last),
            ]
            self._replay(m, number, store)
        with m.If(self.start):
            m.d.sync += active.eq(1)
        with m.If(taken):
            m.d.sync += slice_word.eq(Mux(word_last, 0, slice_word + 1))
            with m.If(word_last):
                m.d.sync += lane.eq(Mux(lane_last, 0, lane + 1))
            with m.If(word_last & lane_last & group_last):
                m.d.sync += active.eq(0)
        return m

    def _replay(self, m: Module, number: int, store: ReplayBuffer) -> None:
        """Output the tokens of a lane once per head."""
        p, port = self.parameters, getattr(self, f"lane_{number}")
        head = Signal(range(p.heads + 1), name=f"head_{number}")
        head_last = head + 1 == self.command.heads
        m.d.comb += [
            port.valid.eq(store.sink.valid),
            port.payload.eq(store.sink.payload),
            store.sink.ready.eq(port.ready),
            # The pass of the last head frees the space for the tokens of the next block.
            store.release.eq(head_last & port.payload.end),
        ]
        with m.If(port.valid & port.ready & port.payload.end):
            m.d.sync += head.eq(Mux(head_last, 0, head + 1))

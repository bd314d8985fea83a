"""A double buffer: one block of words is read while the next one comes in."""

from typing import Any

from amaranth.hdl import Array, Const, Module, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.replay_buffer import ReplayBuffer
from hdl.parameters import require_choice, require_range
from hdl.unit import Unit


class PingPongBuffer(Unit):
    """Two banks that change places: blocks go in at one and come out of the other, in order.

    A block has 1 to `depth` words and ends with `last`. Its bank takes in another block once the
    block has been read; where `replays`, it is read round after round until its reader releases it.

    **Latency** 2 cycles: the first round follows the words as they come in. **Throughput** one word
    per cycle on either side, also from round to round, and from block to block where blocks have
    two words or more.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a word; hashable.
    depth : int
        Words of a block at most, 2 to 2**20.
    replays : bool
        Whether there is an input `release`.

    Members
    -------
    source : In(stream)
        A `word`, and `last` with the last of a block.
    sink : Out(stream)
        The same; from a memory's output, never from `source`.
    release : In(1)
        The round whose last word the sink hands over is the block's last.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(self, *, shape: ShapeLike, depth: int, replays: bool = False) -> None:
        require_range("depth", depth, 2, 1 << 20)
        require_choice("replays", replays, (False, True))
        self.depth, self.replays = depth, replays
        self.layout = data.StructLayout({"word": shape, "last": 1})
        streams = {
            "source": In(stream.Signature(self.layout)),
            "sink": Out(stream.Signature(self.layout)),
        }
        super().__init__(streams | ({"release": In(1)} if replays else {}))

    def elaborate(self, platform: Any) -> Module:
        """Point at the bank that is filled, and at the one that is drained."""
        m = Module()
        source, sink = self.source, self.sink
        filled, drained = Signal(), Signal()
        banks = [ReplayBuffer(shape=self.layout, depth=self.depth) for _ in range(2)]
        release = self.release if self.replays else Const(1)
        for number, bank in enumerate(banks):
            m.submodules[f"bank_{number}"] = bank
            m.d.comb += [
                bank.source.valid.eq(source.valid & (filled == number)),
                # `last` is kept with the word, so that a replayed round ends where the block did.
                bank.source.payload["item"].eq(source.payload),
                bank.source.payload.last.eq(source.payload.last),
                bank.sink.ready.eq(sink.ready & (drained == number)),
                bank.release.eq(release & sink.payload.last),
            ]
        m.d.comb += [
            source.ready.eq(Array(bank.source.ready for bank in banks)[filled]),
            sink.valid.eq(Array(bank.sink.valid for bank in banks)[drained]),
            Value.cast(sink.payload).eq(
                Array(Value.cast(bank.sink.payload) for bank in banks)[drained]
            ),
        ]
        # The next block goes to the other bank, which refuses it until its own has been read.
        with m.If(source.valid & source.ready & source.payload.last):
            m.d.sync += filled.eq(~filled)
        with m.If(sink.valid & sink.ready & sink.payload.last & release):
            m.d.sync += drained.eq(~drained)
        return m

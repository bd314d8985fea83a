"""Double buffer: one block of words is read while the next one is written."""

from amaranth.hdl import Array, Const, Module, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.replay_buffer import ReplayBuffer
from hdl.parameters import require_choice, require_range
from hdl.unit import Unit


class PingPongBuffer(Unit):
    """Two alternating banks: one is written while the other is read; blocks keep their order.

    A block has 1 to `depth` words and ends with `last`. Its bank accepts another block after the
    block has been read. With `replays`, the block is read repeatedly until its reader releases it.

    **Latency** 2 cycles: the first round can follow the words as they are written. **Throughput**
    one word per cycle on either side, also across rounds, and across blocks of two or more words.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a word; hashable.
    depth : int
        Maximum number of words of a block, 2 to 2**20.
    replays : bool
        Add the input `release`.

    Members
    -------
    source : In(stream)
        A `word`; `last` with the last word of a block.
    sink : Out(stream)
        Words of the blocks, driven by a memory's output; there is no path from `source`.
    release : In(1)
        The round whose last word is transferred at `sink` is the last round of the block.

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

    def elaborate(self, platform: object) -> Module:
        """Select the bank to write and the bank to read."""
        m = Module()
        source, sink = self.source, self.sink
        filled, drained = Signal(), Signal()
        banks = [ReplayBuffer(shape=self.layout, depth=self.depth) for _ in range(2)]
        release = self.release if self.replays else Const(1)
        for number, bank in enumerate(banks):
            m.submodules[f"bank_{number}"] = bank
            m.d.comb += [
                bank.source.valid.eq(source.valid & (filled == number)),
                # `last` is stored with the word, so that a replayed round ends with the block.
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
        # The next block is written to the other bank, which is not ready until its block has been
        # read.
        with m.If(source.valid & source.ready & source.payload.last):
            m.d.sync += filled.eq(~filled)
        with m.If(sink.valid & sink.ready & sink.payload.last & release):
            m.d.sync += drained.eq(~drained)
        return m

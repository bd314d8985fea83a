"""The order of TPHS: heads sequentially, and in each head all groups of tokens."""

from enum import Enum

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.tile.group_counter import group_counter, group_position
from hdl.meadow.tile.tile_parameters import HALVES, TileParameters
from hdl.stream.connect import buffered, connect_registered, connect_streams
from hdl.unit import Unit


class Passed(Enum):
    """Operands that each group of each head reads in one pass."""

    KEYS = 0
    """Keys or values: one word per token of the context, shared by query heads."""

    WEIGHTS = 1
    """Weights of a head: all words of a slice for each pair of outputs."""

    BIASES = 2
    """Biases of a head: one word per pair of outputs."""

    SCALES = 3
    """Scale and shift of a head: one word."""


class PassSequencer(Unit):
    """Sequencer that requests one pass over the operands for each group of each head.

    Weights, biases and scales are released after the last group of their head. Keys and values are
    released after the last group of the last query head that shares them.

    **Latency** 2 cycles from `start`. **Throughput** one pass per cycle.

    Parameters
    ----------
    parameters : TileParameters
        Dimensions of a block.
    over : Passed
        Operands that the passes read.

    Members
    -------
    command : In
        As in `HybridTile`.
    start : In(1)
        A block begins.
    passes : Out(stream)
        `length` in words; `release` with the last pass over a block of the buffer.
    """

    def __init__(self, *, parameters: TileParameters, over: Passed) -> None:
        self.parameters, self.over = parameters, over
        p, pairs = parameters, parameters.size // HALVES
        depths = {Passed.KEYS: p.slots, Passed.WEIGHTS: p.gemm_steps, Passed.BIASES: pairs}
        # A block buffer has at least two words.
        self.depth = depths.get(over, 2)
        layout = data.StructLayout({"length": range(self.depth + 1), "release": 1})
        super().__init__(
            {
                "command": In(p.command_layout),
                "start": In(1),
                "passes": Out(stream.Signature(layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count groups, query heads that share keys, and heads."""
        m = Module()
        p, command = self.parameters, self.command
        # A register separates the length of a pass from the buffer, which compares it with the
        # index of each word. The queue of one pass separates the counters from the buffer's ready.
        passes, held = (stream.Signature(self.passes.payload.shape()).create() for _ in range(2))
        connect_registered(m, passes, held)
        connect_streams(m, buffered(m, "queue", held, depth=1), self.passes)
        pairs, shared = p.size // HALVES, self.over is Passed.KEYS
        taken = passes.valid & passes.ready
        group = group_counter(m, "first", command.tokens, p.lanes, ends=taken)
        head, member = Signal(range(p.heads + 1)), Signal(range(p.heads + 1))
        member_last = member + 1 == command.members
        # The causal mask excludes all keys after the last token of a group, so they can be skipped.
        base = command.context - command.tokens + p.lanes
        reach = group_position(m, "reach", base, group, p.lanes, ends=taken)
        skips = command.causal & command.skip & (reach < command.context)
        lengths = {
            Passed.KEYS: Mux(skips, reach, command.context),
            Passed.WEIGHTS: command.slice_words * pairs,
            Passed.BIASES: pairs,
            Passed.SCALES: 1,
        }
        m.d.comb += [
            passes.payload.length.eq(lengths[self.over]),
            passes.payload.release.eq(group.last & (member_last if shared else 1)),
        ]
        with m.If(self.start):
            m.d.sync += passes.valid.eq(1)
        with m.If(taken & group.last):
            m.d.sync += [head.eq(head + 1), member.eq(Mux(member_last, 0, member + 1))]
            with m.If(head + 1 == command.heads):
                m.d.sync += [head.eq(0), member.eq(0), passes.valid.eq(0)]
        return m

"""Merge of the lanes' results into one stream, in the order of the tokens."""

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.tile.group_counter import group_counter
from hdl.meadow.tile.tile_parameters import TileParameters
from hdl.unit import Unit


class ResultMerger(Unit):
    """Round-robin merge of the lanes' words: for each word of a row, that word of each token.

    **Latency** 0 cycles. **Throughput** one word per cycle.

    Parameters
    ----------
    parameters : TileParameters
        Number of lanes and layout of results.

    Members
    -------
    command : In
        As in `HybridTile`.
    lane_0, lane_1, ... : In(stream)
        The `outputs` of a lane.
    results : Out(stream)
        As in `HybridTile`.
    done : Out(1)
        The last word of the block is output in this cycle.
    """

    def __init__(self, *, parameters: TileParameters) -> None:
        self.parameters = p = parameters
        outputs = In(stream.Signature(p.output_layout))
        super().__init__(
            {
                "command": In(p.command_layout),
                **{f"lane_{n}": outputs for n in range(p.lanes)},
                "results": Out(stream.Signature(p.result_layout)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Select the lanes in turn; count groups and heads."""
        m = Module()
        p, command, results = self.parameters, self.command, self.results
        outputs = [getattr(self, f"lane_{n}") for n in range(p.lanes)]
        lane, head = Signal(range(p.lanes)), Signal(range(p.heads + 1))
        passes, keep, row_last = Signal(), Signal(), Signal()
        lane_last, head_last = lane == p.lanes - 1, head + 1 == command.heads
        group_ends = passes & lane_last & row_last
        first, group_last = group_counter(m, "first", command.tokens, p.lanes, ends=group_ends)
        m.d.comb += [
            # Lanes without a token in the last group also output a word, which is discarded.
            keep.eq(Array(output.payload.keep for output in outputs)[lane]),
            row_last.eq(Array(output.payload.last for output in outputs)[lane]),
            results.valid.eq(Array(output.valid for output in outputs)[lane] & keep),
            Value.cast(results.payload.word).eq(
                Array(Value.cast(output.payload.word) for output in outputs)[lane]
            ),
            results.payload.last.eq(row_last & head_last & (first + lane + 1 == command.tokens)),
            passes.eq(Array(output.valid for output in outputs)[lane] & (results.ready | ~keep)),
            self.done.eq(group_ends & group_last & head_last),
        ]
        for number, output in enumerate(outputs):
            m.d.comb += output.ready.eq((lane == number) & (results.ready | ~keep))
        with m.If(passes):
            m.d.sync += lane.eq(Mux(lane_last, 0, lane + 1))
            with m.If(lane_last & row_last & group_last):
                m.d.sync += head.eq(Mux(head_last, 0, head + 1))
        return m

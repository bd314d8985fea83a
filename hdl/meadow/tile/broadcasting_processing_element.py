"""Broadcasting MAC PE of Figure 2 (b, c): one input is broadcast to 64 accumulators."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.meadow.tile.accumulator_group import AccumulatorGroup
from hdl.meadow.tile.element_parameters import HYBRID, ElementParameters, ElementParts
from hdl.meadow.tile.operand_feed import OperandFeed
from hdl.meadow.tile.result_exit import add_exit
from hdl.stream.connect import connect_streams
from hdl.stream.selecting_serialiser import SelectingSerialiser
from hdl.stream.serialiser import Serialiser
from hdl.unit import Unit

GROUP = 4
"""Accumulators with common registers of the flags."""


class BroadcastingProcessingElement(Unit):
    """Weighted sums of words: each input is multiplied by a word of weights, one per accumulator.

    In GEMM mode, the input register file outputs a row of K inputs element by element. In pipelined
    mode, inputs such as probabilities arrive one at a time and are multiplied by streamed words,
    such as the values. A pass over K words outputs the results of all accumulators sequentially.

    **Latency** 11 cycles from the last word of a pass to its first result, 10 without an input
    register file, and two more through the output register file. **Throughput** a pass of K words
    in K cycles, but at least in `multipliers` + 1, the time to output its results; including from
    pass to pass.

    **Numerics** products and sums are exact in `sum_bits`; results are ``sum * scale / 2**shift``,
    rounded half to even and clamped to INT8.

    Parameters
    ----------
    parameters : ElementParameters
        Dimensions of multipliers and register files.
    parts : ElementParts
        Register files and requantiser. Streams and settings of absent parts are absent too.

    Members
    -------
    settings : In
        Constant from the first word of a block to its last result. `mode`; `streamed`, weights
        bypass the register file; `hold`, a block of weights is kept for the next block of inputs;
        `last_word`, the index of a row's last word; `wide`, results are sums without
        requantisation; `scale` and `shift` of the requantisation.
    inputs : In(stream)
        GEMM mode: blocks of rows of inputs, `last_word` + 1 words per row; `last` with the last
        word of a block.
    weights : In(stream)
        Blocks of weights, one word per input; `last` with the last word of a block. `ready` does
        not depend on `valid`.
    pipeline : In(stream)
        Pipelined mode: one input for each word of weights.
    results : Out(stream)
        A `value`; `last` with the last one of a pass.
    """

    def __init__(self, *, parameters: ElementParameters, parts: ElementParts = HYBRID) -> None:
        self.parameters, self.parts = parameters, parts
        p = parameters
        super().__init__(
            {
                "settings": In(p.settings_layout(parts)),
                **{
                    name: In(stream.Signature(layout))
                    for name, layout in p.stream_layouts(parts, p.scalar_layout).items()
                },
                "results": Out(stream.Signature(p.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply, accumulate, serialise the accumulators."""
        m = Module()
        p, parts = self.parameters, self.parts
        m.submodules.feed = feed = OperandFeed(parameters=p, broadcasting=True, parts=parts)
        totals = add_exit(m, self.settings, self.results, parameters=p, parts=parts)
        # All accumulators share one requantiser: their sums are serialised after the pass.
        kind = SelectingSerialiser if parts.lookup else Serialiser
        m.submodules.sums = sums = kind(shape=p.sum_shape, items=p.multipliers)
        for name in p.stream_layouts(parts, p.scalar_layout):
            connect_streams(m, getattr(self, name), getattr(feed, name))
        # All stages advance together, unless the previous pass still outputs results.
        move, ended = Signal(), Signal()
        m.d.comb += [
            feed.settings.eq(self.settings),
            move.eq(~ended | sums.groups.ready),
            feed.move.eq(move),
            sums.groups.valid.eq(ended),
            sums.groups.payload.last.eq(1),
            totals.valid.eq(sums.items.valid),
            totals.payload.value.eq(sums.items.payload["item"]),
            totals.payload.last.eq(sums.items.payload.last),
            sums.items.ready.eq(totals.ready),
        ]
        # The flags are delayed in parallel with the register of the products.
        flags = Cat(feed.step, feed.last)
        step, last = delay_line(m, flags, 1, name="flags", enable=move, reset=True)[-1]
        with m.If(move):
            m.d.sync += ended.eq(step & last)
        count = min(GROUP, p.multipliers)
        for start in range(0, p.multipliers, count):
            m.submodules[f"group_{start // count}"] = group = AccumulatorGroup(
                parameters=p, count=count, lookup=parts.lookup
            )
            m.d.comb += [
                group.move.eq(move),
                group.step.eq(feed.step),
                group.first.eq(feed.first),
                group.operand.eq(feed.operand),
            ]
            for i in range(count):
                m.d.comb += [
                    group.weights[i].eq(feed.weight[start + i]),
                    sums.groups.payload["items"][start + i].eq(group.totals[i]),
                ]
        return m

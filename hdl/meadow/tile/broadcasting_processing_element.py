"""MEADOW's broadcasting processing element: one input to 64 accumulators (Figure 2b, c)."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.multiply_add import multiply_add
from hdl.meadow.tile.element_parameters import OPERAND, ElementParameters
from hdl.meadow.tile.operand_feed import OperandFeed
from hdl.meadow.tile.result_exit import ResultExit
from hdl.stream.connect import connect_streams
from hdl.stream.serialiser import Serialiser
from hdl.unit import Unit


class BroadcastingProcessingElement(Unit):
    """Weighted sums of words: each input meets a word of weights, an accumulator each output.

    In GEMM mode a row of K inputs comes out of the input register file, element by element; in
    pipelined mode inputs come one by one, such as probabilities, and meet streamed words, such as
    the values. A pass over K words gives the results of all accumulators, one after the other.

    **Latency** 10 cycles from a pass's last word to its first result, 12 by the output register
    file. **Throughput** a pass of K words in K cycles, or in `multipliers` + 1, which its results
    take, if those are more; also from pass to pass.

    **Numerics** products and sums are exact in `sum_bits`; results are ``sum * scale / 2**shift``,
    rounded half to even, clamped to INT8.

    Parameters
    ----------
    parameters : ElementParameters
        Dimensions.

    Members
    -------
    settings : In
        Stands from a block's first word to its last result: `mode`; `streamed`, whether weights
        bypass the register file; `hold`, whether a block of weights stays for the next block of
        inputs; `chunks`, one less than a row's words; `wide`, whether results are sums as they are;
        `scale` and `shift` of the requantisation.
    inputs : In(stream)
        Blocks of rows of inputs for GEMM mode, `chunks` + 1 words each; `last` with a block's last
        word.
    weights : In(stream)
        Blocks of weights, a word an input; `last` with a
        block's last word. `ready` does not depend on `valid`.
    pipeline : In(stream)
        An input for pipelined mode, for each word of weights.
    results : Out(stream)
        `value`; `last` with a pass's last.
    """

    def __init__(self, *, parameters: ElementParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "settings": In(p.settings_layout),
                "inputs": In(stream.Signature(p.block_layout)),
                "weights": In(stream.Signature(p.block_layout)),
                "pipeline": In(stream.Signature(p.scalar_layout)),
                "results": Out(stream.Signature(p.result_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Multiply, accumulate, take the accumulators apart."""
        m = Module()
        p = self.parameters
        m.submodules.feed = feed = OperandFeed(parameters=p, broadcasting=True)
        m.submodules.exit = exit_stage = ResultExit(parameters=p)
        # One requantiser serves all accumulators: their sums are taken apart behind the pass.
        m.submodules.sums = sums = Serialiser(shape=p.sum_shape, items=p.multipliers)
        for name in ("inputs", "weights", "pipeline"):
            connect_streams(m, getattr(self, name), getattr(feed, name))
        connect_streams(m, exit_stage.results, self.results)
        # All stages move together, unless the last pass's results are still under way.
        move, ended = Signal(), Signal()
        m.d.comb += [
            feed.settings.eq(self.settings),
            exit_stage.settings.eq(self.settings),
            move.eq(~ended | sums.groups.ready),
            feed.move.eq(move),
            sums.groups.valid.eq(ended),
            sums.groups.payload.last.eq(1),
            exit_stage.sums.valid.eq(sums.items.valid),
            exit_stage.sums.payload.value.eq(sums.items.payload["item"]),
            exit_stage.sums.payload.last.eq(sums.items.payload.last),
            sums.items.ready.eq(exit_stage.sums.ready),
        ]
        # Flags travel beside the products' register.
        flags = Cat(feed.step, feed.first, feed.last)
        step, first, last = delay_line(m, flags, 1, name="flags", enable=move, reset=True)[-1]
        with m.If(move):
            m.d.sync += ended.eq(step & last)
        shape = signed(p.scalar_bits + OPERAND.width)
        for i in range(p.multipliers):
            product = Signal(shape, name=f"product_{i}", reset_less=True)
            total = Signal(p.sum_shape, name=f"sum_{i}", reset_less=True)
            m.d.comb += sums.groups.payload["items"][i].eq(total)
            # Digits of the operand that all multipliers share are formed once.
            multiplied = multiply_add(m, f"multiply_{i}", feed.weight[i], feed.operand)
            with m.If(move):
                m.d.sync += product.eq(multiplied)
                # The first product of a pass replaces the sum of the pass before.
                with m.If(step):
                    m.d.sync += total.eq(Mux(first, 0, total) + product)
        return m

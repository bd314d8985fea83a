"""MEADOW's parallel processing element: an adder tree over 64 products (Figure 2b, c)."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.dot_product import DotProduct
from hdl.meadow.tile.element_parameters import OPERAND, ElementParameters
from hdl.meadow.tile.operand_feed import OperandFeed
from hdl.meadow.tile.result_exit import ResultExit
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

PRODUCT_STAGES = 3


class ParallelProcessingElement(Unit):
    """Dot products of a row of inputs with one output's weights after the other.

    All multipliers work on one output: one tree of adders sums their products, and the sums of
    a row's words in an accumulator. In GEMM mode rows come out of the input register file, each of
    K elements in ``ceil(K / multipliers)`` words, and a block of weights is passed over once a row;
    in pipelined mode the row is the one word in the pipeline register, such as a query, and a pass
    over streamed weights, such as the keys, gives a result a cycle.

    **Latency** 10 cycles from an output's last word of weights to its result, 12 by the output
    register file. **Throughput** one output in ``ceil(K / multipliers)`` cycles, also from row to
    row and from block to block.

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
        Blocks of weights, `chunks` + 1 words an output; `last` with a
        block's last word. `ready` does not depend on `valid`.
    pipeline : In(stream)
        A row of one word for pipelined mode; it stays for one pass.
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
                "pipeline": In(stream.Signature(p.vector_layout)),
                "results": Out(stream.Signature(p.result_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Multiply, add up, accumulate."""
        m = Module()
        p = self.parameters
        m.submodules.feed = feed = OperandFeed(parameters=p, broadcasting=False)
        m.submodules.exit = exit_stage = ResultExit(parameters=p)
        for name in ("inputs", "weights", "pipeline"):
            connect_streams(m, getattr(self, name), getattr(feed, name))
        connect_streams(m, exit_stage.results, self.results)
        m.submodules.product = product = DotProduct(
            count=p.multipliers, a=OPERAND, b=OPERAND, stages=PRODUCT_STAGES, enable=True
        )
        # All stages move together, unless a finished sum waits.
        move, total = Signal(), Signal(p.sum_shape, reset_less=True)
        sums = exit_stage.sums
        m.d.comb += [
            feed.settings.eq(self.settings),
            exit_stage.settings.eq(self.settings),
            move.eq(~sums.valid | sums.ready),
            feed.move.eq(move),
            product.enable.eq(move),
            sums.payload.value.eq(total),
        ]
        operand: Any = feed.operand
        for i in range(p.multipliers):
            m.d.comb += [product.a[i].eq(operand[i]), product.b[i].eq(feed.weight[i])]

        # Flags travel beside the dot product.
        flags = Cat(feed.step, feed.first, feed.complete, feed.last)
        step, first, complete, last = delay_line(
            m, flags, PRODUCT_STAGES, name="flags", enable=move, reset=True
        )[-1]
        with m.If(move):
            m.d.sync += [sums.valid.eq(step & complete), sums.payload.last.eq(last)]
            with m.If(step):
                m.d.sync += total.eq(Mux(first, 0, total) + product.result)
        return m

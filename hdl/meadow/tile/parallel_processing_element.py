"""Parallel MAC PE of Figure 2 (b, c): an adder tree over 64 products."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.dot_product import DotProduct
from hdl.arith.paired_dot_product import PairedDotProduct
from hdl.arith.product_chain import ChainedDotProduct
from hdl.meadow.tile.element_parameters import HYBRID, OPERAND, ElementParameters, ElementParts
from hdl.meadow.tile.operand_feed import OperandFeed
from hdl.meadow.tile.result_exit import add_exit
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

PRODUCT_STAGES = 3


class ParallelProcessingElement(Unit):
    """Dot products of a row of inputs with the weights of each output in turn.

    All multipliers work on one output: an adder tree sums their products, and an accumulator sums
    the words of a row. In GEMM mode, the input register file outputs rows of K elements in
    ``ceil(K / multipliers)`` words, and each row makes one pass over a block of weights. In
    pipelined mode, the row is the word in the pipeline register, such as a query, and a pass over
    streamed weights, such as the keys, gives one result per cycle.

    **Latency** 10 cycles from the last word of an output's weights to its result, 12 through the
    output register file. **Throughput** one output in ``ceil(K / multipliers)`` cycles, including
    from row to row and from block to block.

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
        Blocks of weights, `last_word` + 1 words per output; `last` with the last word of a block.
        With two outputs, a word for each. `ready` does not depend on `valid`.
    pipeline : In(stream)
        Pipelined mode: a row of one word, which is used for one pass.
    results : Out(stream)
        A `value`, or one for each output; `last` with the last one of a pass.
    """

    def __init__(self, *, parameters: ElementParameters, parts: ElementParts = HYBRID) -> None:
        self.parameters, self.parts = parameters, parts
        p = parameters
        super().__init__(
            {
                "settings": In(p.settings_layout(parts)),
                **{
                    name: In(stream.Signature(layout))
                    for name, layout in p.stream_layouts(parts, p.vector_layout).items()
                },
                "results": Out(stream.Signature(p.results_layout(parts))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply, sum the products, accumulate."""
        m = Module()
        p, parts = self.parameters, self.parts
        m.submodules.feed = feed = OperandFeed(parameters=p, broadcasting=False, parts=parts)
        sums = add_exit(m, self.settings, self.results, parameters=p, parts=parts)
        for name in p.stream_layouts(parts, p.vector_layout):
            connect_streams(m, getattr(self, name), getattr(feed, name))
        # All stages advance together, unless the exit does not accept a complete sum.
        move = Signal()
        products = self._products(m, feed, move)
        names = ["total"] if len(products) == 1 else [f"total_{i}" for i in range(len(products))]
        totals = [Signal(p.sum_shape, name=name, reset_less=True) for name in names]
        m.d.comb += [
            feed.settings.eq(self.settings),
            move.eq(~sums.valid | sums.ready),
            feed.move.eq(move),
            Value.cast(sums.payload.value).eq(Cat(totals)),
        ]

        # The flags are delayed in parallel with the dot product.
        flags = Cat(feed.step, feed.first, feed.complete, feed.last)
        step, first, complete, last = delay_line(
            m, flags, PRODUCT_STAGES, name="flags", enable=move, reset=True
        )[-1]
        with m.If(move):
            m.d.sync += [sums.valid.eq(step & complete), sums.payload.last.eq(last)]
            with m.If(step):
                m.d.sync += [
                    total.eq(Mux(first, 0, total) + product)
                    for total, product in zip(totals, products, strict=True)
                ]
        return m

    def _products(self, m: Module, feed: OperandFeed, move: Value) -> list[Value]:
        """Return the dot products of the operand and the weights of each output."""
        p, parts = self.parameters, self.parts
        if parts.outputs == 2:
            m.submodules.product = pair = PairedDotProduct(
                count=p.multipliers, stages=PRODUCT_STAGES, enable=True
            )
            m.d.comb += [
                pair.enable.eq(move),
                pair.x.eq(feed.operand),
                pair.a.eq(feed.weight[0]),
                pair.b.eq(feed.weight[1]),
            ]
            return [pair.x_a, pair.x_b]
        kind = ChainedDotProduct if parts.lookup else DotProduct
        m.submodules.product = product = kind(
            count=p.multipliers, a=OPERAND, b=OPERAND, stages=PRODUCT_STAGES, enable=True
        )
        m.d.comb += product.enable.eq(move)
        for i in range(p.multipliers):
            m.d.comb += [product.a[i].eq(feed.operand[i]), product.b[i].eq(feed.weight[i])]
        return [product.result]

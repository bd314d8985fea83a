"""Some of the multipliers and accumulators of a broadcasting processing element."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.multiply_add import multiply_add
from hdl.arith.product_chain import ProductChain
from hdl.meadow.tile.element_parameters import OPERAND, ElementParameters
from hdl.unit import Unit


class AccumulatorGroup(Unit):
    """Sums of one input times a word of weights, with registers of its own for the flags.

    Every bit of every sum is a load of the flags and of the enable. A group has the loads of a few
    accumulators, so that its buffer trees are short.

    **Latency** 2 enabled cycles. **Throughput** one input per enabled cycle.

    Parameters
    ----------
    parameters : ElementParameters
        Widths of inputs and sums.
    count : int
        Accumulators.
    lookup : bool
        Products in lookup tables, as in `ElementParts`.

    Members
    -------
    move : In(1)
        Enable.
    step, first : In(1)
        The operands are valid; they are the first of a sum.
    operand : In
        The input.
    weights : In
        A weight for each accumulator.
    totals : Out
        The sums.
    """

    def __init__(self, *, parameters: ElementParameters, count: int, lookup: bool) -> None:
        self.parameters, self.count, self.lookup = parameters, count, lookup
        super().__init__(
            {
                "move": In(1),
                "step": In(1),
                "first": In(1),
                "operand": In(signed(parameters.scalar_bits)),
                "weights": In(data.ArrayLayout(OPERAND, count)),
                "totals": Out(data.ArrayLayout(parameters.sum_shape, count)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply and accumulate."""
        m = Module()
        p = self.parameters
        # The flags are delayed in parallel with the register of the products.
        step, first = Signal(), Signal(reset_less=True)
        with m.If(self.move):
            m.d.sync += [step.eq(self.step), first.eq(self.first)]
        shape = signed(p.scalar_bits + OPERAND.width)
        for i in range(self.count):
            product = Signal(shape, name=f"product_{i}", reset_less=True)
            total = Signal(p.sum_shape, name=f"sum_{i}", reset_less=True)
            m.d.comb += self.totals[i].eq(total)
            if self.lookup:
                m.submodules[f"multiply_{i}"] = unit = ProductChain(
                    count=1, a=self.operand.shape(), b=OPERAND
                )
                m.d.comb += [unit.a[0].eq(self.operand), unit.b[0].eq(self.weights[i])]
                multiplied = unit.result
            else:
                # Booth digits of the weight, which has fewer bits, give fewer rows to add.
                multiplied = multiply_add(m, f"multiply_{i}", self.operand, self.weights[i])
            with m.If(self.move):
                m.d.sync += product.eq(multiplied)
                # The first product of a pass replaces the sum of the previous pass.
                with m.If(step):
                    m.d.sync += total.eq(Mux(first, 0, total) + product)
        return m

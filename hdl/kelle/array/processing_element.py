"""The processing element of Kelle's systolic array: a 16-bit by 8-bit multiply-add and four links.

Section 5.2 of the paper. A 16-bit moving operand is multiplied by an 8-bit weight as two 8-bit
products that share one sum: the upper byte's product, shifted by eight, and the lower byte's.
"""

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib.wiring import In, Out

from hdl.arith.compressor import full_adders
from hdl.parameters import require_range
from hdl.target import Target, current_target
from hdl.unit import Unit

WEIGHT_WIDTH = 8
"""Bits of a stationary operand."""


def encoded(weight: Value, unsigned_weight: Value) -> Value:
    """Return a weight as radix-4 Booth digits, three bits each, and one bit for unsigned weights.

    A digit is `one`, `two`, `negative`. An unsigned weight with its top bit set is larger by
    ``2**8`` than the value of its digits; the last bit marks this case.
    """
    bits = Cat(Const(0, 1), weight)
    digits = []
    for place in range(0, WEIGHT_WIDTH, 2):
        low, middle, high = bits[place : place + 3]
        digits += [low ^ middle, Mux(high, ~(low | middle), low & middle), high]
    return Cat(digits, unsigned_weight & weight[-1])


def extended(weight: Value, unsigned_weight: Value) -> Value:
    """Return a weight in two's complement with one more bit, for an FPGA's multiplier."""
    return Cat(weight, weight[-1] & ~unsigned_weight)


def partial_products(m: Module, moving: Signal, code: Signal, width: int) -> list[Signal]:
    """Return five words whose sum modulo ``2**width`` is the product.

    Parameters
    ----------
    m : Module
        Module that receives the logic.
    moving : Signal
        Moving operand, two's complement.
    code : Signal
        Weight, as `encoded` returns it.
    width : int
        Bits of the sum, at least those of `moving` and 8.
    """
    top = len(moving)
    words, below = [], Const(0, 0)
    for digit in range(WEIGHT_WIDTH // 2):
        one, two, negative = code[3 * digit : 3 * digit + 3]
        # One bit more than `moving`, for the double of it.
        chosen = Signal(signed(top + 1), name=f"chosen_{digit}")
        row = Signal(top + 1, name=f"row_{digit}")
        m.d.comb += [
            chosen.eq(Mux(two, moving << 1, Mux(one, moving, 0))),
            row.eq(Mux(negative, ~chosen, chosen)),
        ]
        # For a sign s at bit t, -s * 2**t = (~s) * 2**t - 2**t: the words contain ~s, and `signs`
        # the constants. The first word has the same value in three bits, so that `signs` fits
        # above it.
        ends = ~row[-1] if digit else Cat(row[-1], row[-1], ~row[-1])
        words.append(Cat(below, row[:-1], ends))
        # The carry-in of a negation fits below the next word, which starts two bits higher.
        below = Cat(Const(0, 2 * digit), negative, Const(0, 1))
    extra = Signal(top)
    m.d.comb += extra.eq(Mux(code[-1], moving, 0))
    words.append(Cat(below, extra[:-1], ~extra[-1]))
    free = top + 3
    signs = -(2 * (1 << top + 2) + (1 << top + 4) + (1 << top + 6) + (1 << top + 7))
    words[0] = Cat(words[0], Const((signs >> free) % (1 << width - free), width - free))
    return named(m, "partial", words, width)


def named(m: Module, name: str, values: Iterable[Value], width: int) -> list[Signal]:
    """Assign values to named signals, since an expression used twice would be emitted twice."""
    signals = []
    for number, value in enumerate(values):
        signals.append(Signal(width, name=f"{name}_{number}"))
        m.d.comb += signals[-1].eq(value)
    return signals


class ProcessingElement(Unit):
    """Multiply the moving operand by the stationary weight, and add the sum of the other link.

    With `transposed` = 0, the moving operand enters from the left and the sum from above; with 1
    the two links are exchanged. The element has three stages: sample the operand, multiply, add.
    Each control input belongs to the wavefront in the stage that it controls.

    **Latency** 1 cycle from moving operand in to out, 3 cycles from moving operand in to sum out,
    1 cycle from sum in to sum out. **Throughput** one multiply-add per cycle. **Numerics** exact
    while the sum fits `sum_width`.

    Parameters
    ----------
    moving_width : int
        Bits of the moving operand, two's complement, 4 to 16.
    sum_width : int
        Bits of a sum, two's complement, `moving_width` + 8 to 32.

    Members
    -------
    moving_left, moving_top : In
        Moving operands of the left and the upper neighbour.
    sum_left, sum_top : In
        Sums of the left and the upper neighbour.
    transposed : In
        Selects the moving operand: 0 left, 1 top.
    swap, unsigned_weight : In
        Whether the next weight becomes the weight, from the sampled wavefront on; whether that
        weight is unsigned rather than two's complement.
    sum_transposed : In
        Selects the sum to add to: 0 top, 1 left; two cycles after `transposed`.
    weight : In
        The next weight, sampled while `load_in` is 1.
    load_in, load_out : In, Out
        Load strobe, and the same one cycle later for the right neighbour.
    moving_out, sum_out : Out
        Moving operand and sum for the right and the lower neighbour.

    Raises
    ------
    ValueError
        If a width is outside its range.
    """

    def __init__(self, *, moving_width: int, sum_width: int) -> None:
        require_range("moving_width", moving_width, 4, 16)
        require_range("sum_width", sum_width, moving_width + WEIGHT_WIDTH, 32)
        self.moving_width = moving_width
        self.sum_width = sum_width
        super().__init__(
            {
                "moving_left": In(signed(moving_width)),
                "moving_top": In(signed(moving_width)),
                "sum_left": In(signed(sum_width)),
                "sum_top": In(signed(sum_width)),
                "transposed": In(1),
                "swap": In(1),
                "sum_transposed": In(1),
                "unsigned_weight": In(1),
                "weight": In(unsigned(WEIGHT_WIDTH)),
                "load_in": In(1),
                "load_out": Out(1),
                "moving_out": Out(signed(moving_width)),
                "sum_out": Out(signed(sum_width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Sample, multiply, and add product and passing sum with one carry chain."""
        m = Module()
        width = self.sum_width

        next_weight = Signal(WEIGHT_WIDTH, reset_less=True)
        for_fpga = current_target() is Target.FPGA
        # A weight is encoded once per tile, outside the path of the products.
        code = (extended if for_fpga else encoded)(next_weight, self.unsigned_weight)
        weight = Signal(len(code), reset_less=True)
        moving = Signal(signed(self.moving_width), reset_less=True)
        load = Signal(reset_less=True)
        with m.If(self.load_in):
            m.d.sync += next_weight.eq(self.weight)
        with m.If(self.swap):
            m.d.sync += weight.eq(code)
        m.d.sync += [
            moving.eq(Mux(self.transposed, self.moving_top, self.moving_left)),
            load.eq(self.load_in),
        ]

        # Three stages: operand; product; sum of product and passing sum.
        if for_fpga:
            words = [moving * weight.as_signed()]
        else:
            a, b, c, d, e = partial_products(m, moving, weight, width)
            x, y = named(m, "three", full_adders(a, b, c, width), width)
            x, y = named(m, "four", full_adders(x, y, d, width), width)
            # The product remains in carry-save form, so that there is only one carry chain.
            words = full_adders(x, y, e, width)
        product = [Signal(width, name=f"product_{i}", reset_less=True) for i in range(len(words))]
        m.d.sync += [register.eq(word) for register, word in zip(product, words, strict=True)]

        # The link that does not carry operands carries sums.
        passing = Signal(width)
        m.d.comb += passing.eq(Mux(self.sum_transposed, self.sum_left, self.sum_top))
        x, y = product[0], passing
        if not for_fpga:
            x, y = full_adders(product[0], product[1], passing, width)
        # The only carry chain of the element.
        total = Signal(signed(width), reset_less=True)
        m.d.sync += total.eq(x + y)
        m.d.comb += [
            self.moving_out.eq(moving),
            self.load_out.eq(load),
            self.sum_out.eq(total),
        ]
        return m

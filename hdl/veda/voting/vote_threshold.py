"""The voting threshold: weighted mean minus weighted deviation, computed element by element.

Figure 3, line 3, and Section V of the paper. With Q the sum of squares of a head's l probabilities,
whose sum is 1, the threshold a / l - b * sqrt(Q / l - 1 / l**2) equals (a - b * sqrt(l * Q - 1)) /
l: a product, a root, a product and a quotient. Each may take as long as the arrival of a head.
"""

from dataclasses import dataclass
from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import product_pair
from hdl.arith.divider import IterativeDivider
from hdl.arith.float_format import BINARY16
from hdl.arith.leading_zeros import leading_zeros
from hdl.arith.prefix_sum import prefix_sum
from hdl.arith.serial_multiplier import SerialMultiplier
from hdl.arith.serial_square_root import SerialSquareRoot
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from hdl.veda.voting.threshold_parameters import (
    COEFFICIENT_BITS,
    COEFFICIENT_FRACTION,
    LARGEST_MEAN,
    PROBABILITY_BITS,
    QUOTIENT_FRACTION,
    ROOT_FRACTION,
    SQUARE_FRACTION,
    STAGES,
    VoteThresholdParameters,
)


@dataclass(frozen=True)
class _Element:
    """An element in its first stage, and its flags in each stage from there to the sum.

    Parameters
    ----------
    value : Signal
        Its code, without the bits that are always zero.
    undefined : Signal
        It is not a probability: 2 or more, or a NaN.
    position : Signal
        Its index in its head.
    valid, first, last : list[Signal]
        Whether there is an element, and whether it is its head's first or last; one bit per stage.
    """

    value: Signal
    undefined: Signal
    position: Signal
    valid: list[Signal]
    first: list[Signal]
    last: list[Signal]


class VoteThreshold(Unit):
    """Compute each head's threshold and least probable element as its elements arrive.

    **Latency** `parameters.latency` cycles from a head's last element to its outcome: 84 at 4096
    slots. **Throughput** one element per cycle; a head of fewer than `parameters.interval` elements
    (27) delays the next one.

    **Numerics** probabilities are FP16 codes from 0 up to, but not including, 2, without their
    signs. A head with any other code, such as a NaN, is not a distribution: its threshold is zero,
    without a fallback, so that it casts no vote. Each square is truncated to a multiple of 2**-40;
    their sum Q saturates at 2 - 2**-40. With e = floor(l * Q) - 1 in units of 2**-28, at least 0,
    and r = floor(sqrt(e)) in units of 2**-14, the threshold is floor(a - b * r), in units of
    2**-25, divided by l and rounded to FP16, ties to even. If the sum of probabilities is 1, the
    error of the deviation is at most l * 2**-28 / sqrt(e) + 2**-14 before the division. The
    fallback applies for a - b * r < 0, before any rounding of the threshold: a threshold of zero is
    not a fallback, and no probability is below it. Without the parameter `fallback` a negative
    threshold is output as zero. A mean coefficient above 1.5 counts as 1.5.

    Parameters
    ----------
    parameters : VoteThresholdParameters
        Dimensions of the threshold unit.

    Members
    -------
    coefficients : In(struct)
        `mean` and `deviation`, the paper's a and b in units of 2**-12: 4096 and 819 for 1 and 0.2.
        They may change only while no head is in flight.
    probabilities : In(stream)
        A head's elements; `last` ends it.
    outcomes : Out(stream)
        For each head `threshold` (FP16 without its upper two bits; 0 if it would be negative, and
        for a head that is not a distribution). With the parameter `fallback` also `fallback` (the
        threshold would be negative), and `lowest`: the index of the smallest element; ties resolve
        to the lowest index.

    Raises
    ------
    ValueError
        If `parameters` are illegal, see `VoteThresholdParameters`.
    """

    def __init__(self, *, parameters: VoteThresholdParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "coefficients": In(parameters.coefficients_layout),
                "probabilities": In(stream.Signature(parameters.element_layout)),
                "outcomes": Out(stream.Signature(parameters.outcome_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Accumulate the squares, then use a chain of serial units, each on a different head."""
        m = Module()
        p = self.parameters
        # The shortest of the four units can afford one idle cycle between two heads. This cuts the
        # path of ready from the root, through all units and lanes, to the probabilities.
        m.submodules.product = product = SerialMultiplier(
            a_width=SQUARE_FRACTION + 1, b_width=p.length_bits, overlap=False
        )
        m.submodules.root = root = SerialSquareRoot(width=p.excess_bits)
        m.submodules.scaled = scaled = SerialMultiplier(
            a_width=p.root_bits, b_width=COEFFICIENT_BITS
        )
        m.submodules.quotient = quotient = IterativeDivider(
            dividend_width=p.quotient_bits, divisor_width=p.length_bits
        )
        # One head in each unit upstream of the divider, and one in transit: there is always room.
        # The smallest elements also wait for heads in the divider and upstream of the sum.
        m.submodules.lengths = lengths = Fifo(shape=unsigned(p.length_bits), depth=4)
        slot = {"slot": p.slot_bits} if p.fallback else {}
        low = data.StructLayout({**slot, "undefined": 1})
        m.submodules.lows = lows = Fifo(shape=low, depth=6)

        # From here on each unit holds one head, for at most the time of `interval` elements.
        self._accumulate(m, lows.source, product.operands)
        m.d.comb += [
            lengths.source.valid.eq(product.operands.valid & product.operands.ready),
            lengths.source.payload.eq(product.operands.payload.b),
        ]

        m.d.comb += [
            root.operand.payload.eq(self._excess(product.result.payload)),
            root.operand.valid.eq(product.result.valid),
            product.result.ready.eq(root.operand.ready),
            scaled.operands.payload.a.eq(root.result.payload),
            scaled.operands.payload.b.eq(self.coefficients.deviation),
            scaled.operands.valid.eq(root.result.valid),
            root.result.ready.eq(scaled.operands.ready),
        ]

        # a - b * r: its sign decides on the fallback before anything is divided or rounded.
        mean, upper = self.coefficients.mean, self.coefficients.mean[-2:].all()
        mean = Mux(upper, LARGEST_MEAN, mean) << ROOT_FRACTION
        margin = Signal(signed(p.root_bits + COEFFICIENT_BITS + 2))
        negative = margin[-1]
        dropped = ROOT_FRACTION + COEFFICIENT_FRACTION - QUOTIENT_FRACTION
        divides = Signal()
        m.d.comb += [
            margin.eq((mean - scaled.result.payload) >> dropped),
            quotient.operands.payload.dividend.eq(Mux(negative, 0, margin)),
            quotient.operands.payload.divisor.eq(lengths.sink.payload),
            quotient.operands.valid.eq(scaled.result.valid),
            scaled.result.ready.eq(quotient.operands.ready),
            divides.eq(quotient.operands.valid & quotient.operands.ready),
            lengths.sink.ready.eq(divides),
        ]
        # The sign is held in parallel with the divider, which holds one head at a time.
        divided_is_negative = Signal(reset_less=True)
        with m.If(divides):
            m.d.sync += divided_is_negative.eq(negative)

        self._round(m, quotient.result, divided_is_negative, lows.sink)
        return m

    def _excess(self, squared: Value) -> Value:
        """Return l * Q - 1, which only affects the integer bits.

        Only rounding errors can make it negative: then the deviation is zero.
        """
        squared = squared[SQUARE_FRACTION - 2 * ROOT_FRACTION :]
        fraction, whole = squared[: 2 * ROOT_FRACTION], squared[2 * ROOT_FRACTION :]
        excess = Cat(fraction, (whole - 1)[: len(whole)])
        return Mux(whole == 0, 0, excess)

    def _accumulate(self, m: Module, lows: stream.Interface, sums: stream.Interface) -> None:
        """Examine the elements, count them and accumulate their squares."""
        advance = Signal()
        # All stages advance together; they stall while a sum waits.
        m.d.comb += [
            advance.eq((~sums.valid | sums.ready) & lows.ready),
            self.probabilities.ready.eq(advance),
        ]
        element = self._element(m, advance)
        self._examine(m, advance, element, lows)
        if self.parameters.fallback:
            self._find_lowest(m, advance, element, lows)
        self._sum(m, advance, element, self._square(m, advance, element.value), sums)

    def _element(self, m: Module, advance: Value) -> _Element:
        """Stage 1: the element, its index, and whether it is its head's first."""
        # Without the fallback only a head's first element has to be known: the index stays at 1.
        p = self.parameters
        number = Signal(p.slot_bits if p.fallback else 1)
        element = _Element(
            value=Signal(PROBABILITY_BITS, name="value", reset_less=True),
            undefined=Signal(name="undefined", reset_less=True),
            position=Signal.like(number, name="position", reset_less=True),
            valid=[Signal(name=f"valid_{stage}") for stage in range(STAGES - 1)],
            first=[Signal(name=f"first_{stage}", reset_less=True) for stage in range(STAGES - 1)],
            last=[Signal(name=f"last_{stage}", reset_less=True) for stage in range(STAGES - 1)],
        )
        payload = self.probabilities.payload
        with m.If(self.probabilities.valid & advance):
            m.d.sync += number.eq(Mux(payload.last, 0, number + 1 if p.fallback else 1))
        with m.If(advance):
            m.d.sync += [
                element.value.eq(Value.cast(payload.value)[:PROBABILITY_BITS]),
                element.undefined.eq(Value.cast(payload.value)[PROBABILITY_BITS]),
                element.position.eq(number),
                element.first[0].eq(number == 0),
                element.last[0].eq(payload.last),
                element.valid[0].eq(self.probabilities.valid),
            ]
            for flags in (element.first, element.last, element.valid):
                m.d.sync += [new.eq(old) for old, new in pairwise(flags)]
        return element

    def _examine(
        self, m: Module, advance: Value, element: _Element, lows: stream.Interface
    ) -> None:
        """Stage 2: one element that is not a probability makes its whole head undefined."""
        undefined = Signal(reset_less=True)
        with m.If(advance & element.valid[0]):
            m.d.sync += undefined.eq(element.undefined | (undefined & ~element.first[0]))
        m.d.comb += [
            lows.valid.eq(element.valid[1] & element.last[1] & advance),
            lows.payload.undefined.eq(undefined),
        ]

    def _find_lowest(
        self, m: Module, advance: Value, element: _Element, lows: stream.Interface
    ) -> None:
        """Stage 2: the smallest element so far; ties resolve to the lowest index."""
        value, valid, first = element.value, element.valid, element.first
        smallest = Signal(PROBABILITY_BITS, reset_less=True)
        lowest = Signal(self.parameters.slot_bits, reset_less=True)
        with m.If(advance & valid[0] & (first[0] | (value < smallest))):
            m.d.sync += [smallest.eq(value), lowest.eq(element.position)]
        m.d.comb += lows.payload.slot.eq(lowest)

    def _square(self, m: Module, advance: Value, value: Value) -> Value:
        """Stages 2 to 4: return the square as a fixed-point number.

        First the square in carry-save form, then the carry propagation, then the alignment: one
        stage each.
        """
        mantissa, exponent = value[: BINARY16.mantissa_bits], value[BINARY16.mantissa_bits :]
        normal = exponent.any()
        significand = Signal(BINARY16.significand_bits)
        m.d.comb += significand.eq(Cat(mantissa, normal))
        width = 2 * BINARY16.significand_bits
        # A normal number's hidden one is the OR of its exponent; that of a subnormal number is
        # zero.
        halves = product_pair(m, significand, significand)
        save = [Signal(width, name=f"save_{half}", reset_less=True) for half in range(2)]
        powers = [Signal(4, name=f"power_{stage}", reset_less=True) for stage in range(2)]
        square = Signal(width, reset_less=True)
        # A code of exponent e is its significand times 2**(e - 25): the square's unit is 2e - 50.
        placed = Signal(SQUARE_FRACTION + 2, reset_less=True)
        dropped = 50 - SQUARE_FRACTION
        with m.If(advance):
            m.d.sync += [half.eq(new) for half, new in zip(save, halves, strict=True)]
            m.d.sync += [
                powers[0].eq(Mux(normal, exponent, 1)),
                powers[1].eq(powers[0]),
                square.eq(prefix_sum(m, *save)[:width]),
                placed.eq((square << Cat(Const(0, 1), powers[1])) >> dropped),
            ]
        return placed

    def _sum(
        self,
        m: Module,
        advance: Value,
        element: _Element,
        square: Value,
        sums: stream.Interface,
    ) -> None:
        """Stage 5: the number of elements, and the sum of squares, which saturates."""
        complete, length = Signal(), Signal(self.parameters.length_bits, reset_less=True)
        total = Signal(SQUARE_FRACTION + 1, reset_less=True)
        beyond = Signal(reset_less=True)
        # A head's first square replaces the sum: no cycle is spent on clearing it.
        begin = element.first[-1]
        added = Signal(SQUARE_FRACTION + 2)
        m.d.comb += added.eq(prefix_sum(m, Mux(begin, 0, total), square[:-1]))
        with m.If(advance):
            m.d.sync += complete.eq(element.valid[-1] & element.last[-1])
            with m.If(element.valid[-1]):
                m.d.sync += [
                    length.eq(Mux(begin, 1, length + 1)),
                    total.eq(added),
                    beyond.eq((beyond & ~begin) | square[-1] | added[-1]),
                ]
        with m.Elif(sums.ready):
            m.d.sync += complete.eq(0)
        # Saturation is applied at the read only, which keeps the accumulator's path short.
        m.d.comb += [
            sums.valid.eq(complete),
            sums.payload.a.eq(total | beyond.replicate(len(total))),
            sums.payload.b.eq(length),
        ]

    def _round(
        self, m: Module, quotients: stream.Interface, negative: Value, lows: stream.Interface
    ) -> None:
        """Normalise the quotient, at most down to the subnormal exponent, and round it."""
        outcome = self.outcomes
        # Only the positions of normal numbers are searched: subnormals are not shifted further.
        top = BINARY16.bias - 1
        moved, shift = Signal(QUOTIENT_FRACTION + 1, reset_less=True), Signal(range(top + 1))
        rest, full = Signal(reset_less=True), Signal()
        leaves, quotient = Signal(), quotients.payload.quotient
        amount = Signal.like(shift)
        m.d.comb += [
            leaves.eq(full & (~outcome.valid | outcome.ready)),
            lows.ready.eq(leaves),
            quotients.ready.eq(~full | leaves),
            amount.eq(leading_zeros(quotient[-top:])),
        ]
        # A register between the shift and the rounding.
        with m.If(quotients.ready):
            m.d.sync += [
                full.eq(quotients.valid),
                moved.eq(quotient << amount),
                shift.eq(amount),
                rest.eq(quotients.payload.remainder.any()),
            ]
        significand = moved[-BINARY16.significand_bits :]
        below = moved[: -BINARY16.significand_bits]
        # The significand's leading one increments the exponent, and so does a rounding carry.
        up = below[-1] & (below[:-1].any() | rest | significand[0])
        code = Cat(Const(0, BINARY16.mantissa_bits), top - shift) + significand + up
        with m.If(leaves):
            m.d.sync += [
                # No probability is below a threshold of zero.
                outcome.payload.threshold.eq(Mux(lows.payload.undefined, 0, code)),
                outcome.valid.eq(1),
            ]
        with m.Elif(outcome.ready):
            m.d.sync += outcome.valid.eq(0)
        if self.parameters.fallback:
            fallback = Signal(reset_less=True)
            with m.If(quotients.ready):
                m.d.sync += fallback.eq(negative)
            with m.If(leaves):
                m.d.sync += [
                    outcome.payload.fallback.eq(fallback & ~lows.payload.undefined),
                    outcome.payload.lowest.eq(lows.payload.slot),
                ]

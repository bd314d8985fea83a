"""Multiplication of group sums by their 8-bit scales in a compute unit; not in the paper."""

from dataclasses import dataclass
from itertools import pairwise

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.memory.memory import Memory
from hdl.p3llm.pim.dot_product import SUM
from hdl.parameters import require_power_of_two, require_range
from hdl.unit import Unit

SCALE_BITS = 8
"""Bits of a group's scale, an unsigned integer."""

TOTAL = signed(48)
"""Shape of an output's total: the sum over its groups of group sum times scale."""

HIGH_BITS = 16
"""Bits of a total above the 32 bits of a sum."""

COMPLETE = 4
"""Cycles from a group's last column until its sums are finished, in addition to `pumps`."""


@dataclass(frozen=True)
class Progress:
    """The group in progress, whether there is one, and the index of the current sum."""

    group: data.View
    active: Signal
    place: Signal


class GroupScaler(Unit):
    """Multiply finished group sums by their scales and add the products to totals.

    One multiplier serves all elements of a unit, one sum per cycle: first the sums of all elements
    for the first input, then those for the second. Unused inputs have sums of 0. When the last
    group completes a total, the total moves to the results, where it is held while the groups of
    the next outputs are accumulated.

    **Latency** ``pumps * elements + 2`` cycles from finished sums to their totals. **Throughput**
    one sum per cycle: one group every ``pumps * elements`` cycles, at least ``pumps + 4`` cycles
    apart. **Numerics** exact integers modulo ``2**48``.

    Parameters
    ----------
    elements : int
        Sums per input, a power of two, 4 to 16.
    pumps : int
        Inputs that share a column, 1 or 2.

    Members
    -------
    group : In(struct)
        Valid one cycle after the command of a group's last column: `valid`; the group `begins` or
        `ends` the totals of its outputs; `scales` of the elements, first element first.
    sums : In(ArrayLayout)
        The elements' finished sums of one input.
    advance : Out(1)
        Shift the elements' finished sums to those of the next input.
    read : In(struct)
        Selects the results: those of input `pump`, for the `upper` or the lower half of the
        elements; or the `high` bits of all elements.
    result : Out
        The lower 32 bits of half of the totals, or the upper 16 bits of all of them.
    free : Out(1)
        The column of this cycle may complete sums.
    scaling, completing : Out(1)
        Sums are in flight; some of them complete totals.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, elements: int = 16, pumps: int = 2) -> None:
        require_power_of_two("elements", elements, 4, 16)
        require_range("pumps", pumps, 1, 2)
        self.elements, self.pumps = elements, pumps
        # Totals are read in the order in which they are completed: a shift register, no decoder.
        self.results = [
            Signal(TOTAL, name=f"result_{i}", reset_less=True) for i in range(pumps * elements)
        ]
        super().__init__(
            {
                "group": In(self.group_layout(elements)),
                "sums": In(data.ArrayLayout(SUM, elements)),
                "advance": Out(1),
                "read": In(data.StructLayout({"pump": 1, "upper": 1, "high": 1})),
                "result": Out(SUM.width * elements // 2),
                "free": Out(1),
                "scaling": Out(1),
                "completing": Out(1),
            }
        )

    @staticmethod
    def group_layout(elements: int) -> data.StructLayout:
        """Return the layout of the member `group`."""
        scales = data.ArrayLayout(SCALE_BITS, elements)
        return data.StructLayout({"valid": 1, "begins": 1, "ends": 1, "scales": scales})

    @staticmethod
    def interval(elements: int, pumps: int) -> int:
        """Return the minimum number of cycles between the last columns of consecutive groups."""
        return max(pumps * elements, pumps + COMPLETE)

    @staticmethod
    def latency(elements: int, pumps: int) -> int:
        """Return the cycles from the command of a group's last column to its totals."""
        return pumps + COMPLETE + pumps * elements + 2

    def elaborate(self, platform: object) -> Module:
        """Select a sum; multiply it; add it to its total: one stage each."""
        m = Module()
        self._waits(m)
        now = self._progress(m)
        group, active, place = now.group, now.active, now.place
        element, last_place = place[: ceil_log2(self.elements)], self.elements - 1
        # The first sums of the next group may overwrite the last element's sum, so it is registered
        # one cycle early.
        early = delay_line(m, self.sums[last_place], 1, name="early")[1]
        sums = Array([*(self.sums[i] for i in range(last_place)), early])
        operand, product = Signal(SUM), Signal(signed(SUM.width + SCALE_BITS))
        scale = Signal(SCALE_BITS)
        m.d.sync += [
            operand.eq(sums[element]),
            scale.eq(group.scales[0]),
            product.eq(operand * scale),
        ]
        m.d.comb += self.advance.eq(
            active & (element == last_place) & (place != self.pumps * self.elements - 1)
        )
        marks = delay_line(m, Cat(active, group.begins, group.ends), 2, name="marks", reset=True)
        places = delay_line(m, place, 2, name="place")
        self._totals(m, product, marks[-1], read=places[1], written=places[2])
        self._shows(m)
        return m

    def _shows(self, m: Module) -> None:
        """Output the selected part of the results."""
        read, half = self.read, self.elements // 2
        first, second = self.results[: self.elements], self.results[-self.elements :]
        totals = [Mux(read.pump, b, a) for a, b in zip(first, second, strict=True)]
        lower, upper = (
            Cat(one[: SUM.width] for one in part) for part in (totals[:half], totals[half:])
        )
        high = Cat(one[SUM.width :] for one in totals)
        m.d.comb += self.result.eq(Mux(read.high, high, Mux(read.upper, upper, lower)))

    def _waits(self, m: Module) -> None:
        """Count the cycles for which any sums, and those that complete totals, are in flight."""
        elements, pumps = self.elements, self.pumps
        latency, interval = self.latency(elements, pumps), self.interval(elements, pumps)
        given = self.group.valid
        all_sums, of_totals = (
            Signal(range(latency - 1), name=name) for name in ("until_scaled", "until_complete")
        )
        for wait, begins in ((all_sums, given), (of_totals, given & self.group.ends)):
            with m.If(begins):
                m.d.sync += wait.eq(latency - 2)
            with m.Elif(wait != 0):
                m.d.sync += wait.eq(wait - 1)
        m.d.comb += [
            self.scaling.eq(given | (all_sums != 0)),
            self.completing.eq((given & self.group.ends) | (of_totals != 0)),
            self.free.eq(~given & (all_sums <= latency - interval)),
        ]

    def _progress(self, m: Module) -> Progress:
        """Start each group when its sums are finished, and count its sums."""
        layout = self.group_layout(self.elements)
        following, group = Signal(layout, reset_less=True), Signal(layout, reset_less=True)
        active, place = Signal(), Signal(range(self.pumps * self.elements))
        # A group arrives while the previous one may still be in progress.
        with m.If(self.group.valid):
            m.d.sync += following.eq(self.group)
        starts = delay_line(
            m, self.group.valid, self.pumps + COMPLETE - 2, name="starts", reset=True
        )[-1]
        with m.If(active):
            # The scales rotate with the sums, so that each input starts with the first element's
            # scale.
            rotated = Cat(Value.cast(group.scales)[SCALE_BITS:], group.scales[0])
            m.d.sync += [place.eq(place + 1), Value.cast(group.scales).eq(rotated)]
            with m.If(place == self.pumps * self.elements - 1):
                m.d.sync += active.eq(0)
        with m.If(starts):
            m.d.sync += [active.eq(1), group.eq(following)]
        return Progress(group, active, place)

    def _totals(
        self, m: Module, product: Signal, marks: Value, *, read: Signal, written: Signal
    ) -> None:
        """Add a product to its total; complete totals move to the results."""
        valid, begins, ends = (marks[i] for i in range(3))
        m.submodules.totals = totals = Memory(depth=self.pumps * self.elements, width=TOTAL.width)
        total = Signal(TOTAL)
        # The sums of the first group replace the totals of earlier outputs.
        before = totals.read_data & ~begins.replicate(TOTAL.width)
        m.d.comb += [
            totals.read_enable.eq(1),
            totals.read_address.eq(read),
            total.eq(product + before.as_signed()),
            totals.write_enable.eq(valid),
            totals.write_address.eq(written),
            totals.write_data.eq(total),
        ]
        with m.If(valid & ends):
            for place, following in pairwise([*self.results, total]):
                m.d.sync += place.eq(following)

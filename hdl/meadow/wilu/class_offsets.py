"""Compute IDs from classes: each ID has an offset as wide as its class specifies."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.adder_tree import tree_sum
from hdl.meadow.wilu.packet_format import MOST_CLASSES
from hdl.meadow.wilu.unpacker_parameters import WIDTH_BITS, UnpackerParameters
from hdl.stream.connect import buffered
from hdl.unit import Unit

FINE_BITS = 5
"""Low bits of an offset's position, by which the last stage of its selection shifts."""

BUFFERED_PACKETS = 4
"""Packets of offsets that are buffered in addition to the two of the window.

One is necessary: an incomplete group may leave most of three packets unused. Classes take seven
cycles from their packet to the window. With four, the unit outputs groups during these cycles even
if a header has only a few groups of classes.
"""


@dataclass(frozen=True)
class Window:
    """The packets of offsets that are held.

    Members
    -------
    bits : Signal
        Two packets, the older one in the lower bits.
    position : Signal
        Bit at which the offsets of the next group begin.
    enough : Signal
        All offsets of the next group are held.
    """

    bits: Signal
    position: Signal
    enough: Signal


@dataclass(frozen=True)
class CoarseOffset:
    """The offset of a lane, shifted to the multiple of 32 bits below its position.

    Members
    -------
    bits : Signal
        The bits from there on.
    shift : Signal
        Bits by which the offset is still to be shifted.
    mask : Signal
        1 for each bit of the offset.
    """

    bits: Signal
    shift: Signal
    mask: Signal


class ClassOffsets(Unit):
    """Sum of class bases and offsets; IDs of a matrix without classes pass through.

    The position of each offset of a group is the sum of the widths of the offsets before it. Two
    packets of offsets are held, so that a group may begin at any bit of the first.

    **Latency** 5 cycles. **Throughput** one group per cycle while offsets are available.

    Parameters
    ----------
    parameters : UnpackerParameters
        Dimensions of groups and packets; `classes` must be set.

    Members
    -------
    start : In(1)
        A matrix begins.
    active : In(1)
        The matrix has classes.
    widths, bases : In(ArrayLayout)
        Offset width and first ID of each class.
    abandon : In(1)
        Discard all groups up to the last, and output the last one without IDs.
    classes : In(stream)
        Groups of classes.
    offsets : In(stream)
        Packets of offsets; those after the last group are discarded.
    groups : Out(stream)
        Groups of IDs.
    starved, idle : Out(1)
        A group waits for offsets; no group is held.
    left_over : Out(1)
        The matrix has more packets of offsets than needed.

    Raises
    ------
    ValueError
        If a rule of `UnpackerParameters` is broken.
    """

    def __init__(self, *, parameters: UnpackerParameters) -> None:
        self.parameters = parameters
        self.widths_layout = data.ArrayLayout(unsigned(WIDTH_BITS), MOST_CLASSES)
        self.bases_layout = data.ArrayLayout(unsigned(parameters.id_bits), MOST_CLASSES)
        super().__init__(
            {
                "start": In(1),
                "active": In(1),
                "widths": In(self.widths_layout),
                "bases": In(self.bases_layout),
                "abandon": In(1),
                "classes": In(stream.Signature(parameters.group_layout)),
                "offsets": In(stream.Signature(parameters.packet_bits)),
                "groups": Out(stream.Signature(parameters.group_layout)),
                "starved": Out(1),
                "idle": Out(1),
                "left_over": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Look up widths, sum them to positions, select the bits, add base and offset."""
        m = Module()
        p = self.parameters
        lanes = range(p.lanes)
        place_bits = ceil_log2(2 * p.packet_bits)
        # First stage: the width of each lane's offset, 0 for a lane without an ID.
        one, one_valid = Signal(p.group_layout, reset_less=True), Signal()
        widths = [Signal(WIDTH_BITS, name=f"width_{i}", reset_less=True) for i in lanes]
        # Second stage: the sums of the widths before each lane.
        two, two_valid = Signal(p.group_layout, reset_less=True), Signal()
        two_widths = [Signal(WIDTH_BITS, name=f"two_width_{i}", reset_less=True) for i in lanes]
        before = [Signal(place_bits, name=f"before_{i}", reset_less=True) for i in lanes]
        total = Signal(place_bits, reset_less=True)
        fires, moves = Signal(), Signal()
        one_moves = ~two_valid | fires
        m.d.comb += [
            self.classes.ready.eq(~one_valid | one_moves),
            moves.eq(~self.groups.valid | self.groups.ready),
        ]
        table = Array(self.widths[number] for number in range(MOST_CLASSES))
        with m.If(self.classes.ready):
            m.d.sync += [one.eq(self.classes.payload), one_valid.eq(self.classes.valid)]
            for lane in lanes:
                there = self.active & (self.classes.payload.count > lane)
                number = self.classes.payload.ids[lane][: ceil_log2(MOST_CLASSES)]
                m.d.sync += widths[lane].eq(Mux(there, table[number], 0))
        with m.If(one_moves):
            m.d.sync += [two.eq(one), two_valid.eq(one_valid), total.eq(tree_sum(widths))]
            for lane in lanes:
                m.d.sync += two_widths[lane].eq(widths[lane])
                # Each lane has its own adder tree, which is shorter than a chain over the lanes.
                m.d.sync += before[lane].eq(tree_sum(widths[:lane]) if lane else 0)

        window = self._window(m, fires, total, two_valid & two.last)
        m.d.comb += fires.eq(two_valid & moves & (~self.starved | self.abandon))
        m.d.comb += [self.starved.eq(two_valid & ~window.enough), self.idle.eq(~two_valid)]
        # Third stage: the bits from the multiple of 32 below the offset's position.
        three, three_valid = Signal(p.group_layout, reset_less=True), Signal()
        coarse_bits = (1 << FINE_BITS) - 1 + p.id_bits
        coarse = [
            CoarseOffset(
                bits=Signal(coarse_bits, name=f"coarse_{i}", reset_less=True),
                shift=Signal(FINE_BITS, name=f"shift_{i}", reset_less=True),
                mask=Signal(p.id_bits, name=f"mask_{i}", reset_less=True),
            )
            for i in lanes
        ]
        with m.If(moves):
            m.d.sync += [
                three.eq(two),
                three_valid.eq(fires & (~self.abandon | two.last)),
            ]
            with m.If(self.abandon):
                m.d.sync += three.count.eq(0)
            for lane, offset in enumerate(coarse):
                begins = Signal(place_bits, name=f"begins_{lane}")
                m.d.comb += begins.eq(window.position + before[lane])
                bits = _shifted(window.bits, begins, place_bits, FINE_BITS, p.id_bits)
                m.d.sync += [
                    offset.bits.eq(bits),
                    offset.shift.eq(begins[:FINE_BITS]),
                    offset.mask.eq(Cat(two_widths[lane] > bit for bit in range(p.id_bits))),
                ]
        self._last_stages(m, moves, three, three_valid, coarse)
        return m

    def _window(self, m: Module, fires: Value, total: Value, ends: Value) -> Window:
        """Hold two packets of offsets."""
        p = self.parameters
        # Without the buffer, offsets that wait would block the classes that follow them in the
        # stream, which need several cycles to arrive here.
        waiting = buffered(m, "offsets_waiting", self.offsets, depth=BUFFERED_PACKETS)
        low, high = (Signal(p.packet_bits, reset_less=True, name=n) for n in ("low", "high"))
        level, position = Signal(range(3)), Signal(ceil_log2(p.packet_bits))
        ended, after = Signal(), Signal(ceil_log2(2 * p.packet_bits))
        window = Window(bits=Signal(2 * p.packet_bits), position=position, enough=Signal())
        passed, arrives, stays = Signal(), Signal(), Signal(range(3))
        m.d.comb += [
            after.eq(position + total),
            # A group has at most as many bits as a packet.
            window.enough.eq(
                (level == 2) | ((level == 1) & (after <= p.packet_bits)) | (total == 0)
            ),
            window.bits.eq(Cat(low, high)),
            passed.eq(fires & ~self.abandon & after[-1]),
            stays.eq(level - passed),
            waiting.ready.eq((stays != 2) | ended),
            arrives.eq(waiting.valid & waiting.ready & ~ended),
        ]
        m.d.sync += level.eq(stays + arrives)
        with m.If(fires & ~self.abandon):
            m.d.sync += position.eq(after)
        # After the last bit of the low packet, the high one replaces it.
        with m.If(passed):
            m.d.sync += low.eq(high)
        with m.If(arrives):
            with m.If(stays == 0):
                m.d.sync += low.eq(waiting.payload)
            with m.Else():
                m.d.sync += high.eq(waiting.payload)
        # A whole packet after the last group is surplus.
        whole = (level == 2) | ((level == 1) & (position == 0))
        with m.If(ended & (whole | waiting.valid)):
            m.d.sync += self.left_over.eq(1)
        with m.If(fires & ends):
            m.d.sync += ended.eq(1)
        with m.If(self.start):
            m.d.sync += [level.eq(0), position.eq(0), ended.eq(0), self.left_over.eq(0)]
        return window

    def _last_stages(
        self,
        m: Module,
        moves: Value,
        three: data.View,
        three_valid: Value,
        coarse: Sequence[CoarseOffset],
    ) -> None:
        """Shift each offset to bit 0, and add it to the base of its class."""
        p = self.parameters
        # Fourth stage: the shift by less than 32. Fifth stage: base plus offset.
        four, four_valid = Signal(p.group_layout, reset_less=True), Signal()
        bases = Array(self.bases[number] for number in range(MOST_CLASSES))
        with m.If(moves):
            m.d.sync += [
                four_valid.eq(three_valid),
                four.eq(three),
                self.groups.valid.eq(four_valid),
                self.groups.payload.eq(four),
            ]
            for lane in range(p.lanes):
                offset = Signal(p.id_bits, name=f"offset_{lane}", reset_less=True)
                base = Signal(p.id_bits, name=f"base_{lane}", reset_less=True)
                shifted = _shifted(coarse[lane].bits, coarse[lane].shift, FINE_BITS, 0, p.id_bits)
                number = three.ids[lane][: ceil_log2(MOST_CLASSES)]
                m.d.sync += [
                    offset.eq(shifted & coarse[lane].mask),
                    base.eq(Mux(self.active, bases[number], three.ids[lane])),
                    self.groups.payload.ids[lane].eq(base + offset),
                ]


def _shifted(bits: Value, by: Value, top: int, bottom: int, width: int) -> Value:
    """Return the low bits of `bits` shifted right by bits `bottom` to `top` - 1 of `by`."""
    value = Value.cast(bits)
    for bit in reversed(range(bottom, top)):
        step = 1 << bit
        value = (Mux(by[bit], value[step:], value) | Const(0, 1))[: step - 1 + width]
    return value

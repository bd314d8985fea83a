"""The reduction unit: a head's maximum and sum of exponentials, one score a cycle.

The reduction of the paper's Figure 6: a comparator finds the maximum while a tile of scores
waits in a FIFO; then the tile's scores leave for the exponential while the next tile enters.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_exp import Domain, FloatExp
from hdl.arith.float_format import BINARY16
from hdl.memory.memory_fifo import MemoryFifo
from hdl.unit import Unit
from hdl.veda.functions.exponential_sum import ExponentialSum
from hdl.veda.functions.softmax_parameters import ElementSerialSoftmaxParameters


def order_key(code: ValueLike) -> Value:
    """Return an unsigned number in the order of FP16 codes: -0 below +0, NaNs at the ends."""
    code = Value.cast(code)
    return Cat(code[:-1] ^ code[-1].replicate(len(code) - 1), ~code[-1])


class ReductionUnit(Unit):
    """Find the maximum and the reciprocal of the sum of exponentials of heads of scores.

    The maximum takes effect at the end of a tile. A tile that raises it has to rescale the earlier
    sum by ``exp(m - m')``. The exponential unit has no cycle to spare for that; but the exponential
    of the tile's maximum is known to be 1. So the tile's first place takes the factor, and the
    first score comes in the place of the maximum.

    **Latency** the last score leaves its tile ``tile + 1`` cycles after it came, at most, and its
    head's maximum is there; the reciprocal follows ``binades + stages + 19`` cycles later.
    **Throughput** one score a cycle; a last tile that raises the maximum and is shorter than 26
    scores takes 26 cycles, and a head takes at least ``binades + 15``.

    **Numerics** as in `ElementSerialSoftmax`.

    Parameters
    ----------
    parameters : ElementSerialSoftmaxParameters
        Dimensions.

    Members
    -------
    scores : In(stream)
        Scores and the end of a head.
    maximum_strobe, maximum : Out
        A head's maximum, for one cycle; the user has room.
    reciprocal_strobe, reciprocal : Out
        The reciprocal of its sum, for one cycle; the user has room.
    flags : Out(struct)
        What has happened since reset or `clear_flags`.
    clear_flags : In(1)
        Forget it.
    """

    def __init__(self, *, parameters: ElementSerialSoftmaxParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "scores": In(stream.Signature(parameters.element_layout)),
                "maximum_strobe": Out(1),
                "maximum": Out(parameters.maximum_layout),
                "reciprocal_strobe": Out(1),
                "reciprocal": Out(parameters.reciprocal_layout),
                "flags": Out(parameters.flags_layout),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Fill tiles, empty tiles."""
        m = Module()
        p = self.parameters
        waiting = data.StructLayout({"value": BINARY16.layout, "end": 1, "last": 1})
        tile = data.StructLayout({"maximum": p.maximum_layout, "rises": 1})
        # A tile's maximum leaves its FIFO two cycles after the tile's last element has come.
        m.submodules.elements = elements = MemoryFifo(shape=waiting, depth=p.tile + 2)
        # A head may end in a short tile: while a whole one leaves, two more can be complete.
        m.submodules.tiles = tiles = MemoryFifo(shape=tile, depth=2)
        self._fill(m, elements.source, tiles.source)
        self._empty(m, elements.sink, tiles.sink)
        return m

    def _fill(self, m: Module, elements: Any, tiles: Any) -> None:
        """Compare each score with the largest so far and let it wait."""
        p = self.parameters
        score = self.scores.payload
        begins, first_tile = Signal(init=1), Signal(init=1)
        running = Signal(BINARY16.layout, reset_less=True)
        nan_before, rose_before = Signal(reset_less=True), Signal(reset_less=True)
        place = Signal(range(p.tile))

        # Two unsigned numbers are compared, not two floating-point ones.
        greater = order_key(score.value) > order_key(running)
        nan = score.value.exponent.all() & score.value.mantissa.any()
        maximum = Signal(BINARY16.layout)
        nans, rises, end, take = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            maximum.eq(Mux(begins | greater, score.value, running)),
            nans.eq(nan | (nan_before & ~begins)),
            rises.eq(~first_tile & (greater | rose_before)),
            end.eq(score.last | (place == p.tile - 1)),
            # A score waits for room in both, though only a tile's last needs the second: what it is
            # does not decide whether it is taken.
            self.scores.ready.eq(elements.ready & tiles.ready),
            take.eq(self.scores.valid & self.scores.ready),
            elements.valid.eq(take),
            elements.payload.eq(Cat(Value.cast(score.value), end, score.last)),
            tiles.valid.eq(take & end),
            tiles.payload.maximum.value.eq(maximum),
            tiles.payload.maximum.undefined.eq(nans | maximum.exponent.all()),
            tiles.payload.rises.eq(rises),
        ]
        with m.If(take):
            m.d.sync += [
                running.eq(maximum),
                begins.eq(score.last),
                nan_before.eq(nans),
                rose_before.eq(rises & ~end),
                place.eq(place + 1),
            ]
            with m.If(end):
                m.d.sync += [first_tile.eq(score.last), place.eq(0)]
        # Sticky, and set by preference: a clear in the same cycle loses no head.
        ends = take & score.last
        m.d.sync += [
            self.flags.nan.eq((self.flags.nan & ~self.clear_flags) | (ends & nans)),
            self.flags.infinite.eq(
                (self.flags.infinite & ~self.clear_flags) | (ends & ~nans & maximum.exponent.all())
            ),
        ]

    def _empty(self, m: Module, elements: Any, tiles: Any) -> None:
        """Take the exponentials of a tile's scores and add them."""
        p = self.parameters
        m.submodules.total = total = ExponentialSum(parameters=p)
        element, tile = elements.payload, tiles.payload
        first_of_tile, first_of_head = Signal(init=1), Signal(init=1)
        # Cycles until the sum may take over, and until the divisor may be replaced.
        pause, busy = Signal(range(total.rescale_cycles)), Signal(6)
        pause_next = Signal.like(pause)

        take, rescale = Signal(), Signal()
        # Only these replace what the sum's divider, or its earlier sum, still holds.
        replaces = element.last | (first_of_tile & ~first_of_head)
        blocked = (first_of_tile & pause.any()) | (replaces & busy.any())
        m.d.comb += [
            take.eq(elements.valid & tiles.valid & ~blocked),
            rescale.eq(first_of_tile & tile.rises),
            elements.ready.eq(tiles.valid & ~blocked),
            tiles.ready.eq(take & element.end),
            self.maximum_strobe.eq(take & element.last),
            self.maximum.eq(tile.maximum),
            pause_next.eq(Mux(pause.any(), pause - 1, 0)),
        ]
        m.d.sync += [pause.eq(pause_next), busy.eq(Mux(busy.any(), busy - 1, 0))]
        with m.If(take):
            m.d.sync += [first_of_tile.eq(element.end), first_of_head.eq(element.last)]
            # A tile that takes up an earlier sum needs a bit's time for each of the factor's.
            with m.If(first_of_tile):
                m.d.comb += pause_next.eq(~first_of_head)
            with m.If(rescale):
                m.d.comb += pause_next.eq(total.rescale_cycles - 1)
            with m.If(element.last):
                m.d.sync += busy.eq(pause_next + total.reciprocal_cycles(p))

        difference = self._difference(m, element, tile, take, first_of_tile, rescale)
        m.submodules.exp = exp = FloatExp(domain=Domain.NONPOSITIVE, stages=p.exp_stages)
        m.d.comb += [
            exp.a.eq(difference),
            total.exponential.eq(exp.result),
            self.reciprocal_strobe.eq(total.strobe_out),
            self.reciprocal.eq(total.reciprocal),
        ]
        # What accompanies an element through the subtractor and the exponential unit.
        strobe = delay_line(m, take, p.stages, name="strobe", reset=True)[-1]
        places = Cat(first_of_tile, element.last, rescale)
        places = delay_line(m, places, p.stages, name="places")[-1]
        m.d.comb += [
            total.strobe.eq(strobe),
            Cat(total.first_of_tile, total.last, total.rescale).eq(places),
        ]

    def _difference(
        self,
        m: Module,
        element: Any,
        tile: Any,
        take: Value,
        first_of_tile: Value,
        rescale: Value,
    ) -> Value:
        """Return an element less its tile's maximum; or, to rescale, the old maximum less the new.

        The exponential of the maximum itself is known to be one. Where the first place of a tile is
        needed for the factor, its score waits, and comes in the place of the maximum.
        """
        # Behind a tile's last element this register still holds the tile's maximum.
        maximum = Signal(BINARY16.layout, reset_less=True)
        minuend = Signal(BINARY16.layout, reset_less=True)
        first, first_pending = Signal(BINARY16.layout, reset_less=True), Signal()
        is_maximum = Value.cast(element.value) == Value.cast(tile.maximum.value)
        swapped = Mux(first_pending & is_maximum, first, element.value)
        m.d.sync += minuend.eq(Mux(rescale, maximum, swapped))
        with m.If(take):
            m.d.sync += [
                maximum.eq(tile.maximum.value),
                first_pending.eq(first_pending & ~is_maximum),
            ]
            # If the first score is the maximum, the factor has taken the right place already.
            with m.If(first_of_tile):
                m.d.sync += [first.eq(element.value), first_pending.eq(rescale & ~is_maximum)]
        m.submodules.subtract = subtract = FloatAdd(stages=self.parameters.subtract_stages)
        m.d.comb += [
            subtract.a.eq(minuend),
            subtract.b.eq(maximum),
            subtract.b.sign.eq(~maximum.sign),
        ]
        return subtract.result

"""Kelle's reconfigurable systolic array (RSA): weight-stationary, 32 x 32, transposed in place.

Section 5.2 and Figure 11 (a, b) of the paper. Every action in the array is a wavefront, which
starts at the corner element and reaches element (i, j) i + j cycles later. A vector is a wavefront;
the swap of weights and the direction of the links travel with it. The load of weights is also a
wavefront.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from amaranth.hdl import (
    Cat,
    Const,
    Module,
    Mux,
    Shape,
    Signal,
    Value,
    signed,
    unsigned,
)
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.kelle.array.processing_element import WEIGHT_WIDTH, ProcessingElement
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.stream.skew_buffer import SkewBuffer
from hdl.unit import Unit


class Moving(Enum):
    """How a moving operand uses the 8-bit multipliers of an element."""

    WIDE = "wide"
    """16 bits on two multipliers, one vector per cycle."""

    MODE8 = "mode8"
    """8 bits on one multiplier, one vector per cycle."""

    TWO_PASS = "two_pass"
    """16 bits on one multiplier, one vector per two cycles: the upper bytes, then the lower."""


@parameter_object
class SystolicArrayParameters(Parameters):
    """Dimensions of a systolic array; they also drive its golden model and its testbench.

    Parameters
    ----------
    rows : int
        Rows and columns.
    bands : int
        Rows of weights per beat of a load, one per band of neighbouring rows: a power of two, 1 to
        `rows`. A tile loads in ``rows / bands`` cycles.
    moving : Moving
        Width of the moving operand and number of multipliers per element.
    tag_width : int
        Bits of the tag, which accompanies a vector and is output with its results.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    rows: Annotated[int, PowerOfTwo(2, 64, "rows")] = 32
    bands: Annotated[int, PowerOfTwo(1, 64, "rows")] = 4
    moving: Moving = Moving.WIDE
    tag_width: Annotated[int, Range(1, 64, "bits")] = 8

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(self.bands <= self.rows, f"bands must be at most rows = {self.rows}", self.bands)

    @property
    def load_cycles(self) -> int:
        """Cycles of the load of a tile."""
        return self.rows // self.bands

    @property
    def passes(self) -> int:
        """Cycles per vector."""
        return 2 if self.moving is Moving.TWO_PASS else 1

    @property
    def element_shape(self) -> Shape:
        """Shape of an element of a vector."""
        return signed(8 if self.moving is Moving.MODE8 else 16)

    @property
    def link_width(self) -> int:
        """Bits of a moving operand on the links; a byte of either sign takes nine."""
        return {Moving.WIDE: 16, Moving.MODE8: 8, Moving.TWO_PASS: 9}[self.moving]

    @property
    def link_sum_width(self) -> int:
        """Bits of a sum on the links, enough for every sum of `rows` products."""
        return self.link_width + WEIGHT_WIDTH + ceil_log2(self.rows)

    @property
    def sum_shape(self) -> Shape:
        """Shape of a result."""
        return signed(self.element_shape.width + WEIGHT_WIDTH + ceil_log2(self.rows))

    @property
    def latency(self) -> int:
        """Cycles from a vector's acceptance to its result at lane 0; lane i follows i later."""
        return self.rows + 2 + 2 * (self.passes - 1)

    @property
    def vector_layout(self) -> data.StructLayout:
        """A vector with its controls and its tag."""
        flags = {"transposed": 1, "swap": 1, "unsigned_weights": 1}
        elements = data.ArrayLayout(self.element_shape, self.rows)
        return data.StructLayout({"elements": elements, **flags, "tag": self.tag_width})

    @property
    def weights_layout(self) -> data.ArrayLayout:
        """A beat of a load: one row of each band."""
        return data.ArrayLayout(data.ArrayLayout(WEIGHT_WIDTH, self.rows), self.bands)

    @property
    def lane_layout(self) -> data.StructLayout:
        """Output of one lane."""
        return data.StructLayout({"sum": self.sum_shape, "tag": self.tag_width, "valid": 1})


@dataclass(frozen=True)
class Wavefront:
    """A vector at a distance from the corner: whether there is one, and its header."""

    valid: Signal
    header: data.View


@dataclass(frozen=True)
class Split:
    """The bytes of a vector that are sent in a cycle, and whether they are the lower ones."""

    lower: Signal
    elements: data.View


@dataclass(frozen=True)
class Loads:
    """A load on its way into the array."""

    weights: list[data.View]  # By band: the weights for each column.
    strobes: list[Value]  # By row: the load strobe at the first column.


@dataclass(frozen=True)
class Sums:
    """The sums that the array outputs."""

    bottom: list[Value]  # Below each column.
    right: list[Value]  # To the right of each row.


class SystolicArray(Unit):
    """Multiply vectors by a stationary tile or by its transpose, one vector per cycle.

    Element (i, j) holds ``w[i][j]``. A vector x gives ``sum_i x[i] * w[i][j]`` at lane j, or with
    `transposed` ``sum_j w[i][j] * x[j]`` at lane i: the links exchange their roles and no weight
    moves. Nothing in the array stalls: a cycle without a vector is a bubble that travels as a
    wavefront.

    The next tile is loaded while vectors are multiplied by the current tile. A vector with `swap`
    makes the next tile the current one. It waits until the load is complete; the following load may
    begin in the same cycle. A tile has `load_cycles` beats; beat r contains row r of each band,
    that is rows ``r, r + load_cycles, r + 2 * load_cycles, ...`` of the tile. `unsigned_weights` is
    sampled with the swap: 1 if the weights of the tile are unsigned, as the lower bytes of 16-bit
    operands are.

    **Latency** `latency` + i cycles from acceptance to lane i: ``rows + 2 + i``, and two more with
    two passes. V vectors take ``V + 2 * rows - 2`` cycles from the first acceptance to the last
    result, and 3 more, because an element takes three cycles, of which one is a hop.
    **Throughput** one vector per cycle, across tiles and modes, or one per two cycles with two
    passes; one tile per `load_cycles` cycles.

    **Numerics** exact: `sum_shape` holds every sum of `rows` products.

    Parameters
    ----------
    parameters : SystolicArrayParameters
        Rows, bands, form of the moving operand, and bits of the tag.

    Members
    -------
    vectors : In(stream)
        `elements`, `transposed`, `swap`, `unsigned_weights`, and a `tag` for the consumer of the
        results.
    weights : In(stream)
        Beats of the load: for each band, a row of 8-bit weights.
    lanes : Out(ArrayLayout(lane, rows))
        For each lane: `sum` and `tag`, valid for the cycle in which `valid` is 1. There is no
        handshake: the producer of a vector must have reserved room for its results.
    next_tag : Out(tag_width)
        Lane 0's `tag` of the next cycle; lane i + 1's tag of the next cycle is lane i's tag.

    Raises
    ------
    ValueError
        If `SystolicArrayParameters` rejects a dimension.
    """

    def __init__(self, *, parameters: SystolicArrayParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "vectors": In(stream.Signature(parameters.vector_layout)),
                "weights": In(stream.Signature(parameters.weights_layout)),
                "lanes": Out(data.ArrayLayout(parameters.lane_layout, parameters.rows)),
                "next_tag": Out(parameters.tag_width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the elements, and accept loads and vectors at the corner."""
        m = Module()
        p = self.parameters
        vector = self.vectors.payload

        # A loaded tile waits for its swap. The next load follows the swap through the array at the
        # same speed, so that it suffices to check the order at the corner.
        loaded = Signal()
        beat = Signal(range(p.load_cycles))
        swap = Signal()
        starts, takes = Signal(), self.weights.valid & self.weights.ready
        fills = takes & (beat == p.load_cycles - 1)
        m.d.comb += [
            swap.eq(starts & vector.swap),
            self.weights.ready.eq(~loaded | swap),
        ]
        m.d.sync += loaded.eq(fills | (loaded & ~swap))
        with m.If(takes):
            m.d.sync += beat.eq(Mux(fills, 0, beat + 1))

        # Only a swap waits: other vectors are multiplied by the current tile.
        ready = loaded | ~vector.swap
        elements = vector.elements
        # The upper bytes are sent first, so that their sum can be shifted at the output.
        if p.passes == 2:
            split = self._split(m, starts)
            elements = split.elements
            ready &= ~split.lower
        m.d.comb += [
            self.vectors.ready.eq(ready),
            starts.eq(self.vectors.valid & ready),
        ]
        # Row i and column i take element i, i cycles after the corner: one skew buffer serves both.
        m.submodules.moving = moving = SkewBuffer(shape=signed(p.link_width), lanes=p.rows)
        m.d.comb += moving.aligned.eq(elements)

        wavefronts = self._wavefronts(m, starts, swap)
        sums = self._elements(m, moving.skewed, wavefronts, self._load_links(m, takes, beat))
        # An element samples, multiplies and adds: the sum of the last element of a row or column is
        # valid two cycles after its operand.
        for i, lane in enumerate(self.lanes):
            transposed = wavefronts[p.rows + 2 + i].header.transposed
            result = Mux(transposed, sums.right[i], sums.bottom[i])
            if p.passes == 2:
                # The sum of the upper bytes is held one cycle, until that of the lower bytes.
                upper = Signal(signed(p.link_sum_width), name=f"upper_{i}", reset_less=True)
                both = Signal(p.sum_shape, name=f"both_{i}", reset_less=True)
                m.d.sync += [upper.eq(result), both.eq((upper << 8) + result)]
                result = both
            m.d.comb += [
                lane.sum.eq(result),
                lane.tag.eq(wavefronts[p.latency + i].header.tag),
                lane.valid.eq(wavefronts[p.latency + i].valid),
            ]
        m.d.comb += self.next_tag.eq(wavefronts[p.latency - 1].header.tag)
        return m

    def _split(self, m: Module, starts: Signal) -> Split:
        """Send a vector's upper bytes, and a cycle later its lower ones."""
        p = self.parameters
        # The cycle after a vector's upper bytes always sends its lower bytes.
        lower = Signal()
        layout = data.ArrayLayout(signed(p.link_width), p.rows)
        held = Signal(data.ArrayLayout(unsigned(8), p.rows), reset_less=True)
        sent = Signal(layout)
        m.d.sync += lower.eq(starts)
        for i, element in enumerate(self.vectors.payload.elements):
            m.d.comb += sent[i].eq(Mux(lower, held[i], element >> 8))
            m.d.sync += held[i].eq(element[:8])
        return Split(lower, sent)

    def _wavefronts(self, m: Module, starts: Signal, swap: Signal) -> list[Wavefront]:
        """Delay the header of a vector, with one register for all elements at the same distance.

        Returns
        -------
        list[Wavefront]
            By distance from the corner.
        """
        p = self.parameters
        flags = {"transposed": 1, "swap": 1, "unsigned_weights": 1, "tag": p.tag_width}
        layout = data.StructLayout(flags)
        # Elements at the same distance from the corner do the same in the same cycle.
        first, vector = Signal(layout, name="wavefront_0"), self.vectors.payload
        m.d.comb += [
            first.transposed.eq(vector.transposed),
            first.swap.eq(swap),
            first.unsigned_weights.eq(vector.unsigned_weights),
            first.tag.eq(vector.tag),
        ]
        if p.passes == 2:
            # The wavefront of the lower bytes is one cycle later, with the same header but no swap.
            held = Signal(layout, reset_less=True)
            m.d.sync += held.eq(first)
            with m.If(~starts):
                m.d.comb += [first.eq(held), first.swap.eq(0)]
        wavefronts = [Wavefront(starts, first)]
        for distance in range(1, p.rows + p.latency):
            before = wavefronts[-1]
            valid = Signal(name=f"valid_{distance}")
            header = Signal(layout, name=f"wavefront_{distance}", reset_less=True)
            m.d.sync += [valid.eq(before.valid), header.eq(before.header)]
            wavefronts.append(Wavefront(valid, header))
        return wavefronts

    def _load_links(self, m: Module, takes: Value, beat: Signal) -> Loads:
        """Skew the beats of a load to wavefronts, over the bands and over the columns."""
        p = self.parameters
        row_bits = p.rows * WEIGHT_WIDTH
        # A strobe per row travels with the weights and selects the row that loads the beat.
        link = unsigned(row_bits + p.load_cycles)
        m.submodules.bands = bands = SkewBuffer(shape=link, lanes=p.bands, step=p.load_cycles)
        weights, strobes = [], []
        for band in range(p.bands):
            row = self.weights.payload[band].as_value()
            strobe = Cat(takes & (beat == number) for number in range(p.load_cycles))
            columns = SkewBuffer(shape=unsigned(WEIGHT_WIDTH), lanes=p.rows)
            m.submodules[f"columns_{band}"] = columns
            m.d.comb += [
                bands.aligned[band].eq(Cat(row, strobe)),
                columns.aligned.eq(bands.skewed[band][:row_bits]),
            ]
            weights.append(columns.skewed)
            strobes.extend(bands.skewed[band][row_bits:])
        return Loads(weights, strobes)

    def _elements(
        self, m: Module, moving: data.View, wavefronts: list[Wavefront], loads: Loads
    ) -> Sums:
        """Create and link the elements.

        The elements of a vector enter at the left of the rows and at the top of the columns; those
        that `transposed` does not select have no effect.
        """
        p = self.parameters
        moving_above: list[Value] = [moving[j] for j in range(p.rows)]
        sums_above: list[Value] = [Const(0, signed(p.link_sum_width))] * p.rows
        right = []
        for i in range(p.rows):
            moving_left, sum_left = moving[i], Const(0, signed(p.link_sum_width))
            load = loads.strobes[i]
            for j in range(p.rows):
                element = ProcessingElement(moving_width=p.link_width, sum_width=p.link_sum_width)
                m.submodules[f"element_{i}_{j}"] = element
                # The product of an operand is added two cycles after the operand is sampled.
                takes_in, adds = wavefronts[i + j].header, wavefronts[i + j + 2].header
                m.d.comb += [
                    element.moving_left.eq(moving_left),
                    element.moving_top.eq(moving_above[j]),
                    element.sum_left.eq(sum_left),
                    element.sum_top.eq(sums_above[j]),
                    element.transposed.eq(takes_in.transposed),
                    element.swap.eq(takes_in.swap),
                    element.unsigned_weight.eq(takes_in.unsigned_weights),
                    element.sum_transposed.eq(adds.transposed),
                    element.weight.eq(loads.weights[i // p.load_cycles][j]),
                    element.load_in.eq(load),
                ]
                moving_left = moving_above[j] = element.moving_out
                sum_left = sums_above[j] = element.sum_out
                load = element.load_out
            right.append(sum_left)
        return Sums(sums_above, right)

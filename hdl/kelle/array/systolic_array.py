"""Kelle's reconfigurable systolic array (RSA): weight-stationary, 32 x 32, transposed in place.

Section 5.2 and Figure 11 (a, b) of the paper. Every action in the array is a wavefront, which
starts at the corner element and reaches element (i, j) i + j cycles later. A vector is a wavefront;
the swap of weights and the direction of the links travel with it. The load of weights is also a
wavefront.
"""

from enum import Enum
from typing import Annotated, Any

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
            lower, elements = self._split(m, starts)
            ready &= ~lower
        m.d.comb += [
            self.vectors.ready.eq(ready),
            starts.eq(self.vectors.valid & ready),
        ]
        # Row i and column i take element i, i cycles after the corner: one skew buffer serves both.
        m.submodules.moving = moving = SkewBuffer(shape=signed(p.link_width), lanes=p.rows)
        m.d.comb += moving.aligned.eq(elements)

        valid, wavefront = self._wavefronts(m, starts, swap)
        weights, strobes = self._load_links(m, takes, beat)
        bottom, right = self._elements(m, moving.skewed, wavefront, weights, strobes)
        # An element samples, multiplies and adds: the sum of the last element of a row or column is
        # valid two cycles after its operand.
        for i, lane in enumerate(self.lanes):
            leaves = wavefront[p.rows + 2 + i]
            result = Mux(leaves.transposed, right[i], bottom[i])
            if p.passes == 2:
                # The sum of the upper bytes is held one cycle, until that of the lower bytes.
                upper = Signal(signed(p.link_sum_width), name=f"upper_{i}", reset_less=True)
                both = Signal(p.sum_shape, name=f"both_{i}", reset_less=True)
                m.d.sync += [upper.eq(result), both.eq((upper << 8) + result)]
                result = both
            m.d.comb += [
                lane.sum.eq(result),
                lane.tag.eq(wavefront[p.latency + i].tag),
                lane.valid.eq(valid[p.latency + i]),
            ]
        m.d.comb += self.next_tag.eq(wavefront[p.latency - 1].tag)
        return m

    def _split(self, m: Module, starts: Signal) -> tuple[Signal, data.View]:
        """Send a vector's upper bytes, and a cycle later its lower ones.

        Returns
        -------
        tuple[Signal, data.View]
            Whether this cycle sends lower bytes; the bytes to send.
        """
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
        return lower, sent

    def _wavefronts(self, m: Module, starts: Signal, swap: Signal) -> tuple[list[Any], list[Any]]:
        """Delay the header of a vector, with one register for all elements at the same distance.

        Returns
        -------
        tuple[list[Signal], list[View]]
            By distance from the corner: whether there is a vector, and its header.
        """
        p = self.parameters
        flags = {"transposed": 1, "swap": 1, "unsigned_weights": 1, "tag": p.tag_width}
        layout = data.StructLayout(flags)
        # Elements at the same distance from the corner do the same in the same cycle.
        valid, wavefront = [starts], [Signal(layout, name="wavefront_0")]
        header = self.vectors.payload
        m.d.comb += [
            wavefront[0].transposed.eq(header.transposed),
            wavefront[0].swap.eq(swap),
            wavefront[0].unsigned_weights.eq(header.unsigned_weights),
            wavefront[0].tag.eq(header.tag),
        ]
        if p.passes == 2:
            # The wavefront of the lower bytes is one cycle later, with the same header but no swap.
            held = Signal(layout, reset_less=True)
            m.d.sync += held.eq(wavefront[0])
            with m.If(~starts):
                m.d.comb += [wavefront[0].eq(held), wavefront[0].swap.eq(0)]
        for distance in range(1, p.rows + p.latency):
            valid.append(Signal(name=f"valid_{distance}"))
            wavefront.append(Signal(layout, name=f"wavefront_{distance}", reset_less=True))
            m.d.sync += [valid[-1].eq(valid[-2]), wavefront[-1].eq(wavefront[-2])]
        return valid, wavefront

    def _load_links(
        self, m: Module, takes: Value, beat: Signal
    ) -> tuple[list[data.View], list[Value]]:
        """Skew the beats of a load to wavefronts, over the bands and over the columns.

        Returns
        -------
        tuple[list[View], list[Value]]
            By band: the weights for each column. By row: the load strobe at the first column.
        """
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
        return weights, strobes

    def _elements(
        self,
        m: Module,
        moving: data.View,
        wavefront: list[data.View],
        weights: list[data.View],
        strobes: list[Value],
    ) -> tuple[list[Value], list[Value]]:
        """Create and link the elements; return the sums below the bottom row and to the right.

        The elements of a vector enter at the left of the rows and at the top of the columns; those
        that `transposed` does not select have no effect.
        """
        p = self.parameters
        moving_above: list[Value] = [moving[j] for j in range(p.rows)]
        sums_above: list[Value] = [Const(0, signed(p.link_sum_width))] * p.rows
        right = []
        for i in range(p.rows):
            moving_left, sum_left = moving[i], Const(0, signed(p.link_sum_width))
            load = strobes[i]
            for j in range(p.rows):
                element = ProcessingElement(moving_width=p.link_width, sum_width=p.link_sum_width)
                m.submodules[f"element_{i}_{j}"] = element
                # The product of an operand is added two cycles after the operand is sampled.
                takes_in, adds = wavefront[i + j], wavefront[i + j + 2]
                m.d.comb += [
                    element.moving_left.eq(moving_left),
                    element.moving_top.eq(moving_above[j]),
                    element.sum_left.eq(sum_left),
                    element.sum_top.eq(sums_above[j]),
                    element.transposed.eq(takes_in.transposed),
                    element.swap.eq(takes_in.swap),
                    element.unsigned_weight.eq(takes_in.unsigned_weights),
                    element.sum_transposed.eq(adds.transposed),
                    element.weight.eq(weights[i // p.load_cycles][j]),
                    element.load_in.eq(load),
                ]
                moving_left = moving_above[j] = element.moving_out
                sum_left = sums_above[j] = element.sum_out
                load = element.load_out
            right.append(sum_left)
        return sums_above, right

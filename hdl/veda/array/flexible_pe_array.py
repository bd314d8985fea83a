"""VEDA's flexible-product PE array: the same elements compute inner and outer products.

Section IV and Figures 5 and 6 of the paper.
"""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from hdl.veda.array.array_parameters import ArrayMode, FlexiblePeArrayParameters
from hdl.veda.array.array_sequencer import TILE_LAYOUT, ArraySequencer
from hdl.veda.array.inner_product_accumulator import InnerProductAccumulator
from hdl.veda.array.processing_element import ElementType, ProcessingElement
from hdl.veda.array.sum_rounder import SumRounder


class FlexiblePeArray(Unit):
    """Multiply rows by a stationary vector or by scalars, on the same processing elements (PEs).

    PE p of the array is PE ``p mod plane_width`` of plane ``p // plane_width``, in row-major order.
    The `mode` of a beat selects its product.

    INNER: the dot product of the stationary vector and the beat's `weights` is output at
    `dot_products`. `load_vector` loads a `vector` together with the beat. With `split` each plane
    computes a dot product of its own. A dot product longer than the array is computed in slices:
    `first` and `last` mark its first and last slice. Up to `partial_sums` dot products form a
    block; slice n of all of them, in a fixed order, precedes slice n + 1. For other dot products
    `first` and `last` are both 1. Unused lanes are zero.

    OUTER: PE p of plane n adds ``scalars[n] * weights[p]``. `first` starts a row of sums; with
    `last` the row ends and is output at `results`. No inner product may enter between the two. A
    scalar also becomes the stationary vector of its plane.

    **Order of additions.** In a plane's row ((1 + 2) + (3 + 4)) + ((5 + 6) + (7 + 8)), the same
    tree over the rows, then the planes. In an outer product beat i is added to partial sum ``i mod
    add_stages``; the oldest two partial sums are added first, then the next one to their sum. A
    partial sum without a beat is -0. A long dot product adds its slices in their order of arrival.

    **Latency** `dot_latency` cycles from a beat to its dot product; `row_latency` from a row's last
    beat to its results. **Throughput** one beat per cycle. The array accepts no beat for `fold`
    cycles after a row's last beat, nor for `drain` cycles between an inner and an outer product. An
    idle cycle within a row delays the next beat until its partial sum is at the adder's output, by
    up to ``add_stages - 1`` further cycles. The slices of a dot product are at least ``add_stages +
    2`` cycles apart. Beats wait for room at the input, never inside the array.

    **Numerics** FP16 products are exact and sums are rounded in `sum_format`, FP29 by default, as
    in `ProcessingElement`; results are rounded once more to FP16, to nearest, ties to even. With
    FP29, ``|error| <= (levels + 1 + slices) * 2**-22 * sum(|products|)`` before that rounding for a
    dot product; for a row the bracket is ``elements / add_stages + add_stages``.

    Parameters
    ----------
    parameters : FlexiblePeArrayParameters
        Dimensions of the array.
    unrounded : bool
        Add the outputs `row_ends` and `row_sums`: a row's sums before they are rounded to FP16.

    Members
    -------
    operands : In(stream)
        A beat: `mode`, `split`, `load_vector`, `first`, `last`, `scalars` (planes x FP16),
        `weights` (width x FP16).
    vector : In(stream)
        Stationary vector, width x FP16; transferred with a beat that has `load_vector`.
    dot_products : Out(stream)
        Planes x FP16. With `split`, one dot product per plane. Without, the first is the dot
        product; the others are the partial dot products of their planes.
    results : Out(stream)
        A row, width x FP16.
    row_ends : Out(1)
        With `unrounded`: `row_sums` are valid in this cycle; `results` presents the same row,
        rounded, in the next cycle.
    row_sums : Out(array)
        With `unrounded`: sums of a row, width x `sum_format`.

    Raises
    ------
    ValueError
        If `parameters` are illegal, see `FlexiblePeArrayParameters`.
    """

    def __init__(self, *, parameters: FlexiblePeArrayParameters, unrounded: bool = False) -> None:
        self.parameters = parameters
        self.unrounded = unrounded
        sums = data.ArrayLayout(parameters.sum_format.layout, parameters.width)
        super().__init__(
            {
                "operands": In(stream.Signature(parameters.operand_layout)),
                "vector": In(stream.Signature(parameters.vector_layout)),
                "dot_products": Out(stream.Signature(parameters.dot_layout)),
                "results": Out(stream.Signature(parameters.vector_layout)),
            }
            | ({"row_ends": Out(1), "row_sums": Out(sums)} if unrounded else {})
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the sequencer, the PEs, the adder tree, the accumulators and the rounders."""
        m = Module()
        p = self.parameters
        m.submodules.sequencer = sequencer = ArraySequencer(parameters=p)
        beat, header = self.operands.payload, sequencer.beats.payload
        m.d.comb += [
            sequencer.beats.valid.eq(self.operands.valid),
            self.operands.ready.eq(sequencer.beats.ready),
            *(header[name].eq(beat[name]) for name, _field in p.header_layout),
            sequencer.vector_valid.eq(self.vector.valid),
            self.vector.ready.eq(sequencer.vector_ready),
            sequencer.scored.eq(self.dot_products.valid & self.dot_products.ready),
            self.results.valid.eq(sequencer.results_valid),
            sequencer.results_ready.eq(self.results.ready),
        ]
        elements = self._elements(m, sequencer)
        tiles = self._delayed(m, sequencer.tile)
        for plane in elements:
            self._link_plane(m, plane)
        # The planes' sums enter the last adder `add_stages` cycles before its result: the `split`
        # of the same beat, at that stage, decides whether they are added.
        sums = self._link_planes(m, elements, tiles[p.tree_latency - p.add_stages].split)
        self._join(m, sums, tiles[p.tree_latency - 1])
        self._round(m, elements, sequencer.capture)
        return m

    def _elements(self, m: Module, sequencer: ArraySequencer) -> list[list[ProcessingElement]]:
        """Instantiate the PEs, plane by plane, in row-major order."""
        p = self.parameters
        beat = self.operands.payload
        planes = []
        for n in range(p.planes):
            plane = []
            for index in range(p.plane_width):
                element = ProcessingElement(
                    element_type=ElementType.B if index % 2 else ElementType.A,
                    sum_format=p.sum_format,
                    multiply_stages=p.multiply_stages,
                    add_stages=p.add_stages,
                )
                row, column = divmod(index, p.columns)
                m.submodules[f"element_{n}_{row}_{column}"] = element
                lane = n * p.plane_width + index
                m.d.comb += [
                    element.weight.eq(beat.weights[lane]),
                    element.scalar.eq(beat.scalars[n]),
                    element.vector.eq(self.vector.payload[lane]),
                    element.broadcast.eq(beat.mode == ArrayMode.OUTER),
                    element.load.eq(sequencer.load),
                    element.mode.eq(sequencer.mode),
                    element.valid.eq(sequencer.valid),
                    element.fold.eq(sequencer.fold),
                ]
                plane.append(element)
            planes.append(plane)
        return planes

    def _link_plane(self, m: Module, plane: list[ProcessingElement]) -> None:
        """Connect a plane's PEs as an adder tree.

        Numbered from 1, an odd PE adds its neighbour's product to its own. PE k, where ``2**level``
        is the largest power of two that divides k, adds the sums of PEs ``k - 2**level / 2`` and
        ``k + 2**level / 2``. The last PE of every row but the last is therefore a node of the tree
        above the rows; the last PE of the plane is not part of the tree.
        """
        # The level is the number's trailing zeros; its lowest set bit is `number & -number`.
        for number in range(1, len(plane)):
            element = plane[number - 1]
            reach = (number & -number) // 2
            if reach == 0:
                m.d.comb += element.transmitted.eq(plane[number].product)
            else:
                m.d.comb += [
                    element.transmitted_product.eq(plane[number - 1 - reach].sum),
                    element.transmitted.eq(plane[number - 1 + reach].sum),
                ]

    def _link_planes(
        self, m: Module, elements: list[list[ProcessingElement]], split: Value
    ) -> list[Value]:
        """Add the planes in plane 0's last PE; the other last PEs output their own plane's sum."""
        p = self.parameters
        nothing = Const(1 << (p.sum_format.width - 1), p.sum_format.width)
        sums = []
        for n, plane in enumerate(elements):
            # The middle PE is the root of its plane's tree; the last PE is the one that the tree
            # does not use.
            middle, last = plane[p.plane_width // 2 - 1], plane[-1]
            other: Value = nothing
            if n == 0 and p.planes == 2:
                other = Mux(split, nothing, elements[1][p.plane_width // 2 - 1].sum.as_value())
            m.d.comb += [
                last.transmitted_product.eq(middle.sum),
                last.transmitted.eq(other),
            ]
            sums.append(last.sum)
        return sums

    def _delayed(self, m: Module, tile: data.View) -> list[data.View]:
        """Return the control bits of an inner product, indexed by the cycles since it entered."""
        # A shift register in parallel with the tree: the tree itself carries no control bits.
        delayed = [tile]
        for cycle in range(1, self.parameters.tree_latency):
            later = Signal(TILE_LAYOUT, name=f"tile_{cycle}")
            m.d.sync += later.eq(delayed[-1])
            delayed.append(later)
        return delayed

    def _join(self, m: Module, sums: list[Value], tile: data.View) -> None:
        """Accumulate slices, round, and store dot products until they are transferred."""
        p = self.parameters
        m.submodules.waiting = waiting = Fifo(shape=p.dot_layout, depth=p.dot_depth)
        done = Signal()
        for n, total in enumerate(sums):
            accumulator = InnerProductAccumulator(
                sum_format=p.sum_format, add_stages=p.add_stages, partial_sums=p.partial_sums
            )
            rounder = SumRounder(sum_format=p.sum_format, stages=1)
            m.submodules[f"accumulator_{n}"] = accumulator
            m.submodules[f"rounder_{n}"] = rounder
            m.d.comb += [
                accumulator.valid.eq(tile.valid),
                accumulator.first.eq(tile.first),
                accumulator.last.eq(tile.last),
                accumulator.slice_sum.eq(total),
                rounder.a.eq(accumulator.total),
                waiting.source.payload[n].eq(rounder.result),
            ]
            if n == 0:
                # The dot products of all planes complete in the same cycle.
                m.d.sync += done.eq(accumulator.done)
        m.d.comb += waiting.source.valid.eq(done)
        connect_streams(m, waiting.sink, self.dot_products)

    def _round(self, m: Module, elements: list[list[ProcessingElement]], capture: Value) -> None:
        """Round a row's sums into registers, which hold them until they are transferred."""
        lanes = [element for plane in elements for element in plane]
        if self.unrounded:
            m.d.comb += self.row_ends.eq(capture)
        for lane, element in enumerate(lanes):
            rounder = SumRounder(sum_format=self.parameters.sum_format, stages=1, enable=True)
            m.submodules[f"result_{lane}"] = rounder
            if self.unrounded:
                m.d.comb += self.row_sums[lane].eq(element.sum)
            # The rounder's stage is the output register: it is loaded only with a complete row.
            m.d.comb += [
                rounder.enable.eq(capture),
                rounder.a.eq(element.sum),
                self.results.payload[lane].eq(rounder.result),
            ]

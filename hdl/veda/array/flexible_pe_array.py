"""VEDA's flexible-product array: the same elements form inner and outer products.

Section 4 and Figures 5 and 6 of the paper.
"""

from typing import Any

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
    """Multiply a stationary vector by rows, or scalars by rows, on the same elements.

    Element p of the array is element ``p mod plane_width`` of plane ``p // plane_width``, in the
    order of the rows. What a beat does follows from its mode.

    INNER: the dot product of the stationary vector and the beat's `weights` leaves at
    `dot_products`. `load_vector` takes a `vector` together with the beat. With `split` each plane
    makes a dot product of its own. Where a dot product is longer than the array is wide, `first`
    and `last` mark its first and last slice: a block of up to `partial_sums` dot products comes
    slice by slice, each slice for the whole block in one order. Otherwise both are 1. Unused lanes
    are zero.

    OUTER: element p of plane n adds ``scalars[n] * weights[p]``; `first` starts a row of sums, with
    `last` it ends and leaves at `results`. Nothing else may come between the two. A scalar also
    becomes the stationary vector of its plane.

    **Order of additions.** In a plane's row ((1 + 2) + (3 + 4)) + ((5 + 6) + (7 + 8)), the same
    over the rows, then the planes. In an outer product element i is added to partial sum ``i mod
    add_stages``, of which the oldest two are added first, then the next; a partial sum without
    an element is -0. A long dot product adds its slices in the order of their coming.

    **Latency** `dot_latency` cycles from a beat to its dot product; `row_latency` from a row's last
    beat to its results. **Throughput** one beat a cycle. Behind a row's last beat `fold` cycles
    pass, and between an inner product and an outer one `drain`. A pause between the beats of a row
    lasts until the partial sum comes round, up to ``add_stages - 1`` cycles more. A dot product's
    slices are ``add_stages + 2`` cycles apart at least. Beats wait for room, never inside.

    **Numerics** FP16 products exact and sums rounded in `sum_format`, FP29 by default, as in
    `ProcessingElement`; results rounded to FP16 once more, to nearest, ties to even. With FP29,
    ``|error| <= (levels + 1 + slices) * 2**-22 * sum(|products|)`` before that rounding for a dot
    product, and with ``elements / add_stages + add_stages`` in the bracket for a row.

    Parameters
    ----------
    parameters : FlexiblePeArrayParameters
        Dimensions.
    unrounded : bool
        Whether a row's sums are also given as they are.

    Members
    -------
    operands : In(stream)
        `mode`, `split`, `load_vector`, `first`, `last`, `scalars` (planes x FP16), `weights`
        (width x FP16).
    vector : In(stream)
        width x FP16.
    dot_products : Out(stream)
        planes x FP16: with `split` that of each plane. Without, the first is the dot product; the
        others are what their planes have of it.
    results : Out(stream)
        width x FP16.
    row_ends : Out(1)
        With `unrounded`: in this cycle alone, `row_sums` are the sums of which the next one's
        `results` are made.
    row_sums : Out(array)
        width x `sum_format`.

    Raises
    ------
    ValueError
        By `FlexiblePeArrayParameters`.
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

    def elaborate(self, platform: Any) -> Module:
        """Place the sequencer, the elements, the tree's links and what stands behind it."""
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
        # The planes' sums enter the last adder `add_stages` cycles before the whole sum leaves it:
        # that beat's own `split` says whether they are added.
        sums = self._link_planes(m, elements, tiles[p.tree_latency - p.add_stages].split)
        self._join(m, sums, tiles[p.tree_latency - 1])
        self._round(m, elements, sequencer.capture)
        return m

    def _elements(self, m: Module, sequencer: ArraySequencer) -> list[list[ProcessingElement]]:
        """Place the elements, plane by plane in the order of the rows."""
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
        """Link a plane's elements to a tree.

        Numbered from 1, an odd element adds its neighbour's product to its own, and element k,
        where ``2**level`` is the largest power of two that divides it, the sums of elements ``k -
        2**level / 2`` and ``k + 2**level / 2``. So the last element of a row but the last is a node
        above the rows, and the last of all has no part in it.
        """
        # The level is the number's trailing zeros; its lowest one is `number & -number`.
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
        """Let the first plane's last element add the planes, the others' pass theirs on."""
        p = self.parameters
        nothing = Const(1 << (p.sum_format.width - 1), p.sum_format.width)
        sums = []
        for n, plane in enumerate(elements):
            # The middle element is the root of its plane's tree; the last one was left over.
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

    def _delayed(self, m: Module, tile: Any) -> list[Any]:
        """Return what accompanies an inner product, by the cycles since it entered."""
        # A shift register beside the tree: nothing in the tree itself knows whose sum it is.
        delayed = [tile]
        for cycle in range(1, self.parameters.tree_latency):
            behind = Signal(TILE_LAYOUT, name=f"tile_{cycle}")
            m.d.sync += behind.eq(delayed[-1])
            delayed.append(behind)
        return delayed

    def _join(self, m: Module, sums: list[Value], tile: Any) -> None:
        """Join slices, round, and keep dot products until they are taken."""
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
                # All planes' dot products are done in the same cycle.
                m.d.sync += done.eq(accumulator.done)
        m.d.comb += [
            waiting.source.valid.eq(done),
        ]
        connect_streams(m, waiting.sink, self.dot_products)

    def _round(self, m: Module, elements: list[list[ProcessingElement]], capture: Value) -> None:
        """Round a row's sums into registers, where they stay until they are taken."""
        lanes = [element for plane in elements for element in plane]
        if self.unrounded:
            m.d.comb += self.row_ends.eq(capture)
        for lane, element in enumerate(lanes):
            rounder = SumRounder(sum_format=self.parameters.sum_format, stages=1, enable=True)
            m.submodules[f"result_{lane}"] = rounder
            if self.unrounded:
                m.d.comb += self.row_sums[lane].eq(element.sum)
            # The rounder's own stage is the output register: it moves only with a finished row.
            m.d.comb += [
                rounder.enable.eq(capture),
                rounder.a.eq(element.sum),
                self.results.payload[lane].eq(rounder.result),
            ]

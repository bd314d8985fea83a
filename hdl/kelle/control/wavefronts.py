"""Headers for the eviction controller, derived from the scores that the array outputs.

Section 5.3 of the paper: the evictor compares scores as the array outputs them.
"""

from typing import Any

from amaranth.hdl import Array, Module, Mux
from amaranth.lib import data

from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters


def announce_wavefronts(
    m: Module, p: KelleParameters, coming: Any, placements: list[Any], wavefronts: Any
) -> None:
    """Drive `wavefronts` with the header of the array's next result, if it is a score.

    Parameters
    ----------
    m : Module
        Module that receives the connections.
    p : KelleParameters
        Dimensions of the accelerator.
    coming : View
        `valid` and `user` of the result that is at lane 0 in the next cycle.
    placements : list
        A `KelleParameters.placement_layout` for each head of all sequences.
    wavefronts : stream
        As in `EvictionController`.
    """
    header = data.View(p.header_layout, coming.user)
    scores = header.operation == Operation.SCORE
    own = header.operation == Operation.OWN
    placement = Array(placements)[p.item(header.sequence, header.head)]
    wavefront = wavefronts.payload
    # The last query head of a group completes a token's score.
    compare = header.index == p.group_size - 1
    # Scores of cached tokens belong to their tile; the arriving token's own score updates only the
    # row of its slot.
    row_bits = p.eviction.evictor.row_bits
    m.d.comb += [
        wavefronts.valid.eq(coming.valid & (scores | own)),
        wavefront.head.eq(header.head),
        wavefront.tile.eq(Mux(own, placement.slot[row_bits:], header.part)),
        wavefront.load.eq(header.index == 0),
        wavefront.compare.eq(compare),
        wavefront.last.eq(compare & scores & (header.part == p.tiles - 1)),
        wavefront.fresh.eq(own),
        wavefront.alone.eq(own),
        wavefront.row.eq(placement.slot[:row_bits]),
    ]

"""What the scores on their way out of the array are to the eviction controller.

Section 5.3 of the paper: the evictor compares scores as they leave the array.
"""

from typing import Any

from amaranth.hdl import Array, Module, Mux
from amaranth.lib import data

from hdl.kelle.operations import Operation
from hdl.kelle.parameters import KelleParameters


def announce_wavefronts(
    m: Module, p: KelleParameters, coming: Any, placements: list[Any], wavefronts: Any
) -> None:
    """Offer `wavefronts` what is `coming` out of the array, if it is scores.

    Parameters
    ----------
    m : Module
        Where the connections go.
    p : KelleParameters
        Dimensions.
    coming : View
        `valid` and `user` of the result that is at lane 0 in the next cycle.
    placements : list
        For each head of all sequences, a `placement_record`.
    wavefronts : stream
        As in `EvictionController`.
    """
    header = data.View(p.header_layout, coming.user)
    scores = header.operation == Operation.SCORE
    own = header.operation == Operation.OWN
    placement = Array(placements)[p.item(header.sequence, header.head)]
    wavefront = wavefronts.payload
    # The last query head of a group completes a token's score.
    compare = header.index == p.queries - 1
    # Scores follow the slots' tiles; the arriving token's go to the tile of its slot, alone.
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

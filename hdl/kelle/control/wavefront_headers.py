"""Headers for the eviction controller, derived from the scores that the array outputs.

Section 5.3 of the paper: the evictor compares scores as the array outputs them.
"""

from amaranth.hdl import Array, Module, Mux
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.eviction.eviction_parameters import wavefront_layout
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class WavefrontHeaders(Unit):
    """Announce the array's next result to the eviction controller if it is a score.

    Scores of cached tokens belong to their tile; an arriving token's own score updates only the row
    of its slot.

    **Latency** 0 cycles. **Throughput** one header per cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    coming : In
        `valid` and `user` (a header) of the result that is at lane 0 in the next cycle.
    placements : In
        As in `StepState`.
    wavefronts : Out(stream)
        As in `EvictionController`, which is always ready for them.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "coming": In(p.array.coming_layout),
                "placements": In(data.ArrayLayout(p.placement_layout, p.token_heads)),
                "wavefronts": Out(stream.Signature(wavefront_layout(p.eviction))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Translate the header of a result."""
        m = Module()
        p = self.parameters
        header = data.View(p.header_layout, self.coming.user)
        scores = header.operation == Operation.SCORE
        own = header.operation == Operation.OWN
        slot = Array(self.placements)[p.token_head(header.token, header.head)].slot
        wavefront = self.wavefronts.payload
        # The last query head of a group completes a token's score.
        compare = header.index == p.group_size - 1
        row_bits = p.eviction.evictor.row_bits
        m.d.comb += [
            self.wavefronts.valid.eq(self.coming.valid & (scores | own)),
            wavefront.head.eq(header.head),
            wavefront.tile.eq(Mux(own, slot >> row_bits, header.part)),
            wavefront.load.eq(header.index == 0),
            wavefront.compare.eq(compare),
            wavefront.last.eq(compare & scores & (header.part == p.cache_tiles - 1)),
            wavefront.fresh.eq(own),
            wavefront.alone.eq(own),
            wavefront.row.eq(slot),
        ]
        return m

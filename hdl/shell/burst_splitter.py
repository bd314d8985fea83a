"""Division of the bursts of a burst port into AXI4 bursts."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.unit import Unit


class BurstSplitter(Unit):
    """Cut each requested burst at multiples of `block_beats` beats.

    An aligned block of so many beats is within a page of 4 KB and within the longest AXI4 burst, so
    that one comparison holds both limits. The block size is a power of two: the distance to the
    end of a block needs the low address bits only.

    **Latency** 1 cycle from a request to its first burst. **Throughput** one burst per cycle, also
    across requests.

    Parameters
    ----------
    parameters : AxiMasterParameters
        Dimensions of the master.

    Members
    -------
    base : In(beat_address_bits)
        Address of word 0 in beats; sampled with a request. Sums wrap at the end of the address
        space.
    discard : In(1)
        Discard the rest of the present request, and all requests of this cycle.
    requests : In(stream)
        First `address` and `length` in words; a burst without words is discarded.
    bursts : Out(stream)
        The AXI4 bursts, see `AxiMasterParameters.burst_layout`.
    empty : Out(1)
        No request is in progress.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `AxiMasterParameters`.
    """

    def __init__(self, *, parameters: AxiMasterParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "base": In(p.beat_address_bits),
                "discard": In(1),
                "requests": In(stream.Signature(p.reads.request_layout)),
                "bursts": Out(p.bursts),
                "empty": Out(1),
            }
        )
        # Attributes, so that proofs can use them.
        self.beat = Signal(p.beat_address_bits, reset_less=True)
        self.left = Signal(range(p.most_beats + 1))

    def elaborate(self, platform: object) -> Module:
        """Convert words to beats on acceptance; then advance by one burst per transfer."""
        m = Module()
        p = self.parameters
        request, burst = self.requests.payload, self.bursts.payload
        beat, left = self.beat, self.left
        lane_bits = exact_log2(p.lanes)
        first_lane, last_lane = (Signal(lane_bits, reset_less=True) for _ in range(2))

        to_end = Signal(range(p.block_beats + 1))
        size = Signal.like(to_end)
        m.d.comb += [
            # Beats from the present one to the end of its block.
            to_end.eq(p.block_beats - beat[: exact_log2(p.block_beats)]),
            burst.final.eq(left <= to_end),
            size.eq(Mux(burst.final, left, to_end)),
            burst.beat.eq(beat),
            burst.more.eq(size - 1),
            burst.first_lane.eq(first_lane),
            burst.last_lane.eq(Mux(burst.final, last_lane, p.lanes - 1)),
            self.empty.eq(left == 0),
            self.bursts.valid.eq(~self.empty),
            # The next request is accepted with the last burst of the present one.
            self.requests.ready.eq(self.empty | (burst.final & self.bursts.ready)),
        ]
        with m.If(self.bursts.valid & self.bursts.ready):
            # Further bursts begin at a block, in the first lane.
            m.d.sync += [beat.eq(beat + size), left.eq(left - size), first_lane.eq(0)]
        with m.If(self.requests.valid & self.requests.ready):
            # The first word's address in beats, and the beats that the words touch.
            lane = request.address[:lane_bits]
            ends = lane + request.length
            beats = (ends + (p.lanes - 1)) >> lane_bits
            m.d.sync += [
                beat.eq(self.base + (request.address >> lane_bits) * p.beats),
                left.eq(Mux(request.length == 0, 0, beats * p.beats)),
                first_lane.eq(lane),
                last_lane.eq(ends - 1),
            ]
        with m.If(self.discard):
            m.d.sync += left.eq(0)
        return m

"""Issue of wavefronts of scores to the slot table and the systolic evictor.

Section 5.3. The evictor takes one score per row and cycle and cannot wait. All controls of a
wavefront are therefore determined before row 0.
"""

from amaranth.hdl import Array, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.eviction.eviction_parameters import EvictionParameters, wavefront_layout
from hdl.unit import Unit


class WavefrontIssue(Unit):
    """Take headers, look up the state of their head and tile, and start them at row 0.

    The state is that of the cycle in which a header is transferred. It remains valid, because no
    token is placed in a head from the first header of its search until the search has ended.

    **Latency** 1 cycle from a header to its start. **Throughput** one wavefront per cycle, but
    wavefronts with `compare` at least `rows` cycles apart.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    wavefronts : In(stream)
        As in `EvictionController`.
    stepping : In(1)
        The token of the step has arrived.
    enable : In(1)
        The consumer can take the score updates of a further wavefront.
    layer : In
        The current layer; changes only while no wavefront waits.
    filled, halve : In
        For each head of all layers, its slots in use, and whether the next load halves its
        importances.
    accept, accept_address : Out
        Row 0 of the slot table is read for the next wavefront.
    strobe, table_wavefront, cached_head : Out
        A wavefront at row 0 of the slot table, and its head's number among those of all layers.
    evictor_wavefronts : Out(stream)
        The same at row 0 of the evictor.
    idle : Out(1)
        No wavefront waits or is in flight.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "wavefronts": In(stream.Signature(wavefront_layout(p))),
                "stepping": In(1),
                "enable": In(1),
                "filled": In(data.ArrayLayout(bits_for(p.evictor.slots), p.cached_heads)),
                "halve": In(p.cached_heads),
                "layer": In(p.layer_bits),
                "accept": Out(1),
                "accept_address": Out(p.address_bits),
                "strobe": Out(1),
                "table_wavefront": Out(p.pass_layout),
                "cached_head": Out(p.cached_head_bits),
                "evictor_wavefronts": Out(stream.Signature(p.evictor.wavefront_layout)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Hold one header; start it when the previous one is far enough down the rows."""
        m = Module()
        p = self.parameters
        header = self.wavefronts.payload
        # Among the heads of all layers.
        head = p.cached_head(self.layer, header.head)
        down, up = self.table_wavefront, self.evictor_wavefronts.payload
        m.d.comb += self.accept_address.eq(head * p.tiles + header.tile)
        self._handshake(m)
        resident = self._resident_rows(m, head)
        # Registers, because the paths from the header extend into the evictor's rows.
        with m.If(self.accept):
            m.d.sync += [
                self.cached_head.eq(head),
                down.address.eq(self.accept_address),
                down.head.eq(header.head),
                down.resident.eq(resident),
                down.row.eq(header.row),
                down.fresh.eq(header.fresh),
                down.holds.eq(resident != 0),
                down.arrives.eq(header.fresh & (header.row == 0)),
                down.alone.eq(header.alone),
                down.compare.eq(header.compare),
                down.last.eq(header.last),
                up.load.eq(header.load),
                # An arriving token's own scores belong to no search.
                up.compare.eq(header.compare & ~header.alone),
                up.last.eq(header.last & ~header.alone),
            ]
            if p.evictor.halves:
                halve = self.halve.bit_select(head, 1)
                m.d.sync += up.halve.eq(header.load & ~header.alone & halve)
        return m

    def _handshake(self, m: Module) -> None:
        """Accept a header, which reads row 0, and start it in the next cycle or later."""
        p = self.parameters
        rows = p.evictor.rows
        wavefront, evictor = self.wavefronts.payload, self.evictor_wavefronts
        compare = self.table_wavefront.compare
        waits, starts, ready, in_step = Signal(), Signal(), Signal(), Signal()
        # One row at a time may have a score update: the next comparing wavefront keeps `rows`
        # cycles of distance from the one before.
        spacing = Signal(range(rows + 1))
        # The slot table has completed its writes two cycles after the last row.
        in_flight = Signal(range(rows + 4))
        m.d.comb += [
            # A search needs the window of its own step, so it waits for the step's token.
            in_step.eq(1 if p.evict_before else self.stepping | wavefront.alone),
            self.wavefronts.ready.eq((~waits | starts) & self.enable & in_step),
            self.accept.eq(self.wavefronts.valid & self.wavefronts.ready),
            ready.eq(waits & (~compare | (spacing == 0))),
            evictor.valid.eq(ready),
            starts.eq(ready & evictor.ready),
            self.strobe.eq(starts),
            self.idle.eq(~waits & (in_flight == 0)),
        ]
        # A header may be replaced in the cycle in which it starts.
        with m.If(self.accept):
            m.d.sync += waits.eq(1)
        with m.Elif(starts):
            m.d.sync += waits.eq(0)
        with m.If(starts & compare):
            m.d.sync += spacing.eq(rows - 1)
        with m.Elif(spacing != 0):
            m.d.sync += spacing.eq(spacing - 1)
        with m.If(starts):
            m.d.sync += in_flight.eq(rows + 3)
        with m.Elif(in_flight != 0):
            m.d.sync += in_flight.eq(in_flight - 1)

    def _resident_rows(self, m: Module, head: Value) -> Signal:
        """Return how many rows of the tile hold a token: slots fill in order and stay in use."""
        p, header = self.parameters, self.wavefronts.payload
        rows, row_bits = p.evictor.rows, p.evictor.row_bits
        count = Signal(bits_for(p.evictor.slots))
        full_tiles = count[row_bits:]
        resident = Signal(bits_for(rows))
        m.d.comb += count.eq(Array(self.filled[h] for h in range(p.cached_heads))[head])
        # Only the arriving token's slot takes part, which `fresh` and `row` select.
        with m.If(header.alone):
            m.d.comb += resident.eq(0)
        with m.Elif(header.tile < full_tiles):
            m.d.comb += resident.eq(rows)
        with m.Elif(header.tile == full_tiles):
            m.d.comb += resident.eq(count[:row_bits])
        return resident

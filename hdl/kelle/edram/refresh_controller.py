"""Kelle's two-dimensional refresh (2DRP): by bit position and by score.

Sections 4.2 and 5.1: two refresh controllers, one for the MSB banks and one for the LSB banks, each
with a counter for either group of tokens.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.edram.kv_edram import HALVES
from hdl.kelle.edram.refresh_walker import RefreshParameters, RefreshWalker
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class RefreshController(Unit):
    """Refresh every entry of the KV eDRAM within the interval of its bits and its score.

    After reset the unit marks all entries invalid, one entry per cycle; then the first tick starts.
    At a tick in which an interval expires, the `RefreshWalker` of that half sweeps over the
    entries. Its addresses have the lowest priority at the banks, until `timeout` cycles after
    the tick. From then on the sweep is urgent and must be granted every cycle. Each
    sweep therefore ends within the tick in which it started, for any traffic.

    **Bound** (proved for small dimensions): a word of an entry that was last refreshed in a group
    is refreshed again within that group's interval + `timeout` + one sweep (`sweep_cycles`).

    **Latency** the first address is valid in the cycle after the tick. **Throughput** one word per
    cycle and half.

    Parameters
    ----------
    parameters : RefreshParameters
        Number of entries, and bits of scores, ticks, intervals and counters.

    Members
    -------
    settings : In(settings)
        Intervals, as `RefreshSettings` checks them; constant while the unit operates.
    scores : In(stream)
        Changes of entries: `entry`, `score`, and `valid` if the entry holds data. Not ready while
        the unit marks all entries invalid; always ready afterwards.
    msb, lsb : Out(stream)
        Addresses to read and write back in all MSB banks, in all LSB banks.
    msb_urgent, lsb_urgent : Out(1)
        The stream must be granted in this cycle.
    counts : Out(ArrayLayout(ArrayLayout(count_bits, 2), 2))
        Words refreshed so far: `[MSB, LSB][HST, LST]`, each in 16 banks.

    Raises
    ------
    ValueError
        If `RefreshParameters` rejects a dimension.
    """

    def __init__(self, *, parameters: RefreshParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "settings": In(p.settings_layout),
                "scores": In(stream.Signature(p.score_layout)),
                "msb": Out(stream.Signature(p.address_bits)),
                "lsb": Out(stream.Signature(p.address_bits)),
                "msb_urgent": Out(1),
                "lsb_urgent": Out(1),
                "counts": Out(p.counts_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Mark all entries invalid, count ticks, and send each update to the walkers."""
        m = Module()
        p = self.parameters
        # A memory cannot be reset: one update per cycle marks each entry invalid before the first
        # tick.
        cleared = Signal()
        forgotten = Signal(p.entry_bits)
        with m.If(~cleared):
            m.d.sync += forgotten.eq(forgotten + 1)
            with m.If(forgotten == p.entries - 1):
                m.d.sync += cleared.eq(1)

        update = Signal(p.score_layout)
        update_valid = Signal()
        m.d.comb += [
            self.scores.ready.eq(cleared),
            update.eq(self.scores.payload),
            update_valid.eq(self.scores.valid | ~cleared),
        ]
        with m.If(~cleared):
            m.d.comb += [update.entry.eq(forgotten), update.valid.eq(0)]

        # One prescaler for both halves, so that their intervals share the tick.
        elapsed = Signal(p.tick_bits)
        tick = Signal()
        m.d.comb += tick.eq(cleared & (elapsed + 1 >= self.settings.tick_cycles))
        with m.If(tick):
            m.d.sync += elapsed.eq(0)
        with m.Elif(cleared):
            m.d.sync += elapsed.eq(elapsed + 1)

        # The walkers each store the scores, because each reads them in its own order.
        for number, half in enumerate(HALVES):
            m.submodules[half] = walker = RefreshWalker(parameters=p)
            offer = getattr(self, half)
            m.d.comb += [
                walker.update.eq(update),
                walker.update_valid.eq(update_valid),
                walker.clear.eq(~cleared),
                walker.tick.eq(tick),
                walker.elapsed.eq(elapsed),
                walker.timeout.eq(self.settings.timeout),
                walker.intervals.eq(self.settings[half]),
                getattr(self, f"{half}_urgent").eq(walker.urgent),
                self.counts[number].eq(walker.counts),
            ]
            connect_streams(m, walker.refresh, offer)
        return m

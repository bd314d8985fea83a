"""The KV eDRAM with its refresh controllers, which retain its contents under any traffic.

Section 5.1 of the paper: the refresh controllers are part of the eDRAM controller, and use the
cycles without reads and writes.
"""

from dataclasses import field
from typing import Annotated

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Member, Out

from hdl.kelle.edram.kv_edram import HALVES, SIDES, KvEdram, KvEdramParameters
from hdl.kelle.edram.refresh_controller import RefreshController
from hdl.kelle.edram.refresh_walker import RefreshParameters
from hdl.parameters import As, Parameters, parameter_object
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@parameter_object
class RefreshedEdramParameters(Parameters):
    """Dimensions of a refreshed KV eDRAM; entries are numbered by the eDRAM's address map.

    Parameters
    ----------
    edram : KvEdramParameters
        Banks and address map.
    score_bits, tick_bits, interval_bits : int
        As in `RefreshParameters`.

    Raises
    ------
    ValueError
        If a rule of the eDRAM or of the refresh controllers is broken.
    """

    edram: KvEdramParameters = field(default_factory=KvEdramParameters)
    score_bits: Annotated[int, As(RefreshParameters)] = 4
    tick_bits: Annotated[int, As(RefreshParameters)] = 20
    interval_bits: Annotated[int, As(RefreshParameters)] = 5

    def __post_init__(self) -> None:
        """Check the rules of the refresh controllers; the eDRAM has checked its own."""
        super().__post_init__()
        _ = self.refresh

    @property
    def refresh(self) -> RefreshParameters:
        """Dimensions of the refresh controllers."""
        return RefreshParameters(
            entries=self.edram.entries,
            words=self.edram.entry_words,
            score_bits=self.score_bits,
            tick_bits=self.tick_bits,
            interval_bits=self.interval_bits,
        )


class RefreshedEdram(Unit):
    """Read and write rows of keys and values, and refresh every entry within its interval.

    **Latency** and **Throughput** of the rows as in `KvEdram`: reads and writes wait only while a
    refresh is urgent, writes also for a write-back. The bound on a word's age is that of
    `RefreshController`. It holds from the write on if `scores` reports the entry as valid in the
    same tick.

    Parameters
    ----------
    parameters : RefreshedEdramParameters
        Dimensions of eDRAM and refresh controllers.

    Members
    -------
    settings : In(settings)
        Intervals, as `RefreshSettings` checks them.
    scores : In(stream)
        Changes of entries: `entry`, `score`, and `valid` if the entry holds data.
    keys_read, values_read, keys, values, keys_valid, values_valid, keys_write, values_write
        As in `KvEdram`.
    counts : Out
        As in `RefreshController`.

    Raises
    ------
    ValueError
        If `RefreshedEdramParameters` rejects a dimension.
    """

    def __init__(self, *, parameters: RefreshedEdramParameters) -> None:
        p = self.parameters = parameters
        ports: dict[str, Member] = {
            "settings": In(p.refresh.settings_layout),
            "scores": In(stream.Signature(p.refresh.score_layout)),
            "counts": Out(p.refresh.counts_layout),
        }
        for side in SIDES:
            ports |= {
                f"{side}_read": In(stream.Signature(p.edram.address_bits)),
                side: Out(p.edram.row_layout),
                f"{side}_valid": Out(1),
                f"{side}_write": In(stream.Signature(p.edram.write_layout)),
            }
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        """Connect the eDRAM and its refresh controllers."""
        m = Module()
        p = self.parameters
        m.submodules.edram = edram = KvEdram(parameters=p.edram)
        m.submodules.refresh = refresh = RefreshController(parameters=p.refresh)
        # Only the refresh controllers use the scores; they send addresses to the eDRAM.
        connect_streams(m, self.scores, refresh.scores)
        m.d.comb += [
            refresh.settings.eq(self.settings),
            self.counts.eq(refresh.counts),
        ]
        # Reads and writes pass directly: the eDRAM arbitrates them with the refreshes.
        for side in SIDES:
            connect_streams(m, getattr(self, f"{side}_read"), getattr(edram, f"{side}_read"))
            connect_streams(m, getattr(self, f"{side}_write"), getattr(edram, f"{side}_write"))
            m.d.comb += [
                getattr(self, side).eq(getattr(edram, side)),
                getattr(self, f"{side}_valid").eq(getattr(edram, f"{side}_valid")),
            ]
        # A sweep that has waited too long is urgent, and is granted immediately.
        for half in HALVES:
            taken, offered = getattr(edram, half), getattr(refresh, half)
            m.d.comb += [
                taken.payload.eq(offered.payload),
                taken.valid.eq(offered.valid),
                offered.ready.eq(taken.ready),
                getattr(edram, f"{half}_urgent").eq(getattr(refresh, f"{half}_urgent")),
            ]
        return m

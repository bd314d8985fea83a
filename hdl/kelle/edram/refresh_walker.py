"""One of Kelle's two refresh controllers, which sweeps over the entries of the MSB or LSB banks.

Sections 4.2 and 5.1. Entries are divided into a high-score and a low-score token group (HST, LST),
each with its own interval; when an interval expires, the entries of that group are read and
written back.
"""

from typing import Annotated

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.kelle.edram.kv_edram import HALVES
from hdl.memory.memory import Memory
from hdl.parameters import Parameters, Range, parameter_object, require, require_range
from hdl.unit import Unit

GROUPS = ("hst", "lst")
"""High-score tokens and low-score tokens."""


@parameter_object
class RefreshParameters(Parameters):
    """Dimensions of the refresh controllers; they also drive the golden model and the testbench.

    Parameters
    ----------
    entries : int
        Entries of the KV eDRAM; each entry has one score.
    words : int
        Consecutive words of a bank per entry.
    score_bits : int
        Bits of a coarse score; 4 in the paper.
    tick_bits : int
        Bits of the prescaler; enough for a sweep.
    interval_bits : int
        Bits of an interval in ticks.
    count_bits : int
        Bits of the counters of refreshed words, which wrap around.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    entries: Annotated[int, Range(2, 65536, "entries")] = 8192
    words: Annotated[int, Range(1, 8, "words")] = 2
    score_bits: Annotated[int, Range(1, 8, "bits")] = 4
    tick_bits: Annotated[int, Range(4, 32, "bits")] = 20
    interval_bits: Annotated[int, Range(1, 16, "bits")] = 5
    count_bits: Annotated[int, Range(4, 48, "bits")] = 32

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        rule = f"a tick must hold a sweep, {self.sweep_cycles} cycles, in tick_bits"
        require(self.sweep_cycles < 1 << self.tick_bits, rule, self.tick_bits)

    @property
    def entry_bits(self) -> int:
        """Bits of an entry number."""
        return ceil_log2(self.entries)

    @property
    def address_bits(self) -> int:
        """Bits of a word address."""
        return ceil_log2(self.entries * self.words)

    @property
    def sweep_cycles(self) -> int:
        """Cycles of a sweep that refreshes all entries and never waits, including its start."""
        return self.entries * self.words + 1

    @property
    def score_layout(self) -> data.StructLayout:
        """Score update: the entry, its score, and whether it holds data."""
        return data.StructLayout({"entry": self.entry_bits, "score": self.score_bits, "valid": 1})

    @property
    def known_layout(self) -> data.StructLayout:
        """Record of an entry in the register file."""
        return data.StructLayout({"score": self.score_bits, "valid": 1})

    @property
    def group_counts(self) -> data.ArrayLayout:
        """Words refreshed in one half: [HST, LST]."""
        return data.ArrayLayout(self.count_bits, len(GROUPS))

    @property
    def counts_layout(self) -> data.ArrayLayout:
        """Words refreshed: `[MSB, LSB][HST, LST]`."""
        return data.ArrayLayout(self.group_counts, len(HALVES))

    @property
    def interval_layout(self) -> data.StructLayout:
        """The intervals of the two groups, in ticks."""
        return data.StructLayout({"hst": self.interval_bits, "lst": self.interval_bits})

    @property
    def settings_layout(self) -> data.StructLayout:
        """All values that are programmed at run time; see `RefreshSettings`."""
        return data.StructLayout(
            {
                "tick_cycles": self.tick_bits,
                "timeout": self.tick_bits,
                "msb": self.interval_layout,
                "lsb": self.interval_layout,
            }
        )


@parameter_object
class RefreshSettings:
    """Intervals, programmed at run time; the defaults are the paper's at 1 GHz.

    Parameters
    ----------
    parameters : RefreshParameters
        Dimensions of the controllers that receive the settings.
    tick_cycles : int
        Cycles of a tick, the unit of all intervals; 360000 cycles are 0.36 ms.
    timeout : int
        Timeout in cycles: a sweep waits for idle banks until this many cycles after the tick.
    msb_hst, msb_lst, lsb_hst, lsb_lst : int
        Intervals of the groups in ticks.

    Raises
    ------
    ValueError
        If an interval is out of range, or a tick is too short for a sweep.
    """

    parameters: RefreshParameters
    tick_cycles: int = 360_000
    timeout: int = 300_000
    msb_hst: int = 1
    msb_lst: int = 4
    lsb_hst: int = 15
    lsb_lst: int = 20

    def __post_init__(self) -> None:
        """Check every rule."""
        p = self.parameters
        require_range("tick_cycles", self.tick_cycles, 1, (1 << p.tick_bits) - 1)
        require_range("timeout", self.timeout, 0, (1 << p.tick_bits) - 1)
        for name in ("msb_hst", "msb_lst", "lsb_hst", "lsb_lst"):
            require_range(name, getattr(self, name), 1, (1 << p.interval_bits) - 1)
        for half in ("msb", "lsb"):
            hst, lst = getattr(self, f"{half}_hst"), getattr(self, f"{half}_lst")
            require(hst <= lst, f"{half}_hst must be at most {half}_lst = {lst}", hst)
        least = self.timeout + p.sweep_cycles
        require(
            self.tick_cycles >= least,
            f"tick_cycles must be at least timeout + sweep = {self.timeout} + "
            f"{p.sweep_cycles} = {least}",
            self.tick_cycles,
        )

    @property
    def payload(self) -> dict[str, object]:
        """The settings as a value of `RefreshParameters.settings_layout`."""
        return {
            "tick_cycles": self.tick_cycles,
            "timeout": self.timeout,
            "msb": {"hst": self.msb_hst, "lst": self.msb_lst},
            "lsb": {"hst": self.lsb_hst, "lst": self.lsb_lst},
        }


class RefreshWalker(Unit):
    """Sweep over all entries when a group's interval expires, and refresh that group's words.

    A sweep refreshes a valid entry if the interval of its group has expired, and also if the entry
    has changed its group since its last refresh. The latter needs one bit per entry, the group in
    which it was last refreshed, and makes starvation impossible: an entry that was refreshed as LST
    is refreshed in the next LST sweep, and one that was refreshed as HST in the next HST sweep,
    however its score changes in between.

    The high-score group consists of the entries whose score is in the upper half of its range. The
    eviction controller centres the scores of each head at the head's median.

    **Latency** the first address is valid in the cycle after the tick. **Throughput** one entry per
    cycle that is not due, one word per cycle that is due and granted.

    Parameters
    ----------
    parameters : RefreshParameters
        Number of entries, and bits of scores, ticks, intervals and counters.

    Members
    -------
    update : In(score)
        New score and validity of an entry, while `update_valid`.
    clear : In(1)
        Valid with `update_valid`: reset the recorded group of the entry as well.
    tick : In(1)
        One pulse per tick.
    elapsed : In(tick_bits)
        Cycles since the tick.
    timeout : In(tick_bits)
        Timeout: value of `elapsed` from which on a sweep is urgent.
    intervals : In(interval)
        Ticks between sweeps of each group.
    refresh : Out(stream)
        Addresses of words to read and write back.
    urgent : Out(1)
        The timeout has passed: the stream must be granted in this cycle.
    counts : Out(ArrayLayout(count_bits, 2))
        Words refreshed so far, of HST and LST entries.
    """

    def __init__(self, *, parameters: RefreshParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "update": In(p.score_layout),
                "update_valid": In(1),
                "clear": In(1),
                "tick": In(1),
                "elapsed": In(p.tick_bits),
                "timeout": In(p.tick_bits),
                "intervals": In(p.interval_layout),
                "refresh": Out(stream.Signature(p.address_bits)),
                "urgent": Out(1),
                "counts": Out(p.group_counts),
            }
        )
        self.walking = Signal()
        self.entry = Signal(p.entry_bits)
        self.word = Signal(range(max(p.words, 2)))
        self.ticks = {name: Signal(p.interval_bits, name=f"{name}_ticks") for name in GROUPS}
        self.sweeps = {name: Signal(name=f"sweeps_{name}") for name in GROUPS}
        self.due = Signal()
        self.hst = Signal()
        self.advance = Signal()

    def elaborate(self, platform: object) -> Module:
        """Count ticks, read one entry ahead, and refresh the entries that are due."""
        m = Module()
        p = self.parameters
        start = Signal()
        expired = self._count_ticks(m)
        m.d.comb += start.eq(expired["hst"] | expired["lst"])

        width = Shape.cast(p.known_layout).width
        m.submodules.known = known = Memory(depth=p.entries, width=width)
        m.submodules.groups = groups = Memory(depth=p.entries, width=1)
        # Records are read one entry ahead, so that each is valid when the sweep reaches the entry.
        last = self.entry == p.entries - 1
        next_entry = Signal(p.entry_bits)
        m.d.comb += [
            next_entry.eq(Mux(start | last, 0, self.entry + 1)),
            known.read_enable.eq(start | self.advance),
            known.read_address.eq(next_entry),
            known.write_enable.eq(self.update_valid),
            known.write_address.eq(self.update.entry),
            known.write_data.eq(Cat(self.update.score, self.update.valid)),
            groups.read_enable.eq(start | self.advance),
            groups.read_address.eq(next_entry),
        ]
        record = data.View(p.known_layout, known.read_data)
        was_hst = groups.read_data

        last_word = self.word == p.words - 1
        taken = self.refresh.valid & self.refresh.ready
        in_sweep = Mux(self.hst, self.sweeps["hst"], self.sweeps["lst"])
        m.d.comb += [
            # The record is held while the entry waits, and with it the offered address.
            self.hst.eq(record.score[-1]),
            self.due.eq(self.walking & record.valid & (in_sweep | (self.hst != was_hst))),
            self.advance.eq(self.walking & (~self.due | (taken & last_word))),
            self.refresh.valid.eq(self.due),
            self.refresh.payload.eq(self.entry * p.words + self.word),
            self.urgent.eq(self.walking & (self.elapsed >= self.timeout)),
        ]
        # A sweep ends within its tick, so that a start never interrupts a sweep.
        with m.If(start):
            m.d.sync += [
                self.walking.eq(1),
                self.entry.eq(0),
                *(self.sweeps[name].eq(expired[name]) for name in GROUPS),
            ]
        with m.Elif(self.advance):
            m.d.sync += self.entry.eq(next_entry)
            with m.If(last):
                m.d.sync += self.walking.eq(0)
        # The words of an entry are refreshed back to back, by one decision.
        with m.If(taken):
            m.d.sync += [
                self.word.eq(Mux(last_word, 0, self.word + 1)),
                self.counts[0].eq(self.counts[0] + self.hst),
                self.counts[1].eq(self.counts[1] + ~self.hst),
            ]
        self._remember_group(m, groups, taken & last_word)
        return m

    def _count_ticks(self, m: Module) -> dict[str, Signal]:
        """Return for each group whether its interval expires with this tick."""
        expired = {name: Signal(name=f"{name}_expired") for name in GROUPS}
        for name in GROUPS:
            ticks = self.ticks[name]
            m.d.comb += expired[name].eq(self.tick & (ticks + 1 >= self.intervals[name]))
            with m.If(self.tick):
                m.d.sync += ticks.eq(Mux(expired[name], 0, ticks + 1))
        return expired

    def _remember_group(self, m: Module, groups: Memory, refreshed: Value) -> None:
        """Record the group in which an entry is refreshed, with its last word."""
        m.d.comb += [
            groups.write_address.eq(self.entry),
            groups.write_data.eq(self.hst),
            groups.write_enable.eq(refreshed),
        ]
        # After a reset, the recorded group of every entry is LST.
        with m.If(self.clear):
            m.d.comb += [
                groups.write_address.eq(self.update.entry),
                groups.write_data.eq(0),
                groups.write_enable.eq(self.update_valid),
            ]

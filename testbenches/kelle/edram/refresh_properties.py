"""What is proved of a refresh walker: no valid entry waits longer than its bound, ever.

Traffic, scores and settings are free; only an urgent request must be granted. The
invariants carry the proof: age is bounded by the time since the last expiry of the group in which
the entry was last refreshed, unless the sweep for that expiry has not reached the entry yet.
"""

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data

from hdl.kelle.edram.refresh_walker import RefreshParameters, RefreshWalker
from testbenches.formal import Assert, Assume, MemoryRegisters

AGE_BITS = 12


class RefreshBound(Elaboratable):
    """A walker, the clock of ticks, one watched entry, and the assertions.

    Parameters
    ----------
    parameters : RefreshParameters
        Dimensions, tiny.
    platform : MemoryRegisters
        Gives access to what the walker's memories hold.
    invariants : bool
        Whether to assert what induction needs, besides the bound itself.
    """

    def __init__(
        self, parameters: RefreshParameters, platform: MemoryRegisters, *, invariants: bool = True
    ) -> None:
        self.parameters = p = parameters
        self.platform = platform
        self.invariants = invariants
        self.walker = RefreshWalker(parameters=p)
        self.update = Signal(p.score_layout)
        self.update_valid = Signal()
        self.ready = Signal()
        self.choice = Signal(p.settings_layout)
        self.chosen_entry = Signal(p.entry_bits)

    @property
    def inputs(self) -> list[Value]:
        """Everything that is free."""
        signals = (
            self.update,
            self.update_valid,
            self.ready,
            self.choice,
        )
        return [Value.cast(signal) for signal in (*signals, self.chosen_entry)]

    def elaborate(self, platform: object) -> Module:
        """State the environment, the watched entry's age, and the claims."""
        m = Module()
        p = self.parameters
        m.submodules.walker = walker = self.walker

        # Settings and the watched entry are chosen once and stay.
        begun = Signal()
        settings = Signal(p.settings_layout)
        watched = Signal(p.entry_bits)
        m.d.sync += begun.eq(1)
        with m.If(~begun):
            m.d.sync += [settings.eq(self.choice), watched.eq(self.chosen_entry)]
        cycles, timeout = settings.tick_cycles, settings.timeout
        hst, lst = settings.msb.hst, settings.msb.lst
        work = p.entries * p.words
        m.d.comb += Assume(watched < p.entries)
        with m.If(begun):
            m.d.comb += Assume((cycles >= timeout + p.sweep_cycles) & (hst >= 1) & (lst >= hst))

        elapsed = Signal(p.tick_bits)
        tick = Signal()
        m.d.comb += tick.eq(begun & (elapsed == cycles - 1))
        m.d.sync += elapsed.eq(Mux(tick | ~begun, 0, elapsed + 1))
        m.d.comb += [
            walker.update.eq(self.update),
            walker.update_valid.eq(self.update_valid & begun),
            walker.tick.eq(tick),
            walker.elapsed.eq(elapsed),
            walker.timeout.eq(timeout),
            walker.intervals.eq(settings.msb),
            walker.refresh.ready.eq(self.ready),
            Assume(self.ready | ~walker.urgent),
            Assume(self.update.entry < p.entries),
        ]

        valid, age = Signal(), Signal(AGE_BITS)
        about = walker.update_valid & (walker.update.entry == watched)
        taken = walker.refresh.valid & walker.refresh.ready
        done = taken & (walker.refresh.payload == watched * p.words + (p.words - 1))
        with m.If(about):
            m.d.sync += valid.eq(walker.update.valid)
        # News of a score is no write: only a refresh, or coming into use, makes the entry young.
        leaves = about & ~walker.update.valid
        m.d.sync += age.eq(Mux(done | leaves | ~valid, 0, age + 1))

        # The claim: age is what has passed since the entry was last refreshed as a whole.
        group = Signal()
        rows, _output = self.platform.memory(depth=p.entries, width=1)
        for entry, row in enumerate(rows):
            with m.If(watched == entry):
                m.d.comb += group.eq(row)
        bound = Mux(group, hst, lst) * cycles + timeout + work
        m.d.comb += Assert(~begun | ~valid | (age < bound))

        waiting = Signal()
        offered = Signal(p.address_bits)
        m.d.sync += [
            waiting.eq(walker.refresh.valid & ~walker.refresh.ready),
            offered.eq(walker.refresh.payload),
        ]
        m.d.comb += Assert(~waiting | (walker.refresh.valid & (walker.refresh.payload == offered)))
        if self.invariants:
            self._assert_invariants(m, begun, settings, elapsed, watched, valid, group, age)
        return m

    def _assert_invariants(
        self,
        m: Module,
        begun: Signal,
        settings: Any,
        elapsed: Signal,
        watched: Signal,
        valid: Signal,
        group: Signal,
        age: Signal,
    ) -> None:
        p, walker = self.parameters, self.walker
        cycles = settings.tick_cycles
        ticks, sweeps = walker.ticks, walker.sweeps
        known = Signal(p.known_layout)
        _rows, shown_group = self.platform.memory(depth=p.entries, width=1)
        rows, record_bits = self.platform.memory(depth=p.entries, width=p.score_bits + 1)
        for entry, row in enumerate(rows):
            with m.If(watched == entry):
                m.d.comb += known.eq(row)
        record = data.View(p.known_layout, record_bits)
        here = walker.walking & (walker.entry == watched)
        ahead = walker.walking & (walker.entry <= watched)
        position = walker.entry * p.words + walker.word
        claims = [
            (elapsed < cycles) & (watched < p.entries),
            (ticks["hst"] < settings.msb.hst) & (ticks["lst"] < settings.msb.lst),
            walker.entry < p.entries,
            walker.word < p.words,
            walker.walking | (walker.word == 0),
            (walker.word == 0) | walker.due,
            ~walker.walking | (position + settings.timeout >= elapsed),
            ~walker.walking | (sweeps["hst"] == (ticks["hst"] == 0)),
            ~walker.walking | (sweeps["lst"] == (ticks["lst"] == 0)),
            known.valid == valid,
            valid | (age == 0),
            ~here | (shown_group == group),
            ~here | record.valid | (age <= elapsed),
        ]
        for name, refreshed_in in (("hst", group), ("lst", ~group)):
            pending = ahead & sweeps[name]
            whole = Mux(pending, settings.msb[name], ticks[name])
            claims.append(~valid | ~refreshed_in | (age <= elapsed + whole * cycles))
        for claim in claims:
            m.d.comb += Assert(~begun | claim)
        # Before the settings are chosen, nothing has happened.
        quiet = ~walker.walking & ~valid & (ticks["hst"] == 0) & (ticks["lst"] == 0)
        m.d.comb += Assert(begun | (quiet & (age == 0) & (elapsed == 0) & ~known.valid))

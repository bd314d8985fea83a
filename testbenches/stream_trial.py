"""Trials of a unit's streams in Amaranth's simulator: random pauses, resets, the streams' rules.

For parts that have no testbench of their own; their model is what they are expected to give. They
are written as for an FPGA: a product of gates, which the arithmetic's own tests hold equal to that,
takes this simulator a hundred times as long.
"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from amaranth.hdl import ClockDomain, Module, Value
from amaranth.sim import Simulator

from hdl.target import Target, writing_for
from testbenches.streams import PAUSES

Payloads = Mapping[str, Sequence[int]]
"""Packed payloads by the stream's name, such as ``items`` or ``sources.0``."""

Cycle = Callable[[Any, Mapping[str, list[int]]], None]
"""What else a cycle sets, once all streams are driven, given what has been received."""


def check_streams(
    unit: Any,
    sources: Payloads,
    expected: Payloads,
    *,
    seeds: Sequence[int] = range(6),
    cycle: Cycle | None = None,
) -> None:
    """Require what a unit gives, whatever the pauses are, and after a reset in mid-work.

    The first seed has no pauses; all others draw a pattern for each stream. Odd ones stop the work
    at some cycle by a reset, and begin it again.

    Raises
    ------
    AssertionError
        At a difference, a broken rule of a stream, or a deadlock; with the stream and the seed.
    """
    counts = {name: len(payloads) for name, payloads in expected.items()}
    for seed in seeds:
        rng = random.Random(seed)
        names = [*sources, *expected]
        pauses = {name: rng.choice(list(PAUSES)) if seed else "none" for name in names}
        trial = _Trial(unit, sources, counts, seed=seed, pauses=pauses, cycle=cycle)
        trial.run(reset_after=rng.randint(1, 60) if seed % 2 else 0)
        for name, payloads in expected.items():
            given = trial.received[name]
            assert given == list(payloads), f"seed {seed}: stream {name} gave {given}"


def run_streams(
    unit: Any,
    sources: Payloads,
    sinks: Mapping[str, int],
    *,
    seed: int,
    pauses: str = "random",
    cycle: Callable[[Any], None] | None = None,
    revocable: Collection[str] = (),
) -> dict[str, list[int]]:
    """Offer all payloads and take as many as are expected.

    Parameters
    ----------
    unit : Any
        The unit.
    sources, sinks : Mapping
        Packed payloads of input streams, and how many an output stream must give; by name.
    seed : int
        Of the pauses.
    pauses : str
        The pattern of all streams, as in `PAUSES`.
    cycle : Callable, optional
        Called in each cycle with the simulator's context.
    revocable : Collection[str]
        Output streams whose offers may be taken back, as those of `fork_handshake` are.

    Returns
    -------
    dict[str, list[int]]
        What each sink gave, with whatever came in 20 cycles more.
    """
    patterns = dict.fromkeys([*sources, *sinks], pauses)
    hook = (lambda ctx, _received: cycle(ctx)) if cycle else None
    trial = _Trial(
        unit, sources, sinks, seed=seed, pauses=patterns, cycle=hook, revocable=revocable
    )
    trial.run()
    return trial.received


class _Trial:
    """One run of a unit; `received` is what it has given since the last reset."""

    PATIENCE = 20_000
    AFTER = 20

    def __init__(
        self,
        unit: Any,
        sources: Payloads,
        counts: Mapping[str, int],
        *,
        seed: int,
        pauses: Mapping[str, str],
        cycle: Cycle | None,
        revocable: Collection[str] = (),
    ) -> None:
        self.unit, self.sources, self.counts = unit, sources, counts
        self.seed, self.cycle, self.revocable = seed, cycle, revocable
        self.streams = {name: _stream(unit, name) for name in [*sources, *counts]}
        self.pauses: dict[str, Iterator[bool]] = {
            name: PAUSES[pattern](random.Random(f"{seed} {name}"))
            for name, pattern in pauses.items()
        }
        self._begin()

    def _begin(self) -> None:
        """Forget all that was done."""
        self.left = {name: list(payloads) for name, payloads in self.sources.items()}
        self.received: dict[str, list[int]] = {name: [] for name in self.counts}
        self.offered = dict.fromkeys(self.sources, False)
        # What a sink offered and nobody took.
        self.open: dict[str, int | None] = dict.fromkeys(self.counts)

    def run(self, *, reset_after: int = 0) -> None:
        """Do the work; if `reset_after`, that many cycles of it first, and a reset."""
        # The unit may have no register of its own.
        top: Any = Module()
        sync: Any = ClockDomain("sync")
        top.domains.sync = sync
        top.submodules.unit = self.unit

        async def bench(ctx: Any) -> None:
            for _ in range(reset_after):
                await self._pass_cycle(ctx)
            if reset_after:
                self._begin()
                ctx.set(sync.rst, 1)
                await ctx.tick()
                ctx.set(sync.rst, 0)
            more = self.AFTER
            for _ in range(self.PATIENCE):
                await self._pass_cycle(ctx)
                more -= self._done()
                if not more:
                    return
            raise AssertionError(
                f"seed {self.seed}: stuck: {self.left} are left, {self.received} were given"
            )

        with writing_for(Target.FPGA):
            simulator = Simulator(top)
        simulator.add_clock(1e-9)
        simulator.add_testbench(bench)
        simulator.run()

    def _done(self) -> bool:
        enough = all(len(self.received[name]) >= count for name, count in self.counts.items())
        return enough and not any(self.left.values())

    async def _pass_cycle(self, ctx: Any) -> None:
        for name, payloads in self.left.items():
            stream = self.streams[name]
            if payloads and not self.offered[name]:
                self.offered[name] = not next(self.pauses[name])
            ctx.set(stream.valid, self.offered[name])
            if self.offered[name]:
                ctx.set(Value.cast(stream.payload), payloads[0])
        for name in self.received:
            ctx.set(self.streams[name].ready, not next(self.pauses[name]))
        if self.cycle is not None:
            self.cycle(ctx, self.received)
        for name, payloads in self.left.items():
            if self.offered[name] and ctx.get(self.streams[name].ready):
                payloads.pop(0)
                self.offered[name] = False
        for name in self.received:
            self._receive(ctx, name)
        await ctx.tick()

    def _receive(self, ctx: Any, name: str) -> None:
        """Take what is handed over; an offer stands, unchanged, until it is taken."""
        stream = self.streams[name]
        valid, payload = ctx.get(stream.valid), ctx.get(Value.cast(stream.payload))
        if (before := self.open[name]) is not None:
            where = f"seed {self.seed}: stream {name}"
            assert valid, f"{where} took back an offer"
            assert payload == before, f"{where} changed an offer"
        taken = valid and ctx.get(stream.ready)
        if taken:
            self.received[name].append(payload)
        stands = valid and not taken and name not in self.revocable
        self.open[name] = payload if stands else None


def _stream(unit: Any, name: str) -> Any:
    """Return a stream by its name, or by the name of its array and its number in it."""
    attribute, *number = name.split(".")
    streams = getattr(unit, attribute)
    return streams[int(number[0])] if number else streams

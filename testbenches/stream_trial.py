"""Trials of a unit's streams in Amaranth's simulator: random pauses, resets, stream rules.

For parts without a testbench of their own; the caller computes the expected output. Units are
elaborated for an FPGA: Amaranth's simulator is a hundred times slower for a gate-level product,
whose equivalence the tests of the arithmetic cover.
"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from amaranth.hdl import ClockDomain, Module, Value
from amaranth.sim import Simulator

from hdl.target import Target, writing_for
from testbenches.streams import PAUSES

Payloads = Mapping[str, Sequence[int]]
"""Packed payloads by name of the stream, such as ``items`` or ``sources.0``."""

Cycle = Callable[[Any, Mapping[str, list[int]]], None]
"""Hook that sets other inputs in each cycle, given the items received so far."""


def check_streams(
    unit: Any,
    sources: Payloads,
    expected: Payloads,
    *,
    seeds: Sequence[int] = range(6),
    cycle: Cycle | None = None,
) -> None:
    """Require the expected output for any pauses, and after a reset during operation.

    The first seed has no pauses; all others select a random pattern for each stream. Odd seeds
    reset the unit at a random cycle and repeat the work.

    Raises
    ------
    AssertionError
        At a difference, a violated stream rule, or a deadlock; the message contains stream and
        seed.
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
            assert given == list(payloads), f"seed {seed}: stream {name} returned {given}"


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
    """Send all payloads and receive the expected number.

    Parameters
    ----------
    unit : Any
        The unit under test.
    sources, sinks : Mapping
        Packed payloads of input streams, and expected number of items of output streams, by name.
    seed : int
        Seed of the pauses.
    pauses : str
        Pattern of all streams, as in `PAUSES`.
    cycle : Callable, optional
        Called in each cycle with the simulator's context.
    revocable : Collection[str]
        Output streams that may deassert `valid` before a transfer, as those of `fork_handshake`.

    Returns
    -------
    dict[str, list[int]]
        Items of each sink, including any in the 20 cycles after the last expected one.
    """
    patterns = dict.fromkeys([*sources, *sinks], pauses)
    hook = (lambda ctx, _received: cycle(ctx)) if cycle else None
    trial = _Trial(
        unit, sources, sinks, seed=seed, pauses=patterns, cycle=hook, revocable=revocable
    )
    trial.run()
    return trial.received


class _Trial:
    """One run of a unit; `received` contains the items since the last reset."""

    TIMEOUT = 20_000
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
        self.left = {name: list(payloads) for name, payloads in self.sources.items()}
        self.received: dict[str, list[int]] = {name: [] for name in self.counts}
        self.offered = dict.fromkeys(self.sources, False)
        # Offers of sinks that are not yet transferred.
        self.open: dict[str, int | None] = dict.fromkeys(self.counts)
        self._begin()

    def _begin(self) -> None:
        """Discard all progress."""
        self.left = {name: list(payloads) for name, payloads in self.sources.items()}
        self.received = {name: [] for name in self.counts}
        self.offered = dict.fromkeys(self.sources, False)
        self.open = dict.fromkeys(self.counts)

    def run(self, *, reset_after: int = 0) -> None:
        """Run; with `reset_after`, run that many cycles first, then reset."""
        # The unit may have no register, so the clock domain is added here.
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
            for _ in range(self.TIMEOUT):
                await self._pass_cycle(ctx)
                more -= self._done()
                if not more:
                    return
            raise AssertionError(
                f"seed {self.seed}: stuck: {self.left} not sent, {self.received} received"
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
        """Record a transfer; check that an offer is unchanged until its transfer."""
        stream = self.streams[name]
        valid, payload = ctx.get(stream.valid), ctx.get(Value.cast(stream.payload))
        if (before := self.open[name]) is not None:
            where = f"seed {self.seed}: stream {name}"
            assert valid, f"{where} deasserted valid before the transfer"
            assert payload == before, f"{where} changed the payload before the transfer"
        taken = valid and ctx.get(stream.ready)
        if taken:
            self.received[name].append(payload)
        held = valid and not taken and name not in self.revocable
        self.open[name] = payload if held else None


def _stream(unit: Any, name: str) -> Any:
    """Return a stream by its name, or by the name of its array and its index in it."""
    attribute, *number = name.split(".")
    streams = getattr(unit, attribute)
    return streams[int(number[0])] if number else streams

"""Testbench of the accelerator: decode steps of a SmolLM2 layer, from hidden states to outputs."""

from typing import Any

import cocotb
import numpy as np

from golden.kelle.attention_layer import real_layer
from golden.kelle.edram.refresh_controller import RefreshModel
from golden.kelle.eviction.eviction_controller import KEPT
from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import KelleModel, Step
from golden.llm import open_trace
from hdl.kelle.edram.refresh_walker import RefreshSettings
from hdl.kelle.parameters import KelleParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import catalog_parameters
from testbenches.kelle.accelerator import Accelerator, step_bound
from testbenches.streams import four_states

LAYER = 14
TOKENS = 640
"""Length of the text."""


def prepare(p: KelleParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=(LAYER,))


def intervals(p: KelleParameters, tick: int, patience: int = 0) -> RefreshSettings:
    """Return the paper's intervals, as far as they can be set, in ticks of some cycles."""
    longest = (1 << p.interval_bits) - 1
    msb_lst, lsb_hst, lsb_lst = (min(interval, longest) for interval in (4, 15, 20))
    return RefreshSettings(
        parameters=p.memory.refresh,
        tick_cycles=tick,
        patience=patience,
        msb_lst=msb_lst,
        lsb_hst=lsb_hst,
        lsb_lst=lsb_lst,
    )


def step_tick(p: KelleParameters) -> int:
    """Return cycles in which a sweep, a step, and the search for the threshold have room."""
    return p.memory.refresh.walk_cycles + step_bound(p) * 9 // 8 + 400


def longest(p: KelleParameters) -> RefreshSettings:
    """Return ticks that no short test reaches."""
    return intervals(p, (1 << p.tick_bits) - 1)


def small(run: Run) -> bool:
    """Return whether whole texts are decoded in seconds."""
    return run.parameters.slots <= 16


def step_fits_a_tick(run: Run) -> bool:
    """Return whether a tick can be as long as a step."""
    return step_tick(run.parameters) < 1 << run.parameters.tick_bits


def quick(run: Run) -> bool:
    """Return whether many cycles are, too."""
    return small(run) and not run.four_states


class Decode:
    """The accelerator beside its model."""

    def __init__(self, dut: Any, salt: str, pattern: str = "none") -> None:
        self.p: KelleParameters = catalog_parameters()
        trace = open_trace(text="prose", tokens=TOKENS, layers=(LAYER,))
        self.layer = real_layer(trace, LAYER, self.p)
        self.accelerator = Accelerator(dut, salt, self.p, self.layer, pattern)
        self.bench = self.accelerator.bench

    @property
    def full(self) -> int:
        """A text that is longer than the cache."""
        return self.p.slots + self.p.slots // 8

    async def start(
        self, settings: RefreshSettings, prefilled: int = 0, select: bool = True
    ) -> None:
        """Reset, load scales, and fill the cache; select its tokens in the hardware or outside."""
        self.model = KelleModel(self.p, self.layer)
        self.refresh = RefreshModel(self.p.memory.refresh, settings)
        self.steps: list[Step] = []
        await self.accelerator.start(settings)
        if prefilled:
            made = prefill(self.model, prefilled)
            self.learn(made.score_updates)
            await self.accelerator.fill(self.model, made, select)

    def learn(self, score_updates: list[tuple[int, int, int]]) -> None:
        """Tell the model of the refresh controllers."""
        for entry, score, valid in score_updates:
            self.refresh.change(entry, score, bool(valid))

    async def step(self, now: int) -> int:
        """Decode a token of the text in both; return the accelerator's cycles."""
        step = self.model.step(now, self.layer.quantised[now])
        if step.store:
            self.model.inputs[step.store[1]] = self.layer.quantised[step.store[0]]
        self.learn(step.score_updates)
        self.steps.append(step)
        return await self.accelerator.step(now, self.layer.quantised[now])

    async def spoil(self) -> None:
        """Overwrite the rows of all slots whose tokens are recomputed: nothing may read them."""
        for number, head in enumerate(self.model.eviction.heads):
            for slot in np.flatnonzero(head.recomputed != KEPT):
                self.accelerator.send_noise(number, int(slot))
        await self.accelerator.run("rows")

    async def check(self) -> None:
        """Compare outputs, placements, stores, and all slots."""
        steps, bench, accelerator = self.steps, self.bench, self.accelerator
        outputs, cycles = accelerator.outputs()
        wanted = np.stack([step.output for step in steps])
        bench.compare("outputs", wanted, outputs, cycles=cycles)
        placements = [
            (p.head, p.slot, p.evicted, p.vector) for step in steps for p in step.placements
        ]
        bench.compare("placements", np.array(placements), accelerator.placements())
        stores = np.array([s.store for s in steps if s.store], np.int64).reshape(-1, 2)
        bench.compare("vector stores", stores, accelerator.stores())
        positions, vectors = await accelerator.slots()
        heads = self.model.eviction.heads
        used = np.stack([head.positions >= 0 for head in heads])
        bench.compare("slots in use", used.sum(axis=1), accelerator.filled())
        bench.compare("positions", np.stack([h.positions for h in heads])[used], positions[used])
        bench.compare("formats", np.stack([h.recomputed for h in heads])[used], vectors[used])
        owners = np.array([-1 if v is None else v[0] for v in self.model.eviction.vectors])
        bench.compare("stored vectors", owners, accelerator.vectors())


@cocotb.test()
@only_if(step_fits_a_tick, "each step needs a tick of its own, to know which scores a sweep sees")
async def real_decode(dut: Any) -> None:
    """Decode with a full cache: outputs, victims, popular tokens, slots, and refreshed words.

    A step a tick: each tick's sweep comes between two steps, so that the model knows which scores
    it sees.
    """
    decode = Decode(dut, "real decode")
    p, bench, accelerator = decode.p, decode.bench, decode.accelerator
    steps = min(128, TOKENS - decode.full) if bench.told["full"] else 2
    if p.slots <= 16:
        steps = 6 if four_states() else 32
    sweep = p.memory.refresh.walk_cycles + 64
    tick = step_tick(p)
    # Scores of a long text come for several ticks, which would find some slots still empty.
    await decode.start(intervals(p, tick), decode.full, select=p.slots <= 16)
    begun = accelerator.begun
    cycles: dict[int, list[int]] = {}
    while begun + sweep < bench.cycle:
        begun += tick
        decode.refresh.tick()
    for now in range(decode.full, decode.full + steps):
        await bench.wait(begun + sweep)
        taken = await decode.step(now)
        cycles.setdefault(decode.steps[-1].members, []).append(taken)
        begun += tick
        assert bench.cycle < begun - 64, f"a step must end before its tick: {bench.cycle}, {begun}"
        await bench.wait(begun + sweep)
        decode.refresh.tick()
        bench.compare("words refreshed", decode.refresh.counts, accelerator.counts())
        await decode.spoil()
    await decode.check()
    placements = [placement for step in decode.steps for placement in step.placements]
    bench.record(
        cycles=sum(map(sum, cycles.values())),
        ideal_cycles=steps * accelerator.load_beats,
        cycles_by_members={members: max(taken) for members, taken in sorted(cycles.items())},
        popular_tokens=sum(step.store is not None for step in decode.steps),
        recomputed_tokens=sum(step.members - 1 for step in decode.steps),
        evictions=sum(placement.evicted >= 0 for placement in placements),
        recomputed_victims=sum(placement.vector != KEPT for placement in placements),
        refreshed_words=int(decode.refresh.counts.sum()),
        tensors=f"SmolLM2 layer {LAYER}, {steps} tokens",
    )


@cocotb.test()
@only_if(lambda run: not small(run), "a small cache is filled by the selector in every test")
async def selected_prefill(dut: Any) -> None:
    """Select a long text's tokens, and decode from them."""
    decode = Decode(dut, "selected prefill")
    await decode.start(longest(decode.p), decode.full)
    await decode.step(decode.full)
    await decode.check()


@cocotb.test()
@cocotb.parametrize(select=[True, False])
@only_if(small, "the order of two streams, which large dimensions share")
async def token_behind_its_prefill(dut: Any, select: bool) -> None:
    """Offer a token in the cycle in which its prefill's first scores or tokens come: it waits."""
    decode = Decode(dut, f"token behind its prefill {select}")
    await decode.start(longest(decode.p))
    made = prefill(decode.model, decode.full)
    decode.learn(made.score_updates)
    # Nothing is refreshed here, so that rows may come before the slots are in use.
    decode.accelerator.send_cache(decode.model, made)
    await decode.accelerator.run("rows")
    if select:
        decode.accelerator.send_scores(made)
    else:
        for token in made.kept:
            decode.accelerator.send_kept(token)
    await decode.step(decode.full)
    await decode.check()


@cocotb.test()
@only_if(small, "a large cache takes hundreds of steps to fill")
async def empty_cache(dut: Any) -> None:
    """Decode from the text's first token: tiles that are empty, partly filled, then full."""
    decode = Decode(dut, "empty cache")
    await decode.start(longest(decode.p))
    for now in range(4 if four_states() else 2 * decode.p.slots):
        await decode.step(now)
    await decode.check()


@cocotb.test()
@cocotb.parametrize(pattern=["random", "bursty", "adversarial"])
@only_if(quick, "hours at large dimensions or in four states")
async def pauses(dut: Any, pattern: str) -> None:
    """Let every stream pause, and refreshes take the banks in the middle of everything."""
    decode = Decode(dut, "pauses", pattern)
    p = decode.p
    walk = p.memory.refresh.walk_cycles
    tick = min(3 * walk, (1 << p.tick_bits) - 1)
    await decode.start(intervals(p, tick, min(walk, tick - walk)), decode.full)
    for now in range(decode.full, decode.full + 6):
        await decode.step(now)
    await decode.check()
    assert decode.accelerator.counts().min() > 0


@cocotb.test()
@only_if(quick, "hours at large dimensions or in four states")
async def crowded_banks(dut: Any) -> None:
    """Let refresh take nearly all cycles of the banks: whoever reads is late, and is waited for."""
    decode = Decode(dut, "crowded banks")
    p = decode.p
    refresh = p.memory.refresh
    always = {f"{half}_{group}": 1 for half in ("msb", "lsb") for group in ("hst", "lst")}
    tick = refresh.walk_cycles + 4
    await decode.start(
        RefreshSettings(parameters=refresh, tick_cycles=tick, patience=0, **always), decode.full
    )
    for now in range(decode.full, decode.full + 4):
        await decode.step(now)
    await decode.check()
    # The members of the last step are all there can be: their inputs were read as late as ever.
    assert decode.steps[-1].members == p.members


@cocotb.test()
@only_if(small, "a large cache takes minutes to fill again")
async def resets(dut: Any) -> None:
    """Reset in the middle of a step: nothing of it is left. Tokens are selected outside."""
    decode = Decode(dut, "resets")
    p, bench = decode.p, decode.bench
    for _ in range(1 if four_states() else 4):
        await decode.start(longest(p), decode.full, select=False)
        decode.accelerator.offer(decode.full, decode.layer.quantised[decode.full])
        for _cycle in range(bench.rng.randint(1, decode.accelerator.load_beats)):
            await bench.step()
    await decode.start(longest(p), decode.full, select=False)
    for now in range(decode.full, decode.full + (1 if four_states() else 3)):
        await decode.step(now)
    await decode.check()

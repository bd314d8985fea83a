"""Testbench of the accelerator: a SmolLM2 layer's decode steps, from state to state."""

from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import requantised, scale_and_shift
from golden.kelle.edram.refresh_controller import RefreshModel
from golden.kelle.eviction.eviction_controller import KEPT
from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import KelleModel, Step
from golden.kelle.whole_model import IntegerVocabulary, vocabulary_sums
from golden.llm import open_trace
from hdl.kelle.edram.refresh_walker import RefreshSettings
from hdl.kelle.operations import Operation
from hdl.kelle.parameters import KelleParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import catalog_parameters, record_fact
from testbenches.kelle.accelerator import Accelerator
from testbenches.kelle.edram.paper_intervals import paper_intervals
from testbenches.kelle.step_cycles import step_bound
from testbenches.kelle.text_layers import TOKENS, layer_numbers, open_layers
from testbenches.streams import four_states

Integers = NDArray[np.int64]


def prepare(p: KelleParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=layer_numbers(p))


def intervals(p: KelleParameters, tick: int, patience: int = 0) -> RefreshSettings:
    """Return the paper's intervals, as far as they can be set, in ticks of some cycles."""
    return paper_intervals(p.memory.refresh, tick, patience)


def step_tick(p: KelleParameters) -> int:
    """Return cycles in which a sweep, a step, and the search for the threshold have room."""
    return p.memory.refresh.walk_cycles + step_bound(p) * 9 // 8 + 400


def longest(p: KelleParameters) -> RefreshSettings:
    """Return ticks that no short test reaches."""
    return intervals(p, (1 << p.tick_bits) - 1)


def small(run: Run) -> bool:
    """Return whether whole texts are decoded in seconds."""
    return run.parameters.slots <= 16


def alone(run: Run) -> bool:
    """Return whether a small cache is that of one sequence."""
    return small(run) and run.parameters.sequences == 1


def step_fits_a_tick(run: Run) -> bool:
    """Return whether a tick can be as long as a step."""
    return step_tick(run.parameters) < 1 << run.parameters.tick_bits


def quick(run: Run) -> bool:
    """Return whether many cycles are, too."""
    return small(run) and not run.four_states


class Decode:
    """The accelerator beside its model."""

    def __init__(self, dut: Any, salt: str, pattern: str = "none", epsilon: int = 0) -> None:
        self.p: KelleParameters = catalog_parameters()
        self.layers = [
            replace(layer, epsilon=epsilon or layer.epsilon) for layer in open_layers(self.p)
        ]
        self.accelerator = Accelerator(dut, salt, self.p, self.layers, pattern)
        self.bench = self.accelerator.bench

    @property
    def full(self) -> int:
        """A text that is longer than the cache."""
        return self.p.slots + self.p.slots // 8

    async def start(
        self, settings: RefreshSettings, prefilled: int = 0, select: bool = True
    ) -> None:
        """Reset, load scales, and fill the cache; select its tokens in the hardware or outside."""
        # A model for every set of slots: a layer's sequences, then the next layer's.
        sequences = range(self.p.sequences)
        self.of = [layer for layer in self.layers for _sequence in sequences]
        self.models = [KelleModel(self.p, layer, n) for n, layer in enumerate(self.of)]
        self.model = self.models[0]
        self.refresh = RefreshModel(self.p.memory.refresh, settings)
        self.steps: list[Step] = []
        self.inputs = [layer.quantised.copy() for layer in self.of]
        await self.accelerator.start(settings)
        if prefilled:
            for number, model in enumerate(self.models):
                # The sequences are of different lengths: none can be taken for another.
                made = prefill(model, prefilled + number % self.p.sequences)
                self.learn(made.score_updates)
                await self.accelerator.fill(model, made, select)

    def learn(self, score_updates: list[tuple[int, int, int]]) -> None:
        """Tell the model of the refresh controllers."""
        for entry, score, valid in score_updates:
            self.refresh.change(entry, score, bool(valid))

    def states(self, now: int, layer: int = 0) -> Integers:
        """Return the hidden states of a step's tokens, [sequences, width]."""
        return self.layers[layer].quantised_states[now : now + self.p.sequences]

    async def step(self, now: int, layer: int = 0, states: Integers | None = None) -> int:
        """Decode a token of each sequence in both; return the accelerator's cycles."""
        p = self.p
        before = self.states(now, layer) if states is None else states
        positions = [now + sequence for sequence in range(p.sequences)]
        for sequence, position in enumerate(positions):
            cache = layer * p.sequences + sequence
            model, inputs = self.models[cache], self.inputs[cache]
            step = model.step(position, before[sequence])
            inputs[position] = step.normalised
            if step.store:
                model.inputs[step.store[1]] = inputs[step.store[0]]
            self.learn(step.score_updates)
            self.steps.append(step)
        return await self.accelerator.step(positions, before, layer)

    @property
    def members(self) -> int:
        """Rows of the last step's combined matrix."""
        return sum(step.members for step in self.steps[-self.p.sequences :])

    async def spoil(self) -> None:
        """Overwrite the rows of all slots whose tokens are recomputed: nothing may read them."""
        heads = [head for model in self.models for head in model.eviction.heads]
        for number, head in enumerate(heads):
            for slot in np.flatnonzero(head.recomputed != KEPT):
                self.accelerator.send_noise(number, int(slot))
        await self.accelerator.run("rows")

    async def check(self) -> None:
        """Compare outputs, placements, stores, and all slots."""
        steps, bench, accelerator = self.steps, self.bench, self.accelerator
        outputs, cycles = accelerator.outputs()
        wanted = np.stack([step.output for step in steps])
        bench.compare("outputs", wanted, outputs, cycles=cycles)
        normalised = np.stack([step.normalised for step in steps])
        bench.compare("normalised inputs", normalised, accelerator.normalised())
        placements = [
            (p.head, p.slot, p.evicted, p.vector) for step in steps for p in step.placements
        ]
        bench.compare("placements", np.array(placements), accelerator.placements())
        stores = np.array([s.store for s in steps if s.store], np.int64).reshape(-1, 2)
        bench.compare("vector stores", stores, accelerator.stores())
        positions, vectors = await accelerator.slots()
        caches = [model.eviction for model in self.models]
        held = np.array([[head.positions for head in cache.heads] for cache in caches])
        formats = np.array([[head.recomputed for head in cache.heads] for cache in caches])
        used = held >= 0
        bench.compare("slots in use", used.sum(axis=2), accelerator.filled())
        bench.compare("positions", held[used], positions[used])
        bench.compare("formats", formats[used], vectors[used])
        owners = [-1 if v is None else v[0] for cache in caches for v in cache.vectors]
        bench.compare("stored vectors", np.array(owners), accelerator.vectors())


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
    if p.width > 1024:
        steps = 1
    if p.slots <= 16:
        steps = 6 if four_states() else 32
    sweep = p.memory.refresh.walk_cycles + 64
    tick = step_tick(p)
    # Scores of a long text come for several ticks, which would find some slots still empty.
    await decode.start(intervals(p, tick), decode.full, select=p.slots <= 16)
    begun = accelerator.begun
    cycles: dict[int, list[int]] = {}
    used: list[float] = []
    while begun + sweep < bench.cycle:
        begun += tick
        decode.refresh.tick()
    for now in range(decode.full, decode.full + steps):
        await bench.wait(begun + sweep)
        taken = await decode.step(now)
        cycles.setdefault(decode.members, []).append(taken)
        used.append(accelerator.weight_utilisation(bench.cycle))
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
        ideal_cycles=steps * accelerator.roofline,
        cycles_by_members={members: max(taken) for members, taken in sorted(cycles.items())},
        popular_tokens=sum(step.store is not None for step in decode.steps),
        recomputed_tokens=sum(step.members - 1 for step in decode.steps),
        evictions=sum(placement.evicted >= 0 for placement in placements),
        recomputed_victims=sum(placement.vector != KEPT for placement in placements),
        refreshed_words=int(decode.refresh.counts.sum()),
        weight_pass_utilisation=f"{np.mean(used):.1%}",
        tensors=f"SmolLM2 layer {layer_numbers(p)[0]}, {steps} tokens of {p.sequences} sequences",
    )


@cocotb.test()
@only_if(lambda run: run.parameters.weight_memory > 0, "weights come beat by beat")
async def weights_ahead(dut: Any) -> None:
    """Decode steps one behind the other, while weights come for whichever is next.

    A step takes no longer than the slowest of what it needs, and the ways through norms and array
    between its matrices, in which the memory goes on filling.
    """
    decode = Decode(dut, "weights ahead")
    p, bench, accelerator = decode.p, decode.bench, decode.accelerator
    steps = 6 if p.slots <= 16 else 2
    await decode.start(longest(p), decode.full)
    accelerator.offers_weights = False
    for _step in range(steps):
        accelerator.offer_weights()
    begun, ahead = bench.cycle, 0
    ends = []
    for now in range(decode.full, decode.full + steps):
        await decode.step(now)
        ends.append(bench.cycle)
        ahead = max(ahead, accelerator.words - (now + 1 - decode.full) * accelerator.step_words)
    await decode.check()
    assert accelerator.words == steps * accelerator.step_words
    for number, cycles in enumerate(np.diff([begun, *ends])):
        record_fact("cycles of steps one behind the other", str(number), int(cycles))
    record_fact("cycles of the slowest part", "step", accelerator.roofline)
    record_fact("words that came before their step", "at most", ahead)
    assert ahead > 0


@cocotb.test()
@only_if(lambda run: run.parameters.vocabulary > 0, "there is no vocabulary")
async def vocabulary(dut: Any) -> None:
    """Predict between steps, whatever pauses: the first of the largest exact sums."""
    for pattern in ("none", "random", "bursty"):
        decode = Decode(dut, "vocabulary", pattern)
        p, bench, accelerator = decode.p, decode.bench, decode.accelerator
        await decode.start(longest(p), decode.full)
        # Half of the tokens are the others once more, and so are all sums.
        size, top = (p.width, -(-p.vocabulary // 2)), 1 << p.weight_bits - 1
        matrix = np.tile(bench.numpy_rng.integers(-top, top, size, np.int8), 2)[:, : p.vocabulary]
        # The last layer's, so that the first one's follows what is not its own.
        whole = IntegerVocabulary(matrix=matrix, epsilon=decode.layers[-1].epsilon, step=1.0)
        wanted = []
        for now in range(decode.full, decode.full + 3):
            await decode.step(now)
            state = decode.steps[-1].output
            # A state and its opposite: no sum of the one is the largest of the other.
            for row in (state, -state):
                sums = vocabulary_sums(whole, row, p)
                wanted.append((int(sums.argmax()), int(sums.max())))
                await accelerator.predict(row, whole.filled(p.head_size), p.layers - 1)
        await decode.check()
        bench.compare("predictions", np.array(wanted), accelerator.predictions())


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
@only_if(alone, "the order of two streams, which large dimensions and batches share")
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
@only_if(lambda run: small(run) and run.parameters.layers > 1, "there is one layer")
async def prefill_behind_a_token(dut: Any) -> None:
    """Offer another layer's prefill in the midst of a step: it waits, and is that layer's."""
    decode = Decode(dut, "prefill behind a token")
    accelerator = decode.accelerator
    await decode.start(longest(decode.p))
    model = decode.models[decode.p.sequences]
    made = prefill(model, decode.full)
    decode.learn(made.score_updates)
    accelerator.behind = list(made.kept)
    await decode.step(0)
    accelerator.send_cache(model, made)
    await accelerator.run("prefill", "rows")
    await decode.step(decode.full, layer=1)
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
@only_if(lambda run: run.parameters.layers > 1, "there is one layer")
async def layers_one_behind_the_other(dut: Any) -> None:
    """Take tokens through all layers: each has slots, vectors, keys, values and scales of its own.

    The state behind a layer is the next one's, brought to its steps outside.
    """
    decode = Decode(dut, "layers one behind the other")
    await decode.start(longest(decode.p), decode.full)
    for now in range(decode.full, decode.full + (4 if decode.p.slots <= 16 else 1)):
        states = decode.states(now)
        for number, layer in enumerate(decode.layers):
            if number:
                before = decode.layers[number - 1].steps[Operation.DOWN]
                factor = scale_and_shift(before / layer.steps[Operation.DOWN])
                outputs = [step.output for step in decode.steps[-decode.p.sequences :]]
                states = requantised(np.stack(outputs), *factor)
            await decode.step(now, number, states)
    await decode.check()


@cocotb.test()
@only_if(small, "the norm's own test has every size")
async def another_epsilon(dut: Any) -> None:
    """Decode with an epsilon that shows: SmolLM2's own is lost beside the squares of its states."""
    decode = Decode(dut, "another epsilon", epsilon=1 << 30)
    await decode.start(longest(decode.p), decode.full)
    await decode.step(decode.full)
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
    # A recomputed token's input was read as late as ever.
    assert decode.members > p.sequences


@cocotb.test()
@only_if(small, "a large cache takes minutes to fill again")
async def resets(dut: Any) -> None:
    """Reset in the middle of a step: nothing of it is left. Tokens are selected outside."""
    decode = Decode(dut, "resets")
    p, bench = decode.p, decode.bench
    for _ in range(1 if four_states() else 4):
        await decode.start(longest(p), decode.full, select=False)
        positions = [decode.full + sequence for sequence in range(p.sequences)]
        decode.accelerator.offer(positions, decode.states(decode.full))
        for _cycle in range(bench.rng.randint(1, decode.accelerator.load_beats)):
            await bench.step()
    await decode.start(longest(p), decode.full, select=False)
    for now in range(decode.full, decode.full + (1 if four_states() else 3)):
        await decode.step(now)
    await decode.check()

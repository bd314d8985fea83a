"""Decode steps in Kelle's accelerator and, for comparison, in its model."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.kelle.decoder_layer import DecoderLayer
from golden.kelle.edram.refresh_controller import RefreshModel
from golden.kelle.eviction.eviction_controller import KEPT
from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import KelleModel, Step
from hdl.kelle.edram.kv_edram import SIDES
from hdl.kelle.edram.refresh_walker import RefreshSettings
from hdl.kelle.parameters import KelleParameters
from testbenches.bench import catalog_parameters
from testbenches.kelle.accelerator import Accelerator, Tokens
from testbenches.kelle.edram.paper_intervals import paper_intervals
from testbenches.kelle.overflow_memory import expected_reads
from testbenches.kelle.script import ScriptBench, Steps
from testbenches.kelle.text_layers import open_layers

Integers = NDArray[np.int64]


def intervals(p: KelleParameters, tick: int, timeout: int = 0) -> RefreshSettings:
    """Return the paper's intervals, limited to their range, in ticks of given cycles."""
    return paper_intervals(p.memory.refresh, tick, timeout)


def longest(p: KelleParameters) -> RefreshSettings:
    """Return settings with ticks longer than a short test."""
    return intervals(p, (1 << p.tick_bits) - 1)


MOST_CACHES = 16
"""Sets of slots up to which all are filled and compared; of more, those of the first layer."""


class Decode(ScriptBench):
    """The accelerator and its model."""

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        sink: str = "none",
        *,
        change: Callable[[DecoderLayer], DecoderLayer] = lambda layer: layer,
    ) -> None:
        self.p: KelleParameters = catalog_parameters()
        self.layers = [change(layer) for layer in open_layers(self.p)]
        self.accelerator = Accelerator(dut, salt, self.p, self.layers, source, sink)
        self.bench, self.script = self.accelerator.bench, self.accelerator.script
        # One model for every set of slots: a layer's sequences, then the next layer's.
        filled = self.layers if self.p.caches <= MOST_CACHES else self.layers[:1]
        self.of = [layer for layer in filled for _sequence in range(self.p.batch)]
        self.models: list[KelleModel] = []
        self.refresh = RefreshModel(self.p.memory.refresh, longest(self.p))
        self.steps: list[Step] = []
        self.caches: list[int] = []
        # By cache, the position of the other sequences at which its second text begins.
        self.restarted: dict[int, int] = {}
        # By cache, the position of its next token; and the number of tokens of the last step.
        self.following: dict[int, int] = {}
        self.last_tokens = 0
        self.inputs: list[Integers] = []

    @property
    def model(self) -> KelleModel:
        """Model of the first sequence in the first layer."""
        return self.models[0]

    @property
    def spread(self) -> int:
        """Number of lengths that the sequences' texts have, so that a mix-up is detected."""
        p = self.p
        return min(p.batch, p.prefill_tokens - p.slots + 1, p.context_length // 4)

    @property
    def full(self) -> int:
        """Tokens of a text that fills the cache; the selector and two positions have room for it.

        The text is longer than the cache if they have room for such a text.
        """
        p = self.p
        longest = min(p.prefill_tokens + 1, p.context_length - 1) - self.spread
        return min(p.slots + p.slots // 8, longest)

    def text(self, first: int, most: int) -> range:
        """Return the first positions of at most as many steps; all sequences have legal ones."""
        return range(first, min(first + most, self.p.context_length - self.spread + 1))

    def tokens(self, now: int, layer: int = 0) -> Tokens:
        """Return a step's tokens, one of each sequence."""
        tokens = []
        for sequence in range(self.p.batch):
            restarted = self.restarted.get(layer * self.p.batch + sequence)
            later = now + sequence % self.spread
            tokens.append((sequence, later if restarted is None else now - restarted))
        return tokens

    async def start(
        self, settings: RefreshSettings, prefilled: int = 0, select: bool = True
    ) -> None:
        """Reset, load scales, and fill the cache; select tokens in hardware or in software."""
        await self.bench.reset()
        await self.script.run(self.load(settings, prefilled, select))

    def load(self, settings: RefreshSettings, prefilled: int = 0, select: bool = True) -> Steps:
        """Load scales after a reset, and fill the cache, as `start` does."""
        self.models = [KelleModel(self.p, layer, n) for n, layer in enumerate(self.of)]
        self.refresh = RefreshModel(self.p.memory.refresh, settings)
        self.steps, self.caches, self.restarted = [], [], {}
        self.inputs = [layer.quantised.copy() for layer in self.of]
        self.following = dict.fromkeys(range(len(self.of)), 0)
        yield from self.accelerator.begin(settings)
        if prefilled:
            for number, model in enumerate(self.models):
                tokens = prefilled + number % self.p.batch % self.spread
                self.following[number] = tokens
                made = prefill(model, tokens)
                self.learn(made.score_updates)
                yield from self.accelerator.fill(model, made, select)

    def learn(self, score_updates: list[tuple[int, int, int]]) -> None:
        """Update the model of the refresh controllers."""
        for entry, score, valid in score_updates:
            self.refresh.change(entry, score, bool(valid))

    def states(self, now: int, layer: int = 0) -> Integers:
        """Return the hidden states of a step's tokens, [sequences, width]."""
        return self.layers[layer].quantised_states[now : now + self.p.batch]

    async def step(self, now: int, layer: int = 0, states: Integers | None = None) -> int:
        """Decode a token of each sequence in both; return the accelerator's cycles."""
        begun = self.bench.cycle
        await self.script.run(self.decode(now, layer, states))
        return self.bench.cycle - begun

    def decode(self, now: int, layer: int = 0, states: Integers | None = None) -> Steps:
        """Decode a token of each sequence in both, as `step` does."""
        return self.accelerator.decode(*self.expect(now, layer, states), layer)

    def expect(
        self, now: int, layer: int = 0, states: Integers | None = None
    ) -> tuple[Tokens, Integers]:
        """Decode a token of each sequence in the model; return the accelerator's inputs."""
        before = self.states(now, layer) if states is None else states
        return self.compute(self.tokens(now, layer), before, layer), before

    def compute(self, tokens: Tokens, states: Integers, layer: int) -> Tokens:
        """Decode the tokens of a step in the model, with their states [tokens, width]."""
        steps: dict[int, Step] = {}
        for sequence in dict(tokens):
            own = [number for number, token in enumerate(tokens) if token[0] == sequence]
            model = self.models[layer * self.p.batch + sequence]
            steps |= zip(own, model.block(tokens[own[0]][1], states[own]), strict=True)
        for number, (sequence, position) in enumerate(tokens):
            self.inputs[layer * self.p.batch + sequence][position] = steps[number].normalised
        for number, (sequence, position) in enumerate(tokens):
            step, cache = steps[number], layer * self.p.batch + sequence
            if step.store:
                self.models[cache].inputs[step.store[1]] = self.inputs[cache][step.store[0]]
            self.learn(step.score_updates)
            self.steps.append(step)
            self.caches.append(cache)
            self.following[cache] = position + 1
        self.last_tokens = len(tokens)
        return tokens

    def blocks(self, most: int, *, ahead: bool = False) -> Steps:
        """Decode at least `most` tokens in both, in steps of random tokens in random layers.

        A step's tokens belong to random sequences, and each of them continues the text of its
        sequence and layer, as far as it has positions. If `ahead`, each step is offered as soon as
        the tokens of the previous one are transferred.
        """
        p, rng = self.p, self.bench.numpy_rng
        limit = min(p.context_length, len(self.layers[0].quantised_states))
        while most > 0:
            layer = int(rng.integers(p.layers))
            following = [self.following[layer * p.batch + own] for own in range(p.batch)]
            chosen = rng.integers(0, p.batch, rng.integers(1, p.step_tokens + 1)).tolist()
            # The tokens of a sequence are consecutive in half of the steps.
            tokens: Tokens = []
            for sequence in sorted(chosen) if rng.integers(2) else chosen:
                if following[sequence] < limit:
                    tokens.append((sequence, following[sequence]))
                    following[sequence] += 1
            if not tokens:
                break
            most -= len(tokens)
            states = self.layers[layer].quantised_states[[now for _sequence, now in tokens]]
            self.compute(tokens, states, layer)
            if ahead:
                yield from self.accelerator.begin_step(tokens, states, layer)
            else:
                yield from self.accelerator.decode(tokens, states, layer)

    async def finish(self) -> None:
        """Simulate until the outputs of all steps are complete."""
        slices = len(self.steps) * self.p.hidden_slices
        received = self.accelerator.sinks["outputs"].received
        await self.bench.run(until=lambda: len(received) == slices)

    def end_text(self, now: int, cache: int) -> None:
        """End a cache's text in both; its next one begins with the step of `now`."""
        self.accelerator.end_text(*divmod(cache, self.p.batch))
        self.learn(self.models[cache].clear())
        self.restarted[cache] = now

    @property
    def members(self) -> int:
        """Rows of the last step's combined matrix."""
        return sum(step.members for step in self.steps[-self.last_tokens :])

    async def corrupt(self) -> None:
        """Overwrite the rows of all slots whose tokens are recomputed, to detect reads of them."""
        heads = [head for model in self.models for head in model.eviction.heads]
        for number, head in enumerate(heads):
            for slot in np.flatnonzero(head.recomputed != KEPT):
                self.accelerator.send_noise(number, int(slot))
        await self.accelerator.run("row_writes")

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
        if accelerator.overflow:
            taken = list(zip(self.caches, steps, strict=True))
            read = np.array(accelerator.overflow.read, np.int64).reshape(-1, 2)
            for side, name in enumerate(SIDES):
                wanted = expected_reads(self.p, taken, side)
                bench.compare(f"off-chip reads of {name}", wanted, read[read[:, 0] == side, 1])
        positions, vectors = await accelerator.slots(len(self.models))
        caches = [model.eviction for model in self.models]
        held = np.array([[head.positions for head in cache.heads] for cache in caches])
        formats = np.array([[head.recomputed for head in cache.heads] for cache in caches])
        used = held >= 0
        bench.compare("slots in use", used.sum(axis=2), accelerator.filled()[: len(caches)])
        bench.compare("positions", held[used], positions[used])
        bench.compare("formats", formats[used], vectors[used])
        owners = [-1 if v is None else v[0] for cache in caches for v in cache.vectors]
        held_vectors = await accelerator.vectors(len(caches))
        bench.compare("stored vectors", np.array(owners), held_vectors)


def shortened(layer: DecoderLayer, rng: np.random.Generator) -> DecoderLayer:
    """Return a layer with fewer digits in its scales, and shifts reduced by the same amount.

    Some shifts are reduced further, so that their results saturate.
    """
    projections = {}
    for which, own in layer.projections.items():
        lost = np.minimum(rng.choice([7, 12, 14, 15], own.scale.shape), own.shift)
        scale = np.maximum(own.scale >> lost, 1)
        shift = own.shift - lost
        loud = np.where(rng.random(shift.shape) < 0.05, rng.integers(0, 8, shift.shape), 0)
        projections[which] = replace(own, scale=scale, shift=np.maximum(shift - loud, 0))
    return replace(layer, projections=projections)

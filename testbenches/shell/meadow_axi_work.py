"""Work of MEADOW with the AXI shell: programs of blocks, cut into jobs, and their results."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from golden.meadow.packing.weight_packer import Level
from golden.meadow.tile.requantisation import Integers
from golden.shell.meadow_axi import prediction_tokens
from golden.shell.shell_jobs import padded
from hdl.meadow.parameters import MeadowParameters
from hdl.shell.meadow_axi_parameters import MeadowAxiParameters
from hdl.shell.shell_parameters import WORDS_PER_PREDICTION
from testbenches.meadow.bandwidth import decode_step
from testbenches.meadow.checked_program import LayerProgram
from testbenches.meadow.memory_images import STATE_BYTES, bytes_of
from testbenches.meadow.random_layers import random_layers, random_vocabulary
from testbenches.meadow.tb_meadow import real_layers
from testbenches.shell.shell_work import Job, Work

SEED = 1
"""Seed of the random text whose cycles are compared with and without the shell."""

LARGE = 64
"""Size of a head from which whole layers take long to simulate."""

LAYER, TOKENS = 14, 64
"""Layer of SmolLM2 in the measured decode step, and tokens of its context."""


class MeadowWork(Work):
    """A program of blocks, cut into jobs, with the images and results of `LayerProgram`."""

    written = ("vectors", "cache")

    def __init__(self, program: LayerProgram) -> None:
        super().__init__()
        self.program = program
        self._done = {"instructions": 0, "matrices": 0, "predictions": 0}

    @property
    def ideal_cycles(self) -> int:
        """Cycles of the program without any waiting."""
        return sum(self.program.traffic.ideal)

    def cut(self) -> None:
        """End a job after the instructions so far."""
        code = self.program.code
        sources: dict[str, list[Any]] = {
            "instructions": code.instructions,
            "matrices": code.matrices,
            "predictions": self.program.predictions,
        }
        new = {name: all_[self._done[name] :] for name, all_ in sources.items()}
        self._done = {name: len(all_) for name, all_ in sources.items()}
        job = Job(new)
        for prediction in new.pop("predictions"):
            self.expect(job, prediction)
        self.jobs.append(job)

    @staticmethod
    def expect(job: Job, prediction: tuple[int, int] | None) -> None:
        """Expect a prediction of a job; None for one without sums, whose value is undefined."""
        undefined: list[int | None] = [None] * WORDS_PER_PREDICTION
        job.tokens.extend(prediction_tokens([prediction]) if prediction else undefined)

    def images(self, p: MeadowAxiParameters) -> dict[str, Any]:
        """Return the words of each region at the beginning; those of the program are empty."""
        images = self.program.images
        found = {}
        for region, size in p.regions.items():
            if region in p.program:
                longest = max(len(job.words[region]) for job in self.jobs)
                found[region] = np.zeros((longest, size), np.uint8)
            else:
                found[region] = padded(getattr(images, region).words, size)
        return found

    def unread(self, p: MeadowAxiParameters, region: str) -> int:
        """Return one word for each image, and the end of the last head's area of the cache."""
        return 1 + p.meadow.slots * (region == "cache")

    def results(self, p: MeadowAxiParameters, images: Mapping[str, Any]) -> dict[str, Any]:
        """Return the words of the regions that the program writes, at the end.

        Scores and probabilities, which follow the areas of heads in the cache, are masked.
        """
        program, meadow = self.program, p.meadow
        vectors = images["vectors"].copy()
        for address, states in program.expected:
            rows = padded(
                bytes_of(states.reshape(-1, meadow.head_size), STATE_BYTES), p.regions["vectors"]
            )
            vectors[address : address + len(rows)] = rows
        cache = np.ma.masked_array(images["cache"].copy(), False)
        heads = meadow.kv_heads * meadow.slots
        for layer, caches in enumerate(program.caches):
            for part, kept in enumerate(caches):
                first = (2 * layer + part) * heads
                area = cache.data[first : first + heads].reshape(meadow.kv_heads, meadow.slots, -1)
                area[:, : kept.shape[1], : meadow.head_size] = kept.astype(np.int8).view(np.uint8)
        cache[2 * len(program.caches) * heads :] = np.ma.masked
        return {"vectors": vectors, "cache": cache}


def random_program(
    p: MeadowParameters, rng: np.random.Generator, count: int
) -> tuple[LayerProgram, Integers]:
    """Return a program of random layers and an LM head without blocks, and hidden states."""
    layers, states = random_layers(p, rng, count)
    return LayerProgram(p, layers, vocabulary=random_vocabulary(p, rng)), states


def text_work(
    p: MeadowParameters, rng: np.random.Generator, *, layers: int = 1, steps: int = 1
) -> MeadowWork:
    """Return a prompt and some steps of one token, each a job with a prediction."""
    program, states = random_program(p, rng, layers)
    work, position = MeadowWork(program), 0
    prompt = min(p.most_tokens, p.slots - steps, 5)
    for tokens in (prompt, *[1] * steps):
        block = states[position : position + tokens]
        program.add_block(block, range(layers), predict=True)
        work.cut()
        position += tokens
    return work


def short_work(p: MeadowParameters, rng: np.random.Generator) -> MeadowWork:
    """Return a job that loads hidden states and stores them at another address."""
    program = LayerProgram(p, [])
    work = MeadowWork(program)
    program.add_block(rng.integers(-(1 << 20), 1 << 20, (2, p.hidden_size)), [])
    work.cut()
    return work


def measured_works(p: MeadowParameters) -> dict[str, MeadowWork]:
    """Return the work whose cycles are compared with and without the shell.

    A text of random layers, and a job of one instruction; in large dimensions a decode step of a
    layer of SmolLM2, with raw and with packed weights.
    """
    if p.head_size < LARGE:
        alone = LayerProgram(p, [])
        alone.end()
        text = text_work(p, np.random.default_rng(SEED), layers=2, steps=3)
        return {"text": text, "one instruction": unpredicted(alone)}
    (layer,), states = real_layers(p, (LAYER,))
    return {
        level.name.lower(): unpredicted(decode_step(p, [layer], states[:TOKENS], level))
        for level in (Level.RAW, Level.REINDEXED)
    }


def unpredicted(program: LayerProgram) -> MeadowWork:
    """Return a program as one job, whose only prediction has no sum and marks the end."""
    work = MeadowWork(program)
    work.cut()
    work.expect(work.jobs[0], None)
    return work

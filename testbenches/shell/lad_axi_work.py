"""Work of LAD with the AXI shell: a text of real layers, cut into jobs, and its results."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from golden.lad.lad import Lad
from golden.lad.lad_tile import Head, equation_7
from golden.lad.whole_model import HalfModel, angles
from golden.llm.model import SMOLLM2
from golden.nonlinear.argmax import argmax
from golden.shell.lad_axi import LadProgram, first_word
from golden.shell.meadow_axi import prediction_tokens
from golden.shell.shell_jobs import Bytes, padded
from hdl.arith.float_format import BINARY16
from hdl.shell.lad_axi_parameters import LadAxiParameters
from testbenches.lad.layer_driver import (
    begun_model,
    real_states,
    real_vocabulary,
    real_weights,
)
from testbenches.lad.stored_heads import ROWS
from testbenches.lad.vectors import LAYERS
from testbenches.packing import pack
from testbenches.shell.lad_text import ROW_REGIONS, LadText, head_field, head_words
from testbenches.shell.shell_work import Job, Work

BEGUN = 3
"""Positions by which the text of a sample is longer than that of the sample before it."""


class LadWork(Work):
    """A text of each sample, whose tokens pass through all layers."""

    written = (*ROW_REGIONS, "outputs")
    on_chip = True

    def __init__(self, p: LadAxiParameters, rng: np.random.Generator) -> None:
        super().__init__()
        self.p, lad = p, p.lad
        self.model = lad_model(p)
        self.text = LadText(p, self.model)
        self.golden: Lad = begun_model(lad, rng, self._begun)
        self._first = deepcopy(self.golden.tiles.heads)
        self._noise = [random_head(p, rng) for _ in self._first]
        self._tokens: list[int | None] = []
        self._done = self._ideal = 0
        self._predicts = False
        # The states of the present job, and those of each job.
        self._states: list[Bytes] = []
        self._outputs: list[Bytes] = []
        self.program = LadProgram(p)

    def _begun(self, sample: int) -> int:
        """Return the number of a sample's positions before its first token."""
        return min(BEGUN * sample, max(self.p.lad.tile.slots - BEGUN - 1, 0))

    @property
    def room(self) -> int:
        """Number of further tokens for which every sample has slots."""
        return self.p.lad.tile.slots - self._begun(self.p.lad.batch - 1) - self._done

    @property
    def ideal_cycles(self) -> int:
        """Cycles of the products of matrices, and of attention by the paper's Equation 7."""
        return self._ideal // self.p.lad.tiles

    def add_token(self, *, predict: bool = False) -> None:
        """Decode the next token of each sample."""
        p, golden, model = self.p.lad, self.golden, self.model
        first = 1 + self._done * p.batch
        states = real_states(p, LAYERS[0], range(first, first + p.batch))
        lengths = [self._begun(sample) + self._done + 1 for sample in range(p.batch)]
        turns = [angles(length - 1, p.head_size, model.rope_base) for length in lengths]
        cosines, sines = (np.stack([turn[part] for turn in turns]) for part in range(2))
        self.text.add_token(self.program, lengths, (cosines, sines), states, predict=predict)
        after, steps = golden.token(model.layers, states, cosines, sines)
        # Whether any denominator up to each layer was not positive.
        flags = np.array([step.not_positive for step in steps])
        flags = flags.reshape(p.batch, p.layers, -1).any(axis=(0, 2))
        times = p.layers if p.vocabulary_size else 1
        flags = np.logical_or.accumulate(flags)[-times:]
        self._states.append(self.text.state_words(after[-times:], flags))
        self._ideal += sum(golden.products(own) for own in model.layers)
        self._ideal += round(sum(equation_7(p.tile, step) for step in steps))
        if predict:
            sums = golden.sums(model.final_norm, model.vocabulary, after[-1])
            self._tokens += prediction_tokens([argmax(BINARY16, own) for own in sums])
            self._ideal += golden.vocabulary_products()
        self._predicts = predict
        self._done += 1

    def cut(self) -> None:
        """End a job after the tokens so far, if there are any."""
        if not self._states:
            return
        self.jobs.append(Job(self.program.words, self._tokens))
        self._outputs.append(np.concatenate(self._states))
        self.program, self._tokens, self._states = LadProgram(self.p), [], []

    def images(self, p: LadAxiParameters) -> dict[str, Any]:
        """Return the words of each region at the beginning; rows without a position are noise."""
        found = {}
        for region, size in p.regions.items():
            if region in p.program:
                count = max(len(job.words[region]) for job in self.jobs)
            elif region == "outputs":
                count = max(map(len, self._outputs))
            else:
                count = p.region_words[region]
            found[region] = np.zeros((count, size), np.uint8)
        for place, words in self.text.weight_words():
            found["weights"][place : place + len(words), : words.shape[1]] = words
        norms = self.text.norm_words()
        found["norm_weights"][:, : norms.shape[1]] = norms
        self._write_heads(found, self._first)
        return found

    def _write_heads(self, words: dict[str, Bytes], heads: list[Head]) -> None:
        """Write the rows of all heads."""
        for number, (head, noise) in enumerate(zip(heads, self._noise, strict=True)):
            whole, n = deepcopy(noise), head.length
            for name in (*ROWS, "counters"):
                getattr(whole, name)[:n] = getattr(head, name)[:n]
            whole.caches = head.caches
            for region, own in head_words(self.p, whole).items():
                place = first_word(self.p, region, number)
                words[region][place : place + len(own), : own.shape[1]] = own

    def results(self, p: LadAxiParameters, images: Mapping[str, Any]) -> dict[str, Any]:
        """Return the words of the regions that the jobs write, at the end."""
        found = {name: images[name].copy() for name in self.written}
        self._write_heads(found, self.golden.tiles.heads)
        for words in self._outputs:
            found["outputs"][: len(words)] = padded(words, p.regions["outputs"])
        return found

    def comparable(self, p: LadAxiParameters, region: str, words: Any) -> Any:
        """Return words without what has no meaning.

        That is the counter of a position's own mode, and the marks of lanes without a position.
        """
        if region not in ("positions", "counters"):
            return words
        words = words.copy()
        tile = p.lad.tile
        lanes = tile.apid.lanes
        for number, head in enumerate(self.golden.tiles.heads):
            place, n = first_word(p, region, number), head.length
            if n == 0:
                continue
            own = words[place : place + (tile.apid.groups if region == "positions" else n)]
            if region == "counters":
                counters = head_field(p, "counters", own)
                counters[np.arange(n), head.modes[:n]] = 0
                bits = pack(tile.md.counters_layout, counters)
                packed = np.packbits(bits, axis=-1, bitorder="little")
                own[:, : packed.shape[1]] = packed
            elif n % lanes:
                group = own[n // lanes : n // lanes + 1]
                marks = {}
                for name in p.mark_layout.members:
                    marks[name] = head_field(p, name, group)[np.newaxis]
                    marks[name][:, n % lanes :] = 0
                packed = np.packbits(pack(p.mark_layout, marks), axis=-1, bitorder="little")
                first = p.record_bytes - p.mark_bytes
                group[:, first : first + packed.shape[1]] = packed
        return words

    def unread(self, p: LadAxiParameters, region: str) -> int:
        """Return how many words at the end of a region the last job does not use."""
        lad = p.lad
        if region == "weights":
            return 0 if self._predicts else lad.vocabulary_transfers
        if region == "norm_weights":
            return 0 if self._predicts else lad.hidden_slices
        if region == "outputs":
            return max(map(len, self._outputs)) - len(self._outputs[-1])
        each = {
            "positions": lambda head: -(-head.length // lad.tile.apid.lanes),
            "caches": lambda head: lad.tile.ac.columns,
        }.get(region, lambda head: head.length)
        ends = [
            first_word(p, region, number) + each(head)
            for number, head in enumerate(self.golden.tiles.heads)
            if head.length
        ]
        return p.region_words[region] - max(ends)


def random_head(p: LadAxiParameters, rng: np.random.Generator) -> Head:
    """Return a head of random rows."""
    head = Head.empty(p.lad.tile)
    for name in (*ROWS, "counters"):
        rows = getattr(head, name)
        high = {"modes": 16, "counts": 1 << 12, "counters": 1 << 12}.get(name, 1 << 16)
        rows[:] = rng.integers(0, high, rows.shape)
    return head


def lad_model(p: LadAxiParameters) -> HalfModel:
    """Return layers of SmolLM2 with an LM head; without a vocabulary, it is not used."""
    lad = p.lad
    layers = [real_weights(lad, LAYERS[number % len(LAYERS)]) for number in range(lad.layers)]
    norm, matrix = layers[-1].post_norm, layers[-1].gate
    if lad.vocabulary_size:
        norm, matrix = real_vocabulary(lad)
    return HalfModel(layers, norm, matrix, SMOLLM2.rope_base)


def text_work(p: LadAxiParameters, rng: np.random.Generator, *, jobs: int = 2) -> LadWork:
    """Return jobs of which each uses all ports; the first one has several tokens."""
    work = LadWork(p, rng)
    predicts = p.lad.vocabulary_size > 0
    for job in range(jobs):
        # Each later job has a token.
        left = work.room - (jobs - 1 - job)
        for number in range(min(3 if job == 0 else 1, left)):
            work.add_token(predict=predicts and number != 1)
        work.cut()
    return work

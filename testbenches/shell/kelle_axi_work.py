"""Work of Kelle with the AXI shell: a text of real layers, cut into jobs, and its results."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import Integers, KelleModel, Step
from golden.kelle.whole_model import IntegerVocabulary, vocabulary_sums
from golden.shell.kelle_axi import KelleProgram, placement_words
from golden.shell.meadow_axi import prediction_tokens
from golden.shell.shell_jobs import Bytes, padded, program_words
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from testbenches.kelle.step_cycles import roofline
from testbenches.kelle.text_layers import open_layers
from testbenches.shell.kelle_text import KelleText
from testbenches.shell.shell_work import Job, Work

WAITING = 8
"""Most tokens that a text waits for a request of an input vector."""


class KelleWork(Work):
    """A text whose first job loads the prefill; its tokens pass through all layers.

    Members
    -------
    stores : int
        Input vectors that the accelerator has requested.
    """

    written = ("inputs", "outputs", "placements")
    on_chip = True

    def __init__(
        self, p: KelleAxiParameters, text: KelleText, prefilled: int, states: Integers
    ) -> None:
        super().__init__()
        self.p, self.text, self.states = p, text, states
        self.position, self.stores = prefilled, 0
        self.models = [KelleModel(p.kelle, layer, n) for n, layer in enumerate(text.layers)]
        prefills = [prefill(model, prefilled) for model in self.models]
        self.program = text.begin(prefills, self.models)
        self._tokens: list[int | None] = []
        # The inputs that are written before the text, and all of them; then the last job's.
        self._inputs = [text.recent_inputs(layer, prefilled) for layer in text.layers]
        self._places: dict[int, Bytes] = {}
        for layer, inputs in enumerate(self._inputs):
            self._places |= {
                text.place(layer, position): text.input_words(own)
                for position, own in inputs.items()
            }
        self._first, self._last = dict(self._places), set[int]()
        # The words of each job at the regions that begin with its first word.
        self._results: dict[str, list[Bytes]] = {"outputs": [], "placements": []}
        self._steps: list[Step] = []
        self._ideal = 0

    @property
    def ideal_cycles(self) -> int:
        """Cycles of all loads of tiles, keys and values."""
        return self._ideal

    def add_token(self, *, predict: bool = False) -> None:
        """Decode the next token."""
        p, position = self.p, self.position
        state = self.states[position]
        self.text.add_token(self.program, position, state, predict=predict)
        for number, model in enumerate(self.models):
            step = model.step(position, state)
            self._inputs[number][position] = step.normalised
            place = self.text.place(number, position)
            self._places[place] = self.text.input_words(step.normalised)
            self._last.add(place)
            if step.store:
                self.stores += 1
                stored, vector = step.store
                model.inputs[vector] = self._inputs[number][stored]
                self._last.add(self.text.place(number, stored))
            self._steps.append(step)
            self._ideal += roofline(p.kelle, p.layer_words, 1)
            state = step.output
        if predict:
            assert self.text.vocabulary is not None
            sums = vocabulary_sums(self.text.vocabulary, state, p.kelle)
            token = int(sums.argmax())
            self._tokens += prediction_tokens([(token, int(sums[token]))])
            self._ideal += p.vocabulary_words
        self.position += 1

    def cut(self) -> None:
        """End a job after the tokens so far."""
        self.jobs.append(Job(self.program.words, self._tokens))
        self.program, self._tokens = KelleProgram(self.p), []
        outputs = [self.text.input_words(step.output) for step in self._steps]
        placements = placement_words(
            self.p, [one for step in self._steps for one in step.placements]
        )
        self._results["outputs"].append(np.concatenate(outputs))
        self._results["placements"].append(program_words(placements, self.p.regions["placements"]))
        self._job_places, self._last = self._last, set()
        self._steps = []

    def images(self, p: KelleAxiParameters) -> dict[str, Any]:
        """Return the words of each region at the beginning, up to the last one that is used."""
        found = {"weights": padded(self.text.weight_words(), p.regions["weights"])}
        inputs = 1 << p.input_layout.size
        for region, size in p.regions.items():
            if region in p.program:
                count = max(len(job.words[region]) for job in self.jobs)
            elif region in self._results:
                count = max(map(len, self._results[region]))
            else:
                count = inputs
            found.setdefault(region, np.zeros((count, size), np.uint8))
        self._write_inputs(found["inputs"], self._first)
        return found

    def _write_inputs(self, words: Bytes, places: Mapping[int, Bytes]) -> None:
        for place, own in places.items():
            words[place : place + len(own), : own.shape[1]] = own

    def results(self, p: KelleAxiParameters, images: Mapping[str, Any]) -> dict[str, Any]:
        """Return the words of the regions that the jobs write, at the end."""
        found = {name: images[name].copy() for name in self.written}
        self._write_inputs(found["inputs"], self._places)
        for name, jobs in self._results.items():
            for words in jobs:
                found[name][: len(words), : words.shape[1]] = words
        return found

    def unread(self, p: KelleAxiParameters, region: str) -> int:
        """Return how many words at the end of a region the last job does not use."""
        if region == "inputs":
            used = max(self._job_places) + p.kelle.hidden_slices
            return (1 << p.input_layout.size) - used
        if region == "weights":
            return 0 if self.jobs[-1].tokens else p.vocabulary_words
        words = self._results[region]
        return max(map(len, words)) - len(words[-1])


def kelle_text(p: KelleAxiParameters, rng: np.random.Generator) -> tuple[KelleText, Integers]:
    """Return layers of SmolLM2 with a random LM head, and the hidden states of a text."""
    k = p.kelle
    layers, vocabulary = open_layers(k), None
    if k.vocabulary_size:
        top = 1 << k.weight_bits - 1
        matrix = rng.integers(-top, top, (k.hidden_size, k.vocabulary_size), np.int8)
        vocabulary = IntegerVocabulary(matrix=matrix, epsilon=layers[-1].epsilon, step=1.0)
    return KelleText(p, layers, vocabulary), layers[0].quantised_states


def text_work(p: KelleAxiParameters, rng: np.random.Generator, *, jobs: int = 2) -> KelleWork:
    """Return jobs with predictions; at the presets, the first one also requests an input vector."""
    text, states = kelle_text(p, rng)
    # The cache is full, and the text so long that the small presets request a vector at once.
    work = KelleWork(p, text, p.kelle.slots + p.kelle.window, states)
    predicts = p.kelle.vocabulary_size > 0
    for job in range(jobs):
        work.add_token(predict=predicts)
        if job == 0:
            # With other parameters, tokens may never become popular.
            left = p.kelle.context_length - work.position - jobs - 1
            for _ in range(min(WAITING, left)):
                if not work.stores:
                    work.add_token()
            # This token is computed with the recomputed one.
            work.add_token()
        work.cut()
    return work

"""P3-LLM speaks: layer by layer from the banks of a pseudo-channel, token by token."""

import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import LanguageModel
from golden.p3llm.dram_image import cache_image
from golden.p3llm.whole_model import BlockResult, QuantisedModel, WholeModel, quantised_model
from hdl.p3llm.parameters import P3llmParameters
from hdl.parameters import require
from systola.generation.model_memory import model_arrays
from systola.generation.system import (
    Block,
    Mismatch,
    Moving,
    Outcome,
    Settings,
    System,
    first_difference,
)
from testbenches.harness import Moved
from testbenches.p3llm.speech import Speech


class P3llmSystem(System):
    """P3-LLM with all layers of a model and the vocabulary in one pseudo-channel.

    There is no prefill: the prompt is decoded token by token. What a prefill would find, the
    smoothing factors of the keys, comes from a text that is read before.
    """

    top, name = "p3llm", "P3-LLM"
    bound = "columns that all units multiply, two cycles each"
    compared = "tokens, their sums, states behind all layers, keys and values in the banks"
    evicts = False
    budgets = False

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> P3llmParameters:
        """Return the preset with the model's dimensions."""
        p: P3llmParameters = dimensions
        s = model.shape
        cls.require_epsilon(s)
        cls.require_whole_base(s)
        # One text is one request.
        require(p.batch == 1, "batch must be 1 where a text is generated", p.batch)
        require(
            p.pseudo_channels == 1,
            "pseudo_channels must be 1 where a text is generated",
            p.pseudo_channels,
        )
        return replace(
            p,
            width=s.width,
            feed_forward=-(-s.feed_forward // p.word) * p.word,
            heads=s.heads,
            kv_heads=s.kv_heads,
            head_size=s.head_size,
            base=int(s.rope_base),
            layers=s.layers,
            vocabulary=s.vocabulary,
        )

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.p: P3llmParameters
        self.longest = min(self.p.capacity, model.shape.longest_context)
        self.speech: Speech | None = None
        self.golden: WholeModel | None = None
        self.tokens: list[int] = []

    def prepare(self, report: Callable[[str], None]) -> None:
        """Compile, and bring the model to the banks' formats."""
        self.compile(report)
        tokens = self.model.calibration(self.longest)
        file = self.folder / f"quantised-{self.model.digest[:12]}.memory"

        def found() -> dict[str, NDArray[Any]]:
            def began(layer: int) -> None:
                layers = self.model.shape.layers
                which = f"layer {layer + 1} of {layers}" if layer < layers else "the vocabulary"
                report(f"bringing {which} to 4 bits")

            return quantised_model(self.model, tokens, self.p, began).arrays()

        description = {"model": self.model.digest, "tokens": tokens, "parameters": repr(self.p)}
        self.quantised = QuantisedModel.of(model_arrays(file, description, found, report))
        if self.settings.check:
            self.golden = WholeModel(self.p, self.quantised)

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Start the program on empty caches, or on those that a checkpoint holds."""
        scratch = self._open.enter_context(
            tempfile.TemporaryDirectory(dir=self.folder, prefix="memory-")
        )
        self.speech = Speech(self.p, self.quantised, Path(scratch), self.harness)
        self._open.callback(self.speech.close)
        self.tokens = state["tokens"].tolist() if state else []
        if self.golden is not None:
            self.golden.begin()
        if state is None:
            return
        self.speech.restore(state["cached"])
        if self.golden is not None:
            self.golden.step(self.model.embedding[self.tokens], predict=False)

    def run(self, block: Block, tokens: list[int], watch: Callable[[Moving], None]) -> Outcome:
        """Take a token through the Verilog, and through the golden model at the same time."""
        assert self.speech is not None
        speech, states = self.speech, self.model.embedding[tokens].astype(np.float32)
        expected: Future[BlockResult] | None = None
        if self.golden is not None:
            expected = self._pool.submit(self.golden.step, states, predict=block.predict)
        bounds = speech.bound(block.first)
        ends = list(accumulate(bounds if block.predict else bounds[:-1]))
        before = dict(speech.counts)

        def moved(layer: int, progress: Moved, began: int) -> None:
            multiplied = progress.counts["together"] - before["together"]
            done = multiplied // self.p.units * self.p.channel.unit.pumps
            watch(
                Moving(
                    layer=layer,
                    share=min(1.0, done / ends[-1]),
                    cycles=progress.cycle - began,
                    seconds=progress.seconds,
                )
            )

        speech.run(block.first, states[0], predict=block.predict, watch=moved)
        if expected is not None:
            self._compare(expected.result())
        self.tokens += tokens
        octets = 2 * self.p.elements
        return Outcome(
            token=speech.prediction[0] if speech.prediction else None,
            cycles=speech.cycles,
            bound=ends[-1],
            octets_read=octets * (speech.columns["together"] + speech.columns["alone"]),
            octets_written=octets * speech.columns["written"],
            seconds=speech.seconds,
        )

    def _compare(self, expected: BlockResult) -> None:
        """Compare the state behind each layer, its keys and values, then the prediction."""
        assert self.speech is not None and self.golden is not None
        for number, own in enumerate(self.speech.layers):
            wanted, found = (
                state.view(np.uint32) for state in (expected.states[number, -1], own.state)
            )
            if difference := first_difference(wanted, found, ("element",)):
                words, place = difference
                cycle = own.cycles[place[0] // self.p.lanes]
                raise Mismatch(f"layer {number}, state behind it, {words}, in cycle {cycle}")
        for number, cached in enumerate(self.speech.cached):
            wanted = cache_image(self.p, self.golden.caches[number])
            if difference := first_difference(wanted, cached, ("position", "unit", "octet")):
                raise Mismatch(f"layer {number}, keys and values, {difference[0]}")
        if self.speech.prediction is not None and expected.sums is not None:
            token = expected.token
            prediction = token, int(expected.sums[-1].view(np.uint32)[token])
            if prediction != self.speech.prediction:
                raise Mismatch(
                    f"vocabulary, token and sum: {self.speech.prediction} instead of {prediction}"
                )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the tokens that have gone through, and the bytes of keys and values."""
        assert self.speech is not None
        return {
            "tokens": np.array(self.tokens, np.int64),
            "cached": np.stack(self.speech.cached),
        }

"""Kelle speaks: a prefill of one token, then whole layers token by token, and the vocabulary."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.utils import ceil_log2
from numpy.typing import NDArray

from golden.kelle.whole_model import (
    IntegerModel,
    TokenResult,
    WholeModel,
    first_states,
    integer_model,
)
from golden.llm.language_model import LanguageModel
from hdl.errors import UserError
from hdl.kelle.parameters import KelleParameters
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
from testbenches.kelle.speech import Speech


class KelleSystem(System):
    """Kelle with all layers of a model, whose caches are all in the KV eDRAM.

    The first token of a text is a prefill, which comes from outside; every further one is decoded.
    What is cached is in the accelerator alone: a run goes on by taking its text through once more.
    """

    top, name = "kelle", "Kelle"
    bound = "beats of weights, keys and values"
    compared = "tokens, their sums, states behind all layers, slots and victims"
    evicts = True
    budgets = False

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> KelleParameters:
        """Return the preset with the model's dimensions, and an eDRAM that holds all layers."""
        p: KelleParameters = dimensions
        s = model.shape
        cls.require_epsilon(s)
        cls.require_whole_base(s)
        if s.heads * s.head_size != s.width:
            raise UserError(
                f"the heads of a model for Kelle must be as wide as its hidden state, {s.width}, "
                f"not {s.heads} times {s.head_size}"
            )
        one = replace(
            p,
            head_size=s.head_size,
            layers=1,
            heads=s.kv_heads,
            queries=s.heads // s.kv_heads,
            feed_forward=-(-s.feed_forward // s.head_size) * s.head_size,
            base=int(s.rope_base),
            vocabulary=s.vocabulary,
        )
        # A layer's slots and input vectors, as often as there are layers.
        needed = s.layers * one.memory.edram.entries * one.memory.edram.entry_words
        words = max(p.words, 1 << ceil_log2(needed))
        return replace(one, layers=s.layers, words=words)

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.p: KelleParameters
        self.longest = min(1 << self.p.position_bits, model.shape.longest_context)
        self.speech: Speech | None = None
        self.golden: WholeModel | None = None
        self.tokens: list[int] = []

    def prepare(self, report: Callable[[str], None]) -> None:
        """Compile, and bring the model to integers."""
        self.compile(report)
        tokens = self.model.calibration(self.longest)
        file = self.folder / f"integers-{self.model.digest[:12]}.memory"

        def found() -> dict[str, NDArray[Any]]:
            def began(layer: int) -> None:
                report(f"bringing layer {layer + 1} of {self.model.shape.layers} to integers")

            return integer_model(self.model, tokens, self.p, began).arrays()

        names = ("head_size", "heads", "queries", "feed_forward", "weight_bits", "activation_bits")
        shape = {name: getattr(self.p, name) for name in names}
        description = {"model": self.model.digest, "tokens": tokens, **shape}
        self.integers = IntegerModel.of(model_arrays(file, description, found, report))
        self.golden = WholeModel(self.p, self.integers)

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Start the program; take the tokens of a checkpoint through it once more."""
        self.speech = Speech(self.p, self.integers, self.harness)
        self._open.callback(self.speech.close)
        self.tokens = []
        for token in state["tokens"].tolist() if state else []:
            self._take(token, predict=False)

    def prompt_blocks(self, tokens: int) -> list[Block]:
        """Return token by token, of which the first one is a prefill."""
        if tokens < 2:
            raise UserError(
                "PROMPT must hold at least two tokens for Kelle: the first is a prefill"
            )
        return super().prompt_blocks(tokens)

    def run(self, block: Block, tokens: list[int], watch: Callable[[Moving], None]) -> Outcome:
        """Take a token through the Verilog, and through the golden model at the same time."""
        assert self.speech is not None
        self._take(tokens[0], predict=block.predict, watch=watch)
        speech = self.speech
        bound = sum(speech.bound if block.predict else speech.bound[:-1])
        return Outcome(
            token=speech.prediction[0] if speech.prediction else None,
            cycles=speech.cycles,
            bound=bound if block.first else 0,
            octets_read=speech.octets_read,
            octets_written=speech.octets_written,
            evictions=[
                (layer, placement.slot)
                for layer, step in enumerate(speech.layers)
                for placement in step.placements
                if placement.evicted >= 0
            ],
            seconds=speech.seconds,
        )

    def _take(
        self, token: int, *, predict: bool, watch: Callable[[Moving], None] = lambda moving: None
    ) -> None:
        """Let the next token through."""
        assert self.speech is not None and self.golden is not None
        position = len(self.tokens)
        self.tokens.append(token)
        if position == 0:
            prefills = self.golden.begin(first_states(self.model, token))
            self.speech.begin(prefills, self.golden.layers)
            return
        state = self.integers.embedded(self.model.embedding[token], self.p)
        expected: Future[TokenResult] | None = None
        if self.settings.check:
            expected = self._pool.submit(self.golden.step, position, state, predict=predict)
        ends = list(accumulate(self.speech.beats if predict else self.speech.beats[:-1]))

        def moved(layer: int, progress: Moved, began: int) -> None:
            done = progress.counts["weights"] + (ends[layer - 1] if layer else 0)
            share, cycles = min(1.0, done / ends[-1]), progress.cycle - began
            watch(Moving(layer=layer, share=share, cycles=cycles, seconds=progress.seconds))

        self.speech.run(position, state, predict=predict, watch=moved)
        if expected is not None:
            self._compare(expected.result())

    def _compare(self, expected: TokenResult) -> None:
        """Compare what each layer made visible, then the prediction."""
        assert self.speech is not None
        for number, (own, step) in enumerate(zip(self.speech.layers, expected.steps, strict=True)):
            for name, wanted, found in (
                ("attention's input", step.normalised, own.normalised),
                ("state behind it", step.output, own.output),
            ):
                if difference := first_difference(wanted, found, ("element",)):
                    words, place = difference
                    cycle = own.cycles[place[0] // self.p.rows]
                    raise Mismatch(f"layer {number}, {name}, {words}, in cycle {cycle}")
            for name, wanted, found in (
                ("placements", step.placements, own.placements),
                ("popular token", step.store, own.store),
            ):
                if wanted != found:
                    raise Mismatch(f"layer {number}, {name}: {found} instead of {wanted}")
        if self.speech.prediction is not None and expected.sums is not None:
            wanted = expected.token, int(expected.sums.max())
            if wanted != self.speech.prediction:
                raise Mismatch(
                    f"vocabulary, token and sum: {self.speech.prediction} instead of {wanted}"
                )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the tokens that have gone through."""
        return {"tokens": np.array(self.tokens, np.int64)}

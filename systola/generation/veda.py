"""VEDA speaks: its instructions, its memory outside, and its golden model beside it."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.llm.language_model import LanguageModel
from golden.llm.layers import LayerWeights
from golden.veda import whole_model
from golden.veda.decoder_layer import folded
from golden.veda.whole_model import BlockResult, WholeModel
from hdl.errors import UserError
from hdl.veda.parameters import VedaParameters
from systola.generation.model_memory import model_memory
from systola.generation.system import (
    Block,
    Mismatch,
    Moving,
    Outcome,
    Settings,
    System,
    first_difference,
)
from testbenches.harness import LongRun, Moved
from testbenches.veda.model_lines import CacheFile, fixed_space, model_pieces, octets_of_line
from testbenches.veda.speech import Speech


class VedaSystem(System):
    """VEDA with all layers of a model; `prompt_blocks` and `next_block` are its schedule."""

    top, name = "veda", "VEDA"
    bound = "lines that the arrays meet"
    compared = "tokens, caches, votes and victims"
    evicts = True

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> VedaParameters:
        """Return the preset with the model's dimensions."""
        p: VedaParameters = dimensions
        s = model.shape
        cls.require_epsilon(s)
        return replace(
            p,
            head_size=s.head_size,
            heads=s.heads,
            kv_heads=s.kv_heads,
            # Room for more layers than there are costs a few words of the slot table.
            layers=max(p.layers, s.layers),
            hidden_size=s.width,
            feed_forward_size=-(-s.feed_forward // p.row) * p.row,
            vocabulary=s.vocabulary,
        )

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.p: VedaParameters
        if not 2 <= settings.budget <= self.p.capacity:
            raise UserError(
                f"BUDGET must be from 2 to the {self.p.capacity} tokens that a layer caches, not "
                f"{settings.budget}"
            )
        self.longest = min(self.p.positions, model.shape.longest_context)
        self.speech: Speech | None = None
        self.golden: WholeModel | None = None

    def prepare(self, report: Callable[[str], None]) -> None:
        """Compile, write the lines, and read the matrices for the golden model."""
        p, model = self.p, self.model
        self.compile(report)
        report("reading the model's matrices")
        weights = [self._padded(model.layer(number)) for number in range(model.shape.layers)]
        vocabulary = codes(model.projection())
        self.embedding = codes(model.embedding)
        self.golden = WholeModel(p, weights, vocabulary, model.shape.rope_base)
        first = fixed_space(p)
        self.lines = self.folder / f"lines-{model.digest[:12]}.memory"

        def pieces() -> Iterable[tuple[int, NDArray[np.uint8]]]:
            octets = octets_of_line(p)
            parts = model_pieces(p, weights, vocabulary, model.shape.rope_base, self.longest)
            for address, lines in parts:
                yield (address - first) * octets, lines

        description = {"model": model.digest, "parameters": repr(p), "longest": self.longest}
        model_memory(self.lines, description, pieces, report)

    def _padded(self, weights: LayerWeights) -> LayerWeights:
        """Return matrices as codes, with the columns of zeros that fill the arrays."""
        missing = self.p.feed_forward_size - weights.gate.shape[1]
        padded = folded(
            replace(
                weights,
                gate=np.pad(weights.gate, ((0, 0), (0, missing))),
                up=np.pad(weights.up, ((0, 0), (0, missing))),
                down=np.pad(weights.down, ((0, missing), (0, 0))),
            )
        )
        for name, matrix in vars(padded).items():
            if not np.isfinite(matrix.view(np.float16)).all():
                raise UserError(f"the matrices of a model must fit FP16; {name} does not")
        return padded

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Start the program on an empty cache, or on one that a checkpoint holds."""
        layers = self.model.shape.layers
        self._remove_stale()
        file = self.folder / f"cache-{os.getpid()}.memory"
        self._open.callback(file.unlink, missing_ok=True)
        cache = CacheFile(file, self.p, layers)
        self.speech = Speech(
            self.p, layers, cache, [(self.lines, fixed_space(self.p))], self.harness
        )
        self._open.callback(self.speech.close)
        if state is None:
            return
        self.speech.restore(state)
        assert self.golden is not None
        for number, layer in enumerate(self.golden.layers):
            length = state["keys"].shape[2]
            layer.cache.fill(
                state["keys"][number], state["values"][number], state["counts"][number]
            )
            victim = int(state["victims"][number])
            layer.cache.victim = None if victim < 0 else victim
            layer.cache.stepped = length > 0

    def _remove_stale(self) -> None:
        """Remove the caches of processes that were killed."""
        for file in self.folder.glob("cache-*.memory"):
            if not Path("/proc", file.stem.removeprefix("cache-")).exists():
                file.unlink(missing_ok=True)

    def prompt_blocks(self, tokens: int) -> list[Block]:
        """Return blocks of the accelerator's size, and the last token by itself."""
        if tokens > self.p.capacity:
            raise UserError(
                f"PROMPT must have at most the {self.p.capacity} tokens that a layer caches, not "
                f"{tokens}"
            )
        s = self.settings
        plans = whole_model.prompt_blocks(
            tokens, block=self.p.block, budget=s.budget, reserved=s.reserved
        )
        return [self._block(plan) for plan in plans]

    def next_block(self, position: int) -> Block:
        """Return a token by itself, which evicts one when the budget is used up."""
        assert self.speech is not None
        s = self.settings
        return self._block(
            whole_model.next_block(
                position, cached=self.speech.cached, budget=s.budget, reserved=s.reserved
            )
        )

    @staticmethod
    def _block(plan: whole_model.Block) -> Block:
        return Block(first=plan.first, count=plan.count, predict=plan.predict, plan=plan)

    def run(self, block: Block, tokens: list[int], watch: Callable[[Moving], None]) -> Outcome:
        """Take a block through the Verilog, and through the golden model at the same time."""
        assert self.speech is not None and self.golden is not None
        states = self.embedding[tokens]
        expected: Future[BlockResult] | None = None
        if self.settings.check:
            expected = self._pool.submit(self.golden.step, block.plan, states)

        def moved(progress: Moved) -> None:
            watch(self._moving(progress))

        run = self.speech.run(block.plan, states, moved)
        if expected is not None:
            self._compare(run, expected.result())
        octets = octets_of_line(self.p)
        return Outcome(
            token=self.speech.prediction[0] if self.speech.prediction else None,
            cycles=run.cycle,
            bound=self.speech.bound,
            octets_read=self.speech.lines_read * self.p.channels * octets,
            octets_written=len(run.writes) * octets,
            evictions=self.speech.evictions,
            seconds=run.seconds,
        )

    def _moving(self, progress: Moved) -> Moving:
        """Say how far a block is by the lines that memory has given."""
        assert self.speech is not None
        done, layer = progress.counts["beats"] - self.speech.lines_before, 0
        total = sum(self.speech.lines_of_layers)
        left = done
        for lines in self.speech.lines_of_layers:
            if left < lines:
                break
            left -= lines
            layer += 1
        return Moving(
            layer=min(layer, self.model.shape.layers),
            share=min(1.0, done / total),
            cycles=progress.cycle - self.speech.cycle_before,
            seconds=progress.seconds,
        )

    def _compare(self, run: LongRun, expected: BlockResult) -> None:
        """Compare caches, votes and victims layer by layer, then what left."""
        assert self.speech is not None and self.golden is not None
        for number, layer in enumerate(self.golden.layers):
            length = layer.cache.length
            for name, own in (("keys", layer.cache.keys), ("values", layer.cache.values)):
                found = self.speech.cache.heads(number, value=name == "values", length=length)
                axes = ("KV head", "slot", "element")
                if difference := first_difference(own[:, :length], found, axes):
                    words, place = difference
                    cycle = self.speech.written_at(run, number, place, value=name == "values")
                    raise Mismatch(f"layer {number}, {name}, {words}{cycle}")
            counts = self.speech.counts[number][:length].astype(np.int64)
            if difference := first_difference(layer.cache.counts[:length], counts, ("slot",)):
                raise Mismatch(f"layer {number}, votes, {difference[0]}")
            victims = [slot for own, slot in self.speech.evictions if own == number]
            if victims != expected.steps[number][-1].victims:
                raise Mismatch(
                    f"layer {number}, victims: {victims} instead of "
                    f"{expected.steps[number][-1].victims}"
                )
        self._compare_end(run, expected)

    def _compare_end(self, run: LongRun, expected: BlockResult) -> None:
        """Compare the hidden states behind the last layer, or the token that follows."""
        assert self.speech is not None
        if expected.token is not None and expected.logits is not None:
            wanted = expected.token, int(expected.logits[expected.token])
            if wanted != self.speech.prediction:
                raise Mismatch(
                    f"vocabulary, token and sum: {self.speech.prediction} instead of {wanted}, in "
                    f"cycle {run.cycles['predictions'][0]}"
                )
            return
        left = self.speech.states_left
        if difference := first_difference(expected.states[-1], left, ("token", "element")):
            token, element = difference[1]
            cycle = run.cycles["states_out"][token * left.shape[1] + element]
            raise Mismatch(
                f"behind the last layer, hidden state, {difference[0]}, in cycle {cycle}"
            )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return caches, votes and victims."""
        assert self.speech is not None
        return self.speech.state()

"""Text generation with VEDA: its schedule, its off-chip memory, and the golden model."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import values
from golden.llm.language_model import LanguageModel
from golden.llm.layers import LayerWeights
from golden.llm.layers import padded as layer_padded
from golden.veda import whole_model
from golden.veda.decoder_layer import folded
from golden.veda.veda import Codes
from golden.veda.whole_model import BlockResult, WholeModel
from hdl.errors import UserError
from hdl.model_shape import fitted
from hdl.veda.parameters import VedaParameters
from systola.generation.model_memory import model_memory
from systola.generation.system import (
    Block,
    BlockProgress,
    Mismatch,
    Outcome,
    Settings,
    System,
    first_difference,
    half_codes,
    require_finite,
)
from testbenches.long_run import Moved
from testbenches.veda.driver import Driver, Round
from testbenches.veda.host import Host
from testbenches.veda.model_lines import CacheFile, bytes_of_line, fixed_space, model_pieces


class VedaSystem(System):
    """VEDA with all layers of a model; `prompt_blocks` and `next_block` are its schedule."""

    top, name = "veda", "VEDA"
    bound = "lines that the arrays multiply"
    compared = "tokens, caches, votes and victims"
    evicts = True

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> VedaParameters:
        """Return the preset with the model's dimensions."""
        p: VedaParameters = dimensions
        # Spare layers cost a few words of the slot table.
        layers = max(p.layers, model.shape.layers)
        return fitted(
            p,
            model.shape,
            multiple=p.row_elements,
            layers=layers,
            rotary=True,
            layer_norm=False,
            biases=False,
            gated=True,
        )

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.p: Any
        if not 2 <= settings.budget <= self.veda.slots:
            raise UserError(
                f"BUDGET must be from 2 to the {self.veda.slots} tokens that a layer caches, not "
                f"{settings.budget}"
            )
        self.longest = min(self.veda.context_length, model.shape.context_length)
        self.host: Driver | None = None
        self.golden: WholeModel | None = None

    @property
    def veda(self) -> VedaParameters:
        """Dimensions of VEDA itself."""
        return self.p

    def prepare_golden(self, report: Callable[[str], None]) -> None:
        """Read the matrices for the golden model."""
        model = self.model
        report("reading the model's matrices")
        self.weights = [self._padded(model.layer(number)) for number in range(model.shape.layers)]
        self.vocabulary = half_codes(self.name, "the LM head", model.projection())
        self.embedding = half_codes(self.name, "the embedding", model.embedding)
        self.golden = WholeModel(self.veda, self.weights, self.vocabulary, model.shape.rope_base)

    def prepare(self, report: Callable[[str], None]) -> None:
        """Compile, build the golden model, and write the memory lines."""
        super().prepare(report)
        p, first = self.veda, fixed_space(self.veda)

        def pieces() -> Iterable[tuple[int, NDArray[np.uint8]]]:
            size = bytes_of_line(p)
            base = self.model.shape.rope_base
            parts = model_pieces(p, self.weights, self.vocabulary, base, self.longest)
            for address, lines in parts:
                yield (address - first) * size, lines

        self.kept = self.model_file("lines")
        self.lines = model_memory(self.kept, pieces, report)

    def _padded(self, weights: LayerWeights) -> LayerWeights:
        """Return a layer's matrices as codes, padded with zeros to the arrays' width."""
        with np.errstate(over="ignore"):
            padded = folded(layer_padded(weights, self.veda.intermediate_size))
        for name, matrix in vars(padded).items():
            if not np.isfinite(matrix.view(np.float16)).all():
                raise UserError(
                    f"the matrices of a model for {self.name} must fit FP16; {name} does not"
                )
        return padded

    def logits(self, tokens: list[int]) -> NDArray[np.floating]:
        """Decode all tokens by the schedule of generated tokens."""
        golden = WholeModel(self.veda, self.weights, self.vocabulary, self.model.shape.rope_base)
        found: list[NDArray[np.floating]] = []
        cached = 0
        for position, token in enumerate(tokens):
            block = whole_model.next_block(
                position,
                cached=cached,
                budget=self.settings.budget,
                reserved=self.settings.reserved,
            )
            result = golden.step(block, self.embedding[[token]])
            assert result.logits is not None
            found.append(self.veda.array.sum_format.decode(result.logits))
            cached += 1 - block.evictions
        return np.stack(found)

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Start the program on an empty cache, or on the cache of a checkpoint."""
        layers = self.model.shape.layers
        self._remove_stale()
        file = self.folder / f"cache-{os.getpid()}.memory"
        self._open.callback(file.unlink, missing_ok=True)
        cache = CacheFile(file, self.veda, layers)
        fixed = [(self.lines, fixed_space(self.veda))]
        host = Host(self.veda, layers, cache, fixed, self.harness, external=self.external)
        self.host = self.harness_host = host
        self._open.callback(host.close)
        if state is not None:
            self.restore(state)

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore the caches of the accelerator and of the golden model."""
        assert self.host is not None and self.golden is not None
        self.host.restore(state)
        for number, layer in enumerate(self.golden.layers):
            length = state["keys"].shape[2]
            layer.cache.fill(
                state["keys"][number], state["values"][number], state["counts"][number]
            )
            victim = int(state["victims"][number])
            layer.cache.victim = None if victim < 0 else victim
            layer.cache.stepped = length > 0

    def _remove_stale(self) -> None:
        """Remove the cache files of killed processes."""
        for file in self.folder.glob("cache-*.memory"):
            if not Path("/proc", file.stem.removeprefix("cache-")).exists():
                file.unlink(missing_ok=True)

    def prompt_blocks(self, tokens: int) -> list[Block]:
        """Return blocks of the accelerator's size, and a block of one for the last token."""
        if tokens > self.veda.slots:
            raise UserError(
                f"PROMPT must have at most the {self.veda.slots} tokens that a layer caches, not "
                f"{tokens}"
            )
        s = self.settings
        plans = whole_model.prompt_blocks(
            tokens, block=self.veda.block, budget=s.budget, reserved=s.reserved
        )
        return [self._block(plan) for plan in plans]

    def next_block(self, position: int) -> Block:
        """Return a block of one token, which evicts one when the cache has reached the budget."""
        assert self.host is not None
        s = self.settings
        return self._block(
            whole_model.next_block(
                position, cached=self.host.cached, budget=s.budget, reserved=s.reserved
            )
        )

    @staticmethod
    def _block(plan: whole_model.Block) -> Block:
        return Block(first=plan.first, count=plan.count, predict=plan.predict, plan=plan)

    def run(
        self, block: Block, tokens: list[int], watch: Callable[[BlockProgress], None]
    ) -> Outcome:
        """Run a block through the Verilog, and through the golden model at the same time."""
        assert self.host is not None and self.golden is not None
        states = self.embedding[tokens]
        expected: Future[BlockResult] | None = None
        if self.settings.check:
            expected = self._pool.submit(self.golden.step, block.plan, states)

        done, read, written = self._executed(block.plan, states, watch)
        if expected is not None:
            self._compare(done, expected.result())
        return Outcome(
            token=self.host.prediction[0] if self.host.prediction else None,
            cycles=done.cycles,
            bound=self.host.bound,
            bytes_read=read,
            bytes_written=written,
            evictions=self.host.evictions,
            seconds=done.seconds,
        )

    def _executed(
        self, plan: whole_model.Block, states: Codes, watch: Callable[[BlockProgress], None]
    ) -> tuple[Round, int, int]:
        """Execute a block; return its results, and the bytes that it read and wrote."""
        host = self.harness_host

        def moved(progress: Moved) -> None:
            lines = progress.counts["beats"] - host.lines_before
            cycles = progress.cycle - host.cycle_before
            watch(self._progress(lines, cycles, progress.seconds))

        done = host.run(plan, states, moved)
        assert done.run is not None
        size = bytes_of_line(self.veda)
        read = host.lines_read * self.veda.channels * size
        return done, read, len(done.run.writes) * size

    def _progress(self, lines: int, cycles: int, seconds: float) -> BlockProgress:
        """Compute a block's progress from the lines that the memory has delivered."""
        assert self.host is not None
        layer = 0
        total = sum(self.host.lines_of_layers)
        left = lines
        for own in self.host.lines_of_layers:
            if left < own:
                break
            left -= own
            layer += 1
        return BlockProgress(
            layer=min(layer, self.model.shape.layers),
            fraction=min(1.0, lines / total),
            cycles=cycles,
            seconds=seconds,
        )

    def _compare(self, done: Round, expected: BlockResult) -> None:
        """Compare caches, votes and victims of each layer, then the last output."""
        assert self.host is not None and self.golden is not None
        require_finite(self.name, values(expected.states[1:]))
        for number, layer in enumerate(self.golden.layers):
            length = layer.cache.length
            for name, own in (("keys", layer.cache.keys), ("values", layer.cache.values)):
                found = self.host.cache.heads(number, value=name == "values", length=length)
                axes = ("KV head", "slot", "element")
                if difference := first_difference(own[:, :length], found, axes):
                    words, place = difference
                    cycle = self.host.written_at(done, number, place, value=name == "values")
                    raise Mismatch(f"layer {number}, {name}, {words}{cycle}")
            counts = self.host.counts[number][:length].astype(np.int64)
            if difference := first_difference(layer.cache.counts[:length], counts, ("slot",)):
                raise Mismatch(f"layer {number}, votes, {difference[0]}")
            victims = [slot for own, slot in self.host.evictions if own == number]
            if victims != expected.steps[number][-1].victims:
                raise Mismatch(
                    f"layer {number}, victims: {victims} instead of "
                    f"{expected.steps[number][-1].victims}"
                )
        self._compare_end(done, expected)

    def _compare_end(self, done: Round, expected: BlockResult) -> None:
        """Compare the hidden states after the last layer, or the predicted token."""
        assert self.host is not None
        if expected.token is not None and expected.logits is not None:
            wanted = expected.token, int(expected.logits[expected.token])
            if wanted != self.host.prediction:
                raise Mismatch(
                    f"LM head, token and sum: {self.host.prediction} instead of {wanted}"
                    f"{done.time_of('predictions', 0)}"
                )
            return
        left = self.host.states_left
        if difference := first_difference(expected.states[-1], left, ("token", "element")):
            token, element = difference[1]
            cycle = done.time_of("states_out", token * left.shape[1] + element)
            raise Mismatch(f"after the last layer, hidden state, {difference[0]}{cycle}")

    def cached_state(self, tokens: list[int]) -> dict[str, NDArray[Any]]:
        """Return the caches after a text, of which no token is evicted."""
        golden = WholeModel(self.veda, self.weights, self.vocabulary, self.model.shape.rope_base)
        for position, token in enumerate(tokens):
            block = whole_model.Block(
                first=position,
                count=1,
                vote=position >= self.settings.reserved,
                evictions=0,
                predict=False,
            )
            golden.step(block, self.embedding[[token]])
        caches, length = [layer.cache for layer in golden.layers], len(tokens)
        return {
            "keys": np.stack([own.keys[:, :length] for own in caches]),
            "values": np.stack([own.values[:, :length] for own in caches]),
            "counts": np.stack([own.counts[:length] for own in caches]).astype(np.uint64),
            "victims": np.full(len(caches), -1),
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return caches, votes and victims."""
        assert self.host is not None
        return self.host.state()

"""Text generation with Kelle: a prefill of one token, then blocks of tokens, and the LM head."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.utils import ceil_log2
from numpy.typing import NDArray

from golden.kelle.edram.retention_times import RETENTIONS
from golden.kelle.eviction.prefill import Prefill
from golden.kelle.kelle import Integers
from golden.kelle.lost_bits import Entry
from golden.kelle.whole_model import (
    IntegerModel,
    TokenResult,
    WholeModel,
    first_states,
    integer_model,
)
from golden.llm.language_model import LanguageModel
from golden.llm.layers import rms_norm
from hdl.errors import UserError
from hdl.kelle.edram.refresh_intervals import RefreshIntervals
from hdl.kelle.parameters import KelleParameters
from hdl.model_shape import fitted
from systola.generation.model_memory import model_arrays
from systola.generation.system import (
    Block,
    BlockProgress,
    Mismatch,
    Outcome,
    Settings,
    System,
    first_difference,
)
from testbenches.kelle.host import Host
from testbenches.kelle.layer_run import LayerRun
from testbenches.long_run import Moved

TICK_BITS = 20
"""Bits of a tick of 0.36 ms, up to 2.9 GHz."""


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """Results of a block; none for the prefill of the first token.

    Members
    -------
    layers : list[list[LayerRun]]
        For each token, the results of each layer.
    prediction : tuple[int, int] | None
        The predicted token, and its sum.
    cycles, bound, bytes_read, bytes_written, seconds
        As in `Outcome`.
    """

    layers: list[list[LayerRun]] = field(default_factory=list)
    prediction: tuple[int, int] | None = None
    cycles: int = 0
    bound: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0


class KelleSystem(System):
    """Kelle with all layers of a model; the KV eDRAM holds all caches.

    The host computes the prefill of a text's first token; the accelerator decodes all further
    tokens, those of the prompt in blocks of as many tokens as a step may have. Only the accelerator
    holds the caches: a resumed run decodes its text again.
    """

    top, name = "kelle", "Kelle"
    bound = "beats of weights, keys and values"
    compared = "tokens, their sums, states after all layers, slots and victims"
    evicts = True
    budgets = False
    retentions: Sequence[str] = tuple(RETENTIONS)
    shows_stores = True
    """Whether the accelerator shows which tokens become popular."""

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> KelleParameters:
        """Return the preset with the model's dimensions, and an eDRAM that holds all layers.

        The refresh controllers can count the paper's intervals.
        """
        p: KelleParameters = dimensions
        s = model.shape
        one = fitted(p, s, multiple=s.head_size, layers=1)
        # Every layer needs its slots and input vectors.
        needed = s.layers * one.memory.edram.entries * one.memory.edram.entry_words
        words = max(p.words, 1 << ceil_log2(needed))
        tick_bits = max(p.tick_bits, TICK_BITS)
        return replace(one, layers=s.layers, words=words, tick_bits=tick_bits)

    @classmethod
    def with_memory(cls, parameters: Any, settings: Settings) -> Any:
        """Return the parameters with the clock, which decides the cycles of an eDRAM access."""
        return (
            parameters if settings.clock is None else replace(parameters, clock_mhz=settings.clock)
        )

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.p: Any
        self.longest = min(self.kelle.context_length, model.shape.context_length)
        self.retention = RETENTIONS[settings.retention] if settings.retention else None
        intervals = self.retention.intervals if self.retention else RefreshIntervals()
        # Intervals that cannot be counted at this clock are refused here.
        refresh = self.kelle.memory.refresh
        self.refresh = intervals.settings(refresh, clock_mhz=self.kelle.clock_mhz)
        self.flips = 0
        self.host: Host | None = None
        self.golden: WholeModel | None = None
        self.tokens: list[int] = []

    @property
    def kelle(self) -> KelleParameters:
        """Dimensions of Kelle itself."""
        return self.p

    def prepare_golden(self, report: Callable[[str], None]) -> None:
        """Quantise the model to integers."""
        tokens = self.model.calibration(self.longest)

        def found() -> dict[str, NDArray[Any]]:
            def began(layer: int) -> None:
                report(f"quantising layer {layer + 1} of {self.model.shape.layers} to integers")

            return integer_model(self.model, tokens, self.kelle, began).arrays()

        self.kept = self.model_file("integers", tokens=tokens)
        self.integers = IntegerModel.of(model_arrays(self.kept, found, report))
        self.golden = WholeModel(self.kelle, self.integers, self.retention)

    @property
    def golden_identity(self) -> dict[str, Any]:
        """As in `System`, and the bits that the eDRAM loses."""
        own = super().golden_identity
        return own | {"retention": repr(self.retention)} if self.retention else own

    def logits(self, tokens: list[int]) -> NDArray[np.floating]:
        """Prefill the first token in float64, as the host does, and decode all further tokens."""
        assert self.golden is not None
        first = first_states(self.model, tokens[0])
        self.golden.begin(first)
        found: list[NDArray[np.floating]] = [rms_norm(first[-1]) @ self.model.projection()]
        for position, token in enumerate(tokens[1:], start=1):
            embedded = self.integers.embedded(self.model.embedding[token], self.kelle)
            result = self.golden.step(position, embedded)
            assert result.sums is not None
            found.append(result.sums * self.integers.vocabulary.step)
        return np.stack(found)

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Start the program; decode the tokens of a checkpoint again."""
        self.host = Host(
            self.kelle, self.integers, self.harness, self.refresh, external=self.external
        )
        self._open.callback(self.host.close)
        self.decode_again(state)

    def decode_again(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Begin a text with the tokens of a checkpoint."""
        self.tokens = []
        tokens = state["tokens"].tolist() if state else []
        for block in self._blocks(len(tokens)):
            self._take(tokens[block.first : block.first + block.count], predict=False)

    def _blocks(self, tokens: int) -> list[Block]:
        """Return the blocks of a text, of which the first one is a prefill of one token.

        The others have as many tokens as a step; one each if the eDRAM loses bits, because the host
        writes the remaining bits after each token.
        """
        most = 1 if self.retention else self.kelle.step_tokens
        return [
            Block(first=first, count=end - first, predict=end == tokens)
            for first, end in pairwise([0, *range(1, tokens, most), tokens])
            if first < end
        ]

    def prompt_blocks(self, tokens: int) -> list[Block]:
        """Return the blocks of a prompt, of which the first one is a prefill."""
        if tokens < 2:
            raise UserError(
                "PROMPT must contain at least two tokens for Kelle: the first is a prefill"
            )
        return self._blocks(tokens)

    def run(
        self, block: Block, tokens: list[int], watch: Callable[[BlockProgress], None]
    ) -> Outcome:
        """Run a block through the Verilog, and through the golden model at the same time."""
        decoded = self._take(tokens, predict=block.predict, watch=watch)
        return Outcome(
            token=decoded.prediction[0] if decoded.prediction else None,
            cycles=decoded.cycles,
            bound=decoded.bound,
            bytes_read=decoded.bytes_read,
            bytes_written=decoded.bytes_written,
            evictions=[
                (layer, placement.slot)
                for layers in decoded.layers
                for layer, step in enumerate(layers)
                for placement in step.placements
                if placement.evicted >= 0
            ],
            decided={"lost bits": self.flips} if self.retention else {},
            seconds=decoded.seconds,
        )

    def _take(
        self,
        tokens: list[int],
        *,
        predict: bool,
        watch: Callable[[BlockProgress], None] = lambda progress: None,
    ) -> Decoded:
        """Run the next tokens."""
        assert self.golden is not None
        first = len(self.tokens)
        self.tokens += tokens
        if first == 0:
            self._begin_text(self.golden.begin(first_states(self.model, tokens[0])))
            return Decoded()
        embedding = self.model.embedding
        # One by one: a product with several vectors may round otherwise.
        states = np.stack([self.integers.embedded(embedding[one], self.kelle) for one in tokens])
        expected: Future[list[TokenResult]] | None = None
        changed: list[list[Entry]] = []
        if self.settings.check:
            expected = self._pool.submit(self.golden.block, first, states, predict=predict)
        if expected is not None and self.retention:
            # The host writes the entries that lose bits with the golden model's contents.
            (result,) = expected.result()
            changed, self.flips = result.changed, result.flips
        decoded = self._decoded(states, predict=predict, changed=changed, watch=watch)
        if expected is not None:
            self._compare(decoded, expected.result())
        return decoded

    def _begin_text(self, prefills: list[Prefill]) -> None:
        """Load the prefill of the first token, whose caches the golden model holds."""
        assert self.host is not None and self.golden is not None
        self.host.begin(prefills, self.golden.layers)

    def _decoded(
        self,
        states: Integers,
        *,
        predict: bool,
        changed: list[list[Entry]],
        watch: Callable[[BlockProgress], None],
    ) -> Decoded:
        """Decode the latest of `tokens` with their embedded states."""
        host = self.host
        assert host is not None
        ends = list(accumulate(host.beats if predict else host.beats[:-1]))

        def moved(layer: int, progress: Moved, began: int) -> None:
            done = progress.counts["weights"] + (ends[layer - 1] if layer else 0)
            watch(
                BlockProgress(
                    layer=layer,
                    fraction=min(1.0, done / ends[-1]),
                    cycles=progress.cycle - began,
                    seconds=progress.seconds,
                )
            )

        first = len(self.tokens) - len(states)
        host.run(first, states, predict=predict, changed=changed, watch=moved)
        return Decoded(
            layers=host.layers,
            prediction=host.prediction,
            cycles=host.cycles,
            bound=host.bound(len(states), predict=predict),
            bytes_read=host.bytes_read,
            bytes_written=host.bytes_written,
            seconds=host.seconds,
        )

    def _compare(self, decoded: Decoded, expected: list[TokenResult]) -> None:
        """Compare the outputs of each token and layer, then the prediction."""
        for layers, result in zip(decoded.layers, expected, strict=True):
            self._compare_layers(layers, result)
        last = expected[-1]
        if decoded.prediction is not None and last.sums is not None:
            wanted = last.token, self.sum_of(int(last.sums.max()))
            if wanted != decoded.prediction:
                raise Mismatch(f"LM head, token and sum: {decoded.prediction} instead of {wanted}")

    def _compare_layers(self, layers: list[LayerRun], expected: TokenResult) -> None:
        """Compare the outputs of each layer for a token."""
        for number, (own, step) in enumerate(zip(layers, expected.steps, strict=True)):
            for name, wanted, found in (
                ("attention's input", step.normalised, own.normalised),
                ("output state", step.output, own.output),
            ):
                if difference := first_difference(wanted, found, ("element",)):
                    words, place = difference
                    if own.cycles is not None:
                        words += f", in cycle {own.cycles[place[0] // self.kelle.rows]}"
                    raise Mismatch(f"layer {number}, {name}, {words}")
            if step.placements != own.placements:
                raise Mismatch(
                    f"layer {number}, placements: {own.placements} instead of {step.placements}"
                )
            if self.shows_stores and step.store != own.store:
                raise Mismatch(
                    f"layer {number}, popular token: {own.store} instead of {step.store}"
                )

    def sum_of(self, total: int) -> int:
        """Return a sum of the LM head as the accelerator outputs it."""
        return total

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the tokens that have been processed."""
        return {"tokens": np.array(self.tokens, np.int64)}

"""Text generation with P3-LLM: decoding from the banks of one pseudo-channel."""

import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.bitmod_fp4 import CLIP_RATIOS
from golden.llm.language_model import LanguageModel
from golden.p3llm.dram_image import cache_image
from golden.p3llm.whole_model import (
    BlockResult,
    QuantisedModel,
    WeightMethod,
    WholeModel,
    quantised_model,
)
from hdl.model_shape import fitted
from hdl.p3llm.parameters import P3llmParameters
from hdl.parameters import require
from systola.generation.model_memory import ModelFile, model_arrays
from systola.generation.system import (
    Block,
    BlockProgress,
    Mismatch,
    Outcome,
    Settings,
    System,
    first_difference,
)
from systola.host.p3llm import P3llmHost
from testbenches.long_run import Moved
from testbenches.p3llm.host import Host

METHOD = WeightMethod.WEIGHTED
"""How weights are quantised; `PLAIN` is the paper's rounding (docs/p3llm/study.md has both)."""

VERSION = 1
"""Version of the file of the quantised model."""


class P3llmSystem(System):
    """P3-LLM with all layers of a model and the LM head in one pseudo-channel.

    There is no prefill: the accelerator decodes the prompt token by token. A calibration text
    gives the smoothing factors of the keys, which a prefill would compute, and with
    `WeightMethod.WEIGHTED` the mean square of each matrix's inputs.
    """

    top, name = "p3llm", "P3-LLM"
    bound = "columns that all units multiply, two cycles each"
    moved = "bytes/token at the banks"
    compared = "tokens, their sums, states after all layers, keys and values in the banks"
    evicts = False
    budgets = False
    clock_mhz = 500

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> P3llmParameters:
        """Return the preset with the model's dimensions."""
        p: P3llmParameters = dimensions
        # A text is one request.
        require(p.batch == 1, "batch must be 1 for text generation", p.batch)
        require(
            p.pseudo_channels == 1,
            "pseudo_channels must be 1 for text generation",
            p.pseudo_channels,
        )
        return fitted(p, model.shape, multiple=p.word)

    @classmethod
    def with_memory(cls, parameters: Any, settings: Settings) -> P3llmParameters:
        """Return the parameters with the times of a memory, and the clock."""
        p: P3llmParameters = parameters
        m = settings.memory
        if m is None:
            return p
        timing = p.channel.timing
        banks = m.bank_groups * m.banks
        require(
            banks == timing.banks,
            f"bank_groups x banks of MEMORY must be the {timing.banks} of the channel",
            banks,
        )
        for name in ("rfcsb", "rrefd"):
            rule = f"{name} of MEMORY must be above 0, since single banks are refreshed"
            require(getattr(m, name) > 0, rule, getattr(m, name))
        written = m.wl + m.burst
        names = ("rcd", "rp", "ras", "rtp", "rfc", "rfcsb", "rrefd")
        times = {name: getattr(m, name) for name in names}
        times |= {"ccd_s": max(m.ccd_s, m.burst), "ccd_l": m.ccd_l, "rrd": m.rrd_s, "refi": m.refi}
        times |= {"wr": written + m.wr, "wtr": written + m.wtr}
        picoseconds = {f"{name}_ps": round(1000 * ns) for name, ns in times.items()}
        timed = replace(timing, clock_mhz=cls.clock_of(settings), **picoseconds)
        return replace(p, channel=replace(p.channel, timing=timed))

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.p: Any
        if self.external is not None:
            # All units read a column at the same time, at most once per tCCD_L.
            column_bytes = 2 * self.p3llm.elements * self.p3llm.units
            self.external.gb_s = column_bytes / self.external.memory.ccd_l
        self.longest = min(self.p3llm.slots, model.shape.context_length)
        self.host: Host | P3llmHost | None = None
        self.golden: WholeModel | None = None
        self.tokens: list[int] = []

    @property
    def p3llm(self) -> P3llmParameters:
        """Dimensions of P3-LLM itself."""
        return self.p

    def prepare_golden(self, report: Callable[[str], None]) -> None:
        """Quantise the model to the banks' formats."""
        tokens = self.model.calibration(self.longest)

        def found() -> dict[str, NDArray[Any]]:
            def began(layer: int) -> None:
                layers = self.model.shape.layers
                if layer < layers:
                    report(f"quantising layer {layer + 1} of {layers} to 4 bits")
                else:
                    report(f"quantising the LM head to {self.p3llm.vocabulary_bits} bits")

            return quantised_model(self.model, tokens, self.p3llm, began, method=METHOD).arrays()

        self.kept = self.quantised_file(tokens)
        self.quantised = QuantisedModel.of(model_arrays(self.kept, found, report))
        if self.settings.check:
            self.golden = WholeModel(self.p3llm, self.quantised)

    def logits(self, tokens: list[int]) -> NDArray[np.floating]:
        """Decode all tokens as one block."""
        golden = WholeModel(self.p3llm, self.quantised)
        golden.begin()
        result = golden.step(self.model.embedding[tokens])
        assert result.sums is not None
        return result.sums

    def quantised_file(self, tokens: list[int]) -> ModelFile:
        """Return the place and the key of the quantised model for a calibration text."""
        return self.model_file(
            "quantised", tokens=tokens, weights=METHOD.value, ratios=CLIP_RATIOS, version=VERSION
        )

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Start the program on empty caches, or on the caches of a checkpoint."""
        self.host = self._started_host()
        self.tokens = state["tokens"].tolist() if state else []
        if self.golden is not None:
            self.golden.begin()
        if state is None:
            return
        self.restore(state["cached"])
        if self.golden is not None:
            self.golden.step(self.model.embedding[self.tokens], predict=False)

    def restore(self, cached: NDArray[np.uint8]) -> None:
        """Write keys and values of all layers."""
        assert isinstance(self.host, Host)
        self.host.restore(cached)

    def _started_host(self) -> Host | P3llmHost:
        """Start the program, and fill the banks."""
        scratch = self._open.enter_context(
            tempfile.TemporaryDirectory(dir=self.folder, prefix="memory-")
        )
        host = Host(self.p, self.quantised, Path(scratch), self.harness, external=self.external)
        self._open.callback(host.close)
        return host

    def run(
        self, block: Block, tokens: list[int], watch: Callable[[BlockProgress], None]
    ) -> Outcome:
        """Run a token through the Verilog, and through the golden model at the same time."""
        assert self.host is not None
        host, states = self.host, self.model.embedding[tokens].astype(np.float32)
        expected: Future[BlockResult] | None = None
        if self.golden is not None:
            expected = self._pool.submit(self.golden.step, states, predict=block.predict)
        bounds = host.bound(block.first)
        ends = list(accumulate(bounds if block.predict else bounds[:-1]))
        read, written = self._executed(block, states[0], ends, watch)
        if expected is not None:
            self._compare(expected.result())
        self.tokens += tokens
        return Outcome(
            token=host.prediction[0] if host.prediction else None,
            cycles=host.cycles,
            bound=ends[-1],
            bytes_read=read,
            bytes_written=written,
            seconds=host.seconds,
        )

    def _executed(
        self,
        block: Block,
        state: NDArray[np.float32],
        ends: list[int],
        watch: Callable[[BlockProgress], None],
    ) -> tuple[int, int]:
        """Execute a block; return the bytes that are read and written.

        `ends` are the bounds for the cycles at the end of each layer.
        """
        host = self.host
        assert isinstance(host, Host)
        before = dict(host.counts)

        def moved(layer: int, progress: Moved, began: int) -> None:
            multiplied = progress.counts["together"] - before["together"]
            done = multiplied // self.p.units * self.p.channel.unit.pumps
            watch(
                BlockProgress(
                    layer=layer,
                    fraction=min(1.0, done / ends[-1]),
                    cycles=progress.cycle - began,
                    seconds=progress.seconds,
                )
            )

        host.run(block.first, state, predict=block.predict, watch=moved)
        column, counts = 2 * self.p.elements, host.columns
        return column * (counts["together"] + counts["alone"]), column * counts["written"]

    def _compare(self, expected: BlockResult) -> None:
        """Compare the state after each layer, its keys and values, then the prediction."""
        assert self.host is not None and self.golden is not None
        for number, own in enumerate(self.host.layers):
            wanted, found = (
                state.view(np.uint32) for state in (expected.states[number, -1], own.state)
            )
            if difference := first_difference(wanted, found, ("element",)):
                words, place = difference
                if own.cycles is not None:
                    words += f", in cycle {own.cycles[place[0] // self.p3llm.lanes]}"
                raise Mismatch(f"layer {number}, output state, {words}")
        for number, cached in enumerate(self.host.cached):
            wanted = cache_image(self.p3llm, self.golden.caches[number])
            if difference := first_difference(wanted, cached, ("position", "unit", "byte")):
                raise Mismatch(f"layer {number}, keys and values, {difference[0]}")
        if self.host.prediction is not None and expected.sums is not None:
            token = expected.token
            prediction = token, int(expected.sums[-1].view(np.uint32)[token])
            if prediction != self.host.prediction:
                raise Mismatch(
                    f"LM head, token and sum: {self.host.prediction} instead of {prediction}"
                )

    def cached_state(self, tokens: list[int]) -> dict[str, NDArray[Any]]:
        """Return the tokens of a text, and the bytes of their keys and values."""
        golden = WholeModel(self.p3llm, self.quantised)
        golden.begin()
        golden.step(self.model.embedding[tokens], predict=False)
        cached = [cache_image(self.p3llm, own) for own in golden.caches]
        return {"tokens": np.array(tokens, np.int64), "cached": np.stack(cached)}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the tokens that have been processed, and the bytes of keys and values."""
        assert self.host is not None
        return {
            "tokens": np.array(self.tokens, np.int64),
            "cached": np.stack(self.host.cached),
        }

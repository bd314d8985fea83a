"""Text generation with MEADOW: whole layers from packed weights, and the golden model."""

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
from golden.meadow.whole_model import (
    BlockResult,
    WholeModel,
    integer_model,
    logits,
)
from hdl.meadow.parameters import MeadowParameters
from hdl.model_shape import fitted
from hdl.nonlinear.activation_functions import Activation
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
from testbenches.long_run import LongRun, Moved
from testbenches.meadow.accelerator_file import AcceleratorFile
from testbenches.meadow.host import Host
from testbenches.meadow.packed_model import PackedModel, packed_model


class MeadowSystem(System):
    """MEADOW with all layers of a model: the prompt in blocks by TPHS, then single tokens."""

    top, name = "meadow", "MEADOW"
    bound = "words of weights, one per cycle and unpacker"
    compared = "tokens, their sums, caches, and the bytes at every port"
    evicts = False
    budgets = False
    packs = True

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> MeadowParameters:
        """Return the preset with the model's dimensions."""
        p: MeadowParameters = dimensions
        s = model.shape
        return fitted(
            p,
            s,
            multiple=p.slices * s.head_size,
            element=replace(p.element, multipliers=s.head_size),
            rotary=True,
            causal=True,
            layer_norm=False,
            biases=False,
            activation=Activation.SILU,
            gated=True,
        )

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.longest = min(self.meadow.slots, model.shape.context_length)
        self.host: Host | None = None
        self.golden: WholeModel | None = None
        self.given: AcceleratorFile | None = None
        if settings.packed is not None:
            self.given = AcceleratorFile(settings.packed, self.meadow, model.digest)

    @property
    def meadow(self) -> MeadowParameters:
        """Dimensions of MEADOW itself."""
        return self.p

    def prepare_golden(self, report: Callable[[str], None]) -> None:
        """Quantise the model to INT8, and pack it; or unpack the file of the settings."""
        if self.given is not None:
            report(f"unpacking {self.given.file.name}")
            self.kept = ModelFile(self.given.file, {"sha256": self.given.sha256})
            self.packed = self.given.model()
            self.golden = WholeModel(self.meadow, self.packed.integers)
            return
        tokens = self.model.calibration(self.longest)

        def found() -> dict[str, NDArray[Any]]:
            def began(layer: int) -> None:
                report(f"quantising layer {layer + 1} of {self.model.shape.layers} to INT8")

            integers = integer_model(self.model, tokens, self.meadow, began)
            report("packing the weights")
            return packed_model(integers, self.meadow).arrays()

        self.kept = self.model_file("packed", tokens=tokens)
        self.packed = PackedModel.of(model_arrays(self.kept, found, report))
        self.golden = WholeModel(self.meadow, self.packed.integers)

    def logits(self, tokens: list[int]) -> NDArray[np.floating]:
        """Process all tokens as one block of a prompt."""
        integers = self.packed.integers
        result = WholeModel(self.meadow, integers).step(
            integers.embedded(self.model.embedding[tokens])
        )
        return logits(integers.vocabulary, result.states[-1], self.meadow)

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Start the program on empty caches, or on the caches of a checkpoint."""
        scratch = self._open.enter_context(
            tempfile.TemporaryDirectory(dir=self.folder, prefix="memory-")
        )
        self.host = Host(self.p, self.packed, Path(scratch), self.harness, external=self.external)
        self._open.callback(self.host.close)
        if state is None:
            return
        self.host.restore(state)
        self.restore(state)

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore the caches of the golden model."""
        assert self.golden is not None
        self.golden.caches = [
            (keys.astype(np.int64), values.astype(np.int64))
            for keys, values in zip(state["keys"], state["values"], strict=True)
        ]

    def prompt_blocks(self, tokens: int) -> list[Block]:
        """Return blocks of the accelerator's size; the last one predicts."""
        most = self.meadow.most_tokens
        return [
            Block(first=first, count=min(most, tokens - first), predict=first + most >= tokens)
            for first in range(0, tokens, most)
        ]

    def run(
        self, block: Block, tokens: list[int], watch: Callable[[BlockProgress], None]
    ) -> Outcome:
        """Run a block through the Verilog, and through the golden model at the same time."""
        assert self.host is not None and self.golden is not None
        states = self.packed.integers.embedded(self.model.embedding[tokens])
        expected: Future[BlockResult] | None = None
        if self.settings.check:
            expected = self._pool.submit(self.golden.step, states)

        def moved(progress: Moved) -> None:
            watch(self._moving(progress))

        run = self.host.run(states, predict=block.predict, watch=moved)
        if expected is not None:
            self._compare(run, expected.result())
        traffic = self.host.traffic
        written = self.host.moved["written"] + self.host.moved["states"]
        moved_bytes = sum(self.host.moved.values())
        return Outcome(
            token=self.host.prediction[0] if self.host.prediction else None,
            cycles=run.cycle,
            bound=traffic.weight_cycles,
            bytes_read=moved_bytes - written,
            bytes_written=written,
            bytes_unpacked=moved_bytes - traffic.fetched + traffic.weights,
            seconds=run.seconds,
        )

    def _moving(self, progress: Moved) -> BlockProgress:
        """Compute a block's progress from the packets that the memory has delivered."""
        assert self.host is not None
        done = self.host.fetched_packets(progress.counts) - self.host.packets_before
        ends = list(accumulate(self.host.packets_of_layers))
        return BlockProgress(
            layer=sum(end <= done for end in ends[:-1]),
            fraction=min(1.0, done / ends[-1]),
            cycles=progress.cycle - self.host.cycle_before,
            seconds=progress.seconds,
        )

    def _compare(self, run: LongRun, expected: BlockResult) -> None:
        """Compare the caches of each layer, the prediction, and the traffic at the ports."""
        assert self.host is not None and self.golden is not None
        for number, own in enumerate(self.golden.caches):
            for name, wanted in zip(("keys", "values"), own, strict=True):
                found = self.host.heads(number, name).astype(np.int64)
                if difference := first_difference(wanted, found, ("KV head", "token", "element")):
                    words, place = difference
                    cycle = self.host.written_at(run, number, name, place)
                    raise Mismatch(f"layer {number}, {name}, {words}{cycle}")
        if self.host.prediction is not None:
            wanted = expected.token, int(expected.sums[expected.token])
            if wanted != self.host.prediction:
                raise Mismatch(
                    f"LM head, token and sum: {self.host.prediction} instead of {wanted}, in "
                    f"cycle {run.cycles['predictions'][0]}"
                )
        if self.host.moved != self.host.traffic.moved:
            raise Mismatch(
                f"bytes at the ports: {self.host.moved} instead of {self.host.traffic.moved}"
            )

    def cached_state(self, tokens: list[int]) -> dict[str, NDArray[Any]]:
        """Return the caches after a text, which is processed as a prompt."""
        golden = WholeModel(self.meadow, self.packed.integers)
        for block in self.prompt_blocks(len(tokens)):
            own = tokens[block.first : block.first + block.count]
            golden.step(self.packed.integers.embedded(self.model.embedding[own]))
        keys, values = zip(*golden.caches, strict=True)
        return {"keys": np.stack(keys), "values": np.stack(values)}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the caches."""
        assert self.host is not None
        return self.host.state()

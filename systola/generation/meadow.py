"""MEADOW speaks: whole layers from packed weights, and its golden model beside it."""

import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import LanguageModel
from golden.meadow.whole_model import BlockResult, WholeModel, embedded
from hdl.meadow.parameters import MeadowParameters
from hdl.nonlinear.activation_functions import Activation
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
from testbenches.meadow.packed_model import opened_model
from testbenches.meadow.speech import Speech


class MeadowSystem(System):
    """MEADOW with all layers of a model: a prompt in blocks by TPHS, then token by token."""

    top, name = "meadow", "MEADOW"
    bound = "cycles of the work alone"
    compared = "tokens, their sums, caches and octets at every port"
    evicts = False
    budgets = False

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> MeadowParameters:
        """Return the preset with the model's dimensions."""
        p: MeadowParameters = dimensions
        s = model.shape
        cls.require_epsilon(s)
        cls.require_whole_base(s)
        row = p.slices * s.head_size
        return replace(
            p,
            element=replace(p.element, multipliers=s.head_size),
            hidden_size=s.width,
            heads=s.heads,
            kv_heads=s.kv_heads,
            feed_forward_size=-(-s.feed_forward // row) * row,
            rotary=True,
            base=int(s.rope_base),
            layer_norm=False,
            biases=False,
            activation=Activation.SILU,
            gated=True,
            vocabulary=s.vocabulary,
        )

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.p: MeadowParameters
        self.longest = min(self.p.features, model.shape.longest_context)
        self.speech: Speech | None = None
        self.golden: WholeModel | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The parameters, and program and packed model, named by all that they are made of."""
        return super().identity | {"packed": self.file.name}

    def prepare(self, report: Callable[[str], None]) -> None:
        """Compile, bring the model to INT8, and pack it."""
        self.compile(report)
        text = self.model.calibration(self.longest)
        depends = sha256(f"{self.model.digest} {self.p!r} {text}".encode()).hexdigest()
        self.file = self.folder / f"packed-{depends[:12]}.model"
        self.packed = opened_model(self.file, self.model, text, self.p, report)
        self.golden = WholeModel(self.p, self.packed.integers)

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Start the program on empty caches, or on those that a checkpoint holds."""
        scratch = self._open.enter_context(
            tempfile.TemporaryDirectory(dir=self.folder, prefix="memory-")
        )
        self.speech = Speech(self.p, self.packed, Path(scratch), self.harness)
        self._open.callback(self.speech.close)
        if state is None:
            return
        self.speech.restore(state)
        assert self.golden is not None
        self.golden.caches = [
            (keys.astype(np.int64), values.astype(np.int64))
            for keys, values in zip(state["keys"], state["values"], strict=True)
        ]

    def prompt_blocks(self, tokens: int) -> list[Block]:
        """Return blocks of the accelerator's size; the last one predicts."""
        most = self.p.most_tokens
        return [
            Block(first=first, count=min(most, tokens - first), predict=first + most >= tokens)
            for first in range(0, tokens, most)
        ]

    def run(self, block: Block, tokens: list[int], watch: Callable[[Moving], None]) -> Outcome:
        """Take a block through the Verilog, and through the golden model at the same time."""
        assert self.speech is not None and self.golden is not None
        states = embedded(self.model.embedding, tokens)
        expected: Future[BlockResult] | None = None
        if self.settings.check:
            expected = self._pool.submit(self.golden.step, states)

        def moved(progress: Moved) -> None:
            watch(self._moving(progress))

        run = self.speech.run(states, predict=block.predict, watch=moved)
        if expected is not None:
            self._compare(run, expected.result())
        writer = self.speech.writer
        written = self.speech.moved["written"] + self.speech.moved["states"]
        octets = sum(self.speech.moved.values())
        return Outcome(
            token=self.speech.prediction[0] if self.speech.prediction else None,
            cycles=run.cycle,
            bound=sum(writer.ideal),
            octets_read=octets - written,
            octets_written=written,
            octets_unpacked=octets - writer.fetched + writer.weights,
            seconds=run.seconds,
        )

    def _moving(self, progress: Moved) -> Moving:
        """Say how far a block is by the packets that memory has given."""
        assert self.speech is not None
        done = progress.counts["packet_reads"] - self.speech.packets_before
        ends = list(accumulate(self.speech.packets_of_layers))
        return Moving(
            layer=sum(end <= done for end in ends[:-1]),
            share=min(1.0, done / ends[-1]),
            cycles=progress.cycle - self.speech.cycle_before,
            seconds=progress.seconds,
        )

    def _compare(self, run: LongRun, expected: BlockResult) -> None:
        """Compare caches layer by layer, the prediction, and what crossed the ports."""
        assert self.speech is not None and self.golden is not None
        for number, own in enumerate(self.golden.caches):
            for name, wanted in zip(("keys", "values"), own, strict=True):
                found = self.speech.heads(number, name).astype(np.int64)
                if difference := first_difference(wanted, found, ("KV head", "token", "element")):
                    words, place = difference
                    cycle = self.speech.written_at(run, number, name, place)
                    raise Mismatch(f"layer {number}, {name}, {words}{cycle}")
        if self.speech.prediction is not None:
            wanted = expected.token, int(expected.sums[expected.token])
            if wanted != self.speech.prediction:
                raise Mismatch(
                    f"vocabulary, token and sum: {self.speech.prediction} instead of {wanted}, in "
                    f"cycle {run.cycles['predictions'][0]}"
                )
        if self.speech.moved != self.speech.writer.moved:
            raise Mismatch(
                f"octets at the ports: {self.speech.moved} instead of {self.speech.writer.moved}"
            )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the caches."""
        assert self.speech is not None
        return self.speech.state()

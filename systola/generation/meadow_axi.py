"""Text generation with MEADOW with the AXI shell, by the host library that runs it on a board."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import LanguageModel
from golden.meadow.whole_model import BlockResult
from hdl.meadow.parameters import MeadowParameters
from hdl.shell.meadow_axi_parameters import MeadowAxiParameters
from hdl.shell.shell_parameters import TOKEN_BITS
from systola.generation.meadow import MeadowSystem
from systola.generation.shell import ShellSystem
from systola.generation.system import (
    Block,
    BlockProgress,
    Mismatch,
    Outcome,
    Settings,
    first_difference,
)
from systola.host.device import JobResult
from systola.host.meadow import MeadowHost
from testbenches.meadow.traffic import traffic_of

CACHES = ("keys", "values")


class MeadowAxiSystem(ShellSystem, MeadowSystem):
    """MEADOW with all layers of a model; the host library reads and writes by AXI only."""

    top, bare, name = "meadow_axi", "meadow", "MEADOW with the AXI shell"
    compared = "tokens, their sums, and caches"

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> Any:
        """Return the preset with the model's dimensions."""
        p: MeadowAxiParameters = dimensions
        return replace(p, meadow=super().fitted(model, p.meadow))

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.board: MeadowHost | None = None

    @property
    def meadow(self) -> MeadowParameters:
        """Dimensions of MEADOW itself."""
        return self.p.meadow

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Load the model on empty caches, or on the caches of a checkpoint."""
        # The transport ends a simulation that is stuck; its speed is unknown.
        self.board = MeadowHost(self.connected(), self.p, self.packed, timeout=math.inf)
        if state is None:
            return
        self.restore(state)
        self.board.length = state["keys"].shape[2]
        for layer in range(len(self.packed.layers)):
            for name in CACHES:
                self.board.restore(layer, name, state[name][layer])

    def run(
        self, block: Block, tokens: list[int], watch: Callable[[BlockProgress], None]
    ) -> Outcome:
        """Run a block through the host library and, at the same time, the golden model."""
        board, golden = self.board, self.golden
        assert board is not None and golden is not None
        states = self.packed.integers.embedded(self.model.embedding[tokens])
        expected = self._pool.submit(golden.step, states) if self.settings.check else None
        started = time.monotonic()

        def watching(moved: dict[str, int], cycles: int, seconds: float) -> None:
            packets = moved["packet_reads"] // self.p.regions["packets"]
            watch(
                BlockProgress(
                    layer=sum(end <= packets for end in board.packets[:-1]),
                    fraction=min(1.0, packets / board.packets[-1]),
                    cycles=cycles,
                    seconds=seconds,
                )
            )

        token, read, written = self.transferred(
            lambda: board.run(states, predict=block.predict), watching
        )
        seconds = time.monotonic() - started
        assert board.last is not None and board.program is not None
        if expected is not None:
            self._compare_memory(board.last, expected.result(), predict=block.predict)
        traffic = traffic_of(board.program)
        return Outcome(
            token=token,
            cycles=board.last.cycles,
            bound=traffic.weight_cycles,
            bytes_read=read,
            bytes_written=written,
            bytes_unpacked=read + written - traffic.fetched + traffic.weights,
            seconds=seconds,
        )

    def _compare_memory(self, last: JobResult, expected: BlockResult, *, predict: bool) -> None:
        """Compare the caches of each layer, and the prediction."""
        assert self.board is not None and self.golden is not None
        for number, own in enumerate(self.golden.caches):
            for name, wanted in zip(CACHES, own, strict=True):
                found = self.board.cached(number, name).astype(np.int64)
                if difference := first_difference(wanted, found, ("KV head", "token", "element")):
                    raise Mismatch(f"layer {number}, {name}, {difference[0]}")
        wanted = [expected.token, int(expected.sums[expected.token]) % (1 << TOKEN_BITS)]
        if predict and last.tokens != wanted:
            raise Mismatch(f"LM head, token and sum: {last.tokens} instead of {wanted}")

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the caches."""
        board = self.board
        assert board is not None
        layers = range(len(self.packed.layers))
        return {name: np.stack([board.cached(n, name) for n in layers]) for name in CACHES}

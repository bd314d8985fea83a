"""Text generation with P3-LLM with the AXI shell, by the host library that runs it on a board."""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import LanguageModel
from hdl.p3llm.parameters import P3llmParameters
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from systola.generation.p3llm import P3llmSystem
from systola.generation.shell import ShellSystem
from systola.generation.system import Block, BlockProgress, Settings
from systola.host.p3llm import P3llmHost


class P3llmAxiSystem(ShellSystem, P3llmSystem):
    """P3-LLM with all layers of a model; the host library reads and writes by AXI only."""

    top, bare, name = "p3llm_axi", "p3llm", "P3-LLM with the AXI shell"
    bound = "columns that all units multiply, two cycles or their beats each"
    moved = "off-chip bytes/token"

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> Any:
        """Return the preset with the model's dimensions."""
        p: P3llmAxiParameters = dimensions
        return replace(p, p3llm=super().fitted(model, p.p3llm))

    @classmethod
    def with_memory(cls, parameters: Any, settings: Settings) -> Any:
        """Return the parameters; a memory is refused later."""
        return parameters

    @property
    def p3llm(self) -> P3llmParameters:
        """Dimensions of P3-LLM itself."""
        return self.p.p3llm

    def _started_host(self) -> P3llmHost:
        """Load the model."""
        # The transport ends a simulation that is stuck; its speed is unknown.
        return P3llmHost(self.connected(), self.p, self.quantised, timeout=math.inf)

    def restore(self, cached: NDArray[np.uint8]) -> None:
        """Write keys and values of all layers."""
        assert isinstance(self.host, P3llmHost)
        self.host.begin(cached, len(self.tokens))

    def _executed(
        self,
        block: Block,
        state: NDArray[np.float32],
        ends: list[int],
        watch: Callable[[BlockProgress], None],
    ) -> tuple[int, int]:
        """Execute a block through the host library; return bytes at the AXI4 ports."""
        host = self.host
        assert isinstance(host, P3llmHost)
        beats = self.p.regions["banks"] // self.p.data_bytes
        column_cycles = max(self.p3llm.channel.column_cycles, beats)

        def watching(moved: dict[str, int], cycles: int, seconds: float) -> None:
            done = moved["bank_reads"] // self.p.regions["banks"] * column_cycles
            watch(
                BlockProgress(
                    layer=min(bisect_right(ends, done), self.p3llm.layers),
                    fraction=min(1.0, done / ends[-1]),
                    cycles=cycles,
                    seconds=seconds,
                )
            )

        _none, read, written = self.transferred(
            lambda: host.run(state, predict=block.predict), watching
        )
        return read, written

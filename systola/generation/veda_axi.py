"""Text generation with VEDA with the AXI shell, by the host library that runs it on a board."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import LanguageModel
from golden.veda import whole_model
from golden.veda.veda import Codes
from hdl.shell.veda_axi_parameters import VedaAxiParameters
from hdl.veda.parameters import VedaParameters
from systola.generation.shell import ShellSystem
from systola.generation.system import BlockProgress, Settings
from systola.generation.veda import VedaSystem
from systola.host.veda import VedaHost
from testbenches.veda.driver import Round
from testbenches.veda.model_lines import bytes_of_line


class VedaAxiSystem(ShellSystem, VedaSystem):
    """VEDA with all layers of a model; the host library reads and writes by AXI only."""

    top, bare, name = "veda_axi", "veda", "VEDA with the AXI shell"

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> Any:
        """Return the preset with the model's dimensions."""
        p: VedaAxiParameters = dimensions
        return replace(p, veda=super().fitted(model, p.veda))

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.board: VedaHost | None = None

    @property
    def veda(self) -> VedaParameters:
        """Dimensions of VEDA itself."""
        return self.p.veda

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Load the model on an empty cache, or on the cache of a checkpoint."""
        lines = np.memmap(self.lines, np.uint8, "r").reshape(-1, bytes_of_line(self.veda))
        # The transport ends a simulation that is stuck; its speed is unknown.
        board = VedaHost(self.connected(), self.p, self.model.shape.layers, lines, timeout=math.inf)
        self.host = self.board = board
        if state is not None:
            self.restore(state)

    def _executed(
        self, plan: whole_model.Block, states: Codes, watch: Callable[[BlockProgress], None]
    ) -> tuple[Round, int, int]:
        """Execute a block through the host library; return results, and bytes at the AXI4 ports."""
        board = self.board
        assert board is not None
        (port, *_others) = self.p.line_ports

        def watching(moved: dict[str, int], cycles: int, seconds: float) -> None:
            lines = moved[port] // bytes_of_line(self.veda)
            watch(self._progress(lines, cycles, seconds))

        return self.transferred(lambda: board.run(plan, states), watching)

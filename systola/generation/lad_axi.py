"""Text generation with LAD with the AXI shell, by the host library that runs it on a board."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.lad.lad_tile import Head, Step
from golden.llm.language_model import LanguageModel
from hdl.lad.parameters import LadParameters
from hdl.shell.lad_axi_parameters import LadAxiParameters
from systola.generation.lad import Decoded, LadSystem, State
from systola.generation.shell import ShellSystem
from systola.generation.system import Block, BlockProgress, Settings
from systola.host.lad import LadHost


class LadAxiSystem(ShellSystem, LadSystem):
    """LAD with all layers of a model; the host library reads and writes by AXI only."""

    top, bare, name = "lad_axi", "lad", "LAD with the AXI shell"

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> Any:
        """Return the preset with the model's dimensions."""
        p: LadAxiParameters = dimensions
        return replace(p, lad=super().fitted(model, p.lad))

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.board: LadHost | None = None

    @property
    def lad(self) -> LadParameters:
        """Dimensions of LAD itself."""
        return self.p.lad

    def begin(self, state: State | None) -> None:
        """Load the model, with empty heads or with the rows of a checkpoint."""
        assert self.golden is not None
        # The transport ends a simulation that is stuck; its speed is unknown.
        self.board = LadHost(self.connected(), self.p, self.half, timeout=math.inf)
        self.rows, self.done = self.board.heads, 0
        heads: list[Head] | None = None
        if state is not None:
            self.done = state["keys"].shape[1]
            heads = self.heads_of(state)
        self.board.begin(heads)
        self.golden.begin(heads)

    def _decoded(
        self, block: Block, states: NDArray[np.uint16], watch: Callable[[BlockProgress], None]
    ) -> Decoded:
        """Decode a token of each sample through the host library."""
        board, p = self.board, self.p
        assert board is not None
        (port, *_others) = p.weight_ports
        layers, size = self.lad.layers, p.regions["weights"]
        layer_words = self.lad.layer_transfers
        words = layers * layer_words + block.predict * self.lad.vocabulary_transfers

        def watching(moved: dict[str, int], cycles: int, seconds: float) -> None:
            read = moved[port] // size
            watch(
                BlockProgress(
                    layer=min(read // layer_words, layers),
                    fraction=min(1.0, read / words),
                    cycles=cycles,
                    seconds=seconds,
                )
            )

        _none, read, written = self.transferred(
            lambda: board.run(states, predict=block.predict), watching
        )
        return Decoded(
            states=board.states,
            flags=board.flags,
            predictions=board.predictions,
            cycles=board.cycles,
            bytes_read=read,
            bytes_written=written,
            seconds=board.seconds,
        )

    def _compare_traffic(self, steps: list[Step]) -> None:
        """Compare nothing: the ports move whole beats, of which bursts may share some."""

    def state(self) -> State:
        """Return the rows of all heads."""
        assert self.board is not None
        return self.state_of(self.board.heads.model_heads(self.done), self.done)

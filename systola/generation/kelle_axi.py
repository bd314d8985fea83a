"""Text generation with Kelle with the AXI shell, by the host library that runs it on a board."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from golden.kelle.eviction.prefill import Prefill
from golden.kelle.kelle import Integers
from golden.kelle.lost_bits import Entry
from golden.llm.language_model import LanguageModel
from hdl.errors import UserError
from hdl.kelle.parameters import KelleParameters
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from hdl.shell.shell_parameters import TOKEN_BITS
from systola.generation.kelle import Decoded, KelleSystem
from systola.generation.shell import ShellSystem
from systola.generation.system import BlockProgress, Settings
from systola.host.kelle import KelleHost
from testbenches.kelle.step_cycles import load_beats, weight_beats


class KelleAxiSystem(ShellSystem, KelleSystem):
    """Kelle with all layers of a model; the host library reads and writes by AXI only."""

    top, bare, name = "kelle_axi", "kelle", "Kelle with the AXI shell"
    retentions = ()
    shows_stores = False

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> Any:
        """Return the preset with the model's dimensions."""
        p: KelleAxiParameters = dimensions
        return replace(p, kelle=super().fitted(model, p.kelle))

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        if settings.clock not in (None, self.p.clock_mhz):
            raise UserError(
                f"CLOCK must be clock_mhz = {self.p.clock_mhz} of {self.top}, not {settings.clock}"
            )
        self.board: KelleHost | None = None

    @property
    def kelle(self) -> KelleParameters:
        """Dimensions of Kelle itself."""
        return self.p.kelle

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Load the model; decode the tokens of a checkpoint again."""
        # The transport ends a simulation that is stuck; its speed is unknown.
        self.board = KelleHost(self.connected(), self.p, self.integers, timeout=math.inf)
        self.decode_again(state)

    def _begin_text(self, prefills: list[Prefill]) -> None:
        """Load the prefill of the first token."""
        assert self.board is not None and self.golden is not None
        self.board.begin(prefills, self.golden.layers)

    def _decoded(
        self,
        states: Integers,
        *,
        predict: bool,
        changed: list[list[Entry]],
        watch: Callable[[BlockProgress], None],
    ) -> Decoded:
        """Decode the latest of `tokens` through the host library, which takes one at a time."""
        board, p = self.board, self.p
        assert board is not None
        layers, size = self.kelle.layers, p.word_bytes_of_weights
        words = layers * p.layer_words + predict * p.vocabulary_words

        def watching(moved: dict[str, int], cycles: int, seconds: float) -> None:
            read = moved["weight_reads"] // size
            watch(
                BlockProgress(
                    layer=min(read // p.layer_words, layers),
                    fraction=min(1.0, read / words),
                    cycles=cycles,
                    seconds=seconds,
                )
            )

        _none, read, written = self.transferred(
            lambda: board.run(states[0], predict=predict), watching
        )
        head = weight_beats(self.kelle, p.vocabulary_words, 1) if predict else 0
        return Decoded(
            layers=[board.layers],
            prediction=board.prediction,
            cycles=board.cycles,
            bound=layers * load_beats(self.kelle, p.layer_words, 1) + head,
            bytes_read=read,
            bytes_written=written,
            seconds=board.seconds,
        )

    def sum_of(self, total: int) -> int:
        """Return the low bits of a sum, which a token register holds."""
        return total % (1 << TOKEN_BITS)

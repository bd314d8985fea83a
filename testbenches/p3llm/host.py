"""Host driver of P3-LLM with a whole model: one step per layer, and one for the LM head."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from golden.p3llm.dram_image import layer_image, vocabulary_image
from golden.p3llm.p3llm import Bytes, Cache, Singles
from golden.p3llm.whole_model import QuantisedModel
from hdl.p3llm.parameters import P3llmParameters
from testbenches.external_memory import External
from testbenches.harness import Harness
from testbenches.harness_memory import Dram
from testbenches.long_run import LongRun, Moved
from testbenches.p3llm.layer_run import LayerRun, multiplied_columns, state_of, state_words
from testbenches.packing import pack, unpack


class Host:
    """The host of a pseudo-channel: fills the banks, and sends states from layer to layer.

    Parameters
    ----------
    p : P3llmParameters
        Parameters of the system.
    model : QuantisedModel
        The model in the formats of the banks.
    folder : Path
        Folder of the banks' file.
    harness : Harness
        The compiled accelerator.
    seed : int
        Seed of the stalls of every stream; 0 for no stalls.
    external : External, optional
        The memory whose times the commands of the banks must keep.

    Members
    -------
    layers : list[LayerRun]
        Results of the last token.
    prediction : tuple[int, int] | None
        The predicted token, and the code of its logit.
    cycles, seconds : int, float
        Results of the last token.
    columns : dict[str, int]
        Columns of banks that the last token read of all units at once (`together`), of single units
        (`alone`), and that it wrote (`written`).
    counts : dict[str, int]
        The same for all tokens so far.
    """

    def __init__(
        self,
        p: P3llmParameters,
        model: QuantisedModel,
        folder: Path,
        harness: Harness,
        seed: int = 0,
        external: External | None = None,
    ) -> None:
        self.p, self.count = p, len(model.layers)
        file = folder / "banks.memory"
        with file.open("wb") as out:
            for weights, factors in zip(model.layers, model.factors, strict=True):
                out.write(layer_image(p, weights, Cache.empty(factors)).data)
            out.write(vocabulary_image(p, model.vocabulary).data)
        data_bytes = 2 * p.elements
        self._image = np.memmap(file, np.uint8, "r+").reshape(-1, p.units, data_bytes)
        dram = Dram(
            file=file, units=p.units, column_bytes=data_bytes, layout=p.channel.bank_command_layout
        )
        self._open = contextlib.ExitStack()
        memories = [external, dram] if external else [dram]
        self._session = self._open.enter_context(harness.session(memories, seed))
        self.counts = {"together": 0, "alone": 0, "written": 0}
        self.layers: list[LayerRun] = []
        self.prediction: tuple[int, int] | None = None
        self.columns = dict(self.counts)
        self.cycles, self.seconds = 0, 0.0

    def close(self) -> None:
        """End the program."""
        self._open.close()

    @property
    def cached(self) -> list[Bytes]:
        """Bytes of each layer's keys and values."""
        p = self.p
        ends = [(number + 1) * p.layer_positions for number in range(self.count)]
        return [self._image[end - p.layer_positions + p.key_base(0) : end] for end in ends]

    def restore(self, cached: Bytes) -> None:
        """Write keys and values of all layers into the banks."""
        for own, given in zip(self.cached, cached, strict=True):
            own[:] = given

    def bound(self, position: int) -> list[int]:
        """Cycles of the columns that all units multiply: of each layer, and of the LM head."""
        cycles = self.p.channel.column_cycles
        return [cycles * own for own in multiplied_columns(self.p, self.count, position)]

    def run(
        self,
        position: int,
        state: Singles,
        *,
        predict: bool,
        watch: Callable[[int, Moved, int], None] = lambda layer, moved, before: None,
    ) -> None:
        """Process a token's embedded state in all layers, and in the LM head if it predicts.

        `watch` is called with the layer, the progress of the step, and the token's first cycle.
        """
        began, before = self._session.cycle, dict(self.counts)
        self.layers, self.prediction = [], None
        self.cycles, self.seconds = 0, 0.0

        def watching(number: int) -> Callable[[Moved], None]:
            return lambda moved: watch(number, moved, began)

        slices = len(state) // self.p.lanes
        for number in range(self.count):
            run = self._round(number, position, state, {"states_out": slices}, watching(number))
            state = state_of(self.p, run.outputs["states_out"])
            self.layers.append(LayerRun(state=state, cycles=run.cycles["states_out"]))
        if predict:
            last = self.count
            run = self._round(last, position, state, {"predictions": 1}, watching(last))
            token = unpack(self.p.prediction_layout, run.outputs["predictions"])
            self.prediction = int(token["token"][0]), int(token["sum"][0])
        self.columns = {name: self.counts[name] - before[name] for name in before}

    def _round(
        self,
        number: int,
        position: int,
        state: Singles,
        expected: dict[str, int],
        watch: Callable[[Moved], None],
    ) -> LongRun:
        """Process a state in a layer, or in the LM head after the last one."""
        p = self.p
        step = {"layer": np.array([number]), "position": np.array([[position]])}
        run = self._session.run(
            {
                "instructions": pack(p.instruction_layout, step),
                "states_in": state_words(p, state),
            },
            expected,
            record=["status"],
            timeout=20_000,
            progress=0.25,
            watch=watch,
        )
        assert not run.outputs["status"].any(), "the channel refused a command"
        self.counts = {name: run.counts[name] for name in self.counts}
        self.cycles += run.cycle
        self.seconds += run.seconds
        return run

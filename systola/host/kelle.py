"""Kelle with the AXI shell: loads a quantised model, and decodes a text token by token."""

from collections.abc import Sequence

import numpy as np

from golden.kelle.eviction.prefill import Prefill
from golden.kelle.kelle import Integers, KelleModel
from golden.kelle.whole_model import IntegerModel
from golden.shell.kelle_axi import KelleProgram, placements_of
from golden.shell.shell_jobs import Bytes
from hdl.errors import UserError
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from systola.host.decoded_text import DecodedText
from systola.host.device import JobResult
from systola.host.shell import TIMEOUT
from systola.host.transport import Transport
from testbenches.kelle.layer_run import LayerRun
from testbenches.shell.kelle_text import KelleText


class KelleHost(DecodedText):
    """A model in the memory of Kelle with the AXI shell.

    The caches of a text are in the accelerator, and a stop clears them. After a token that ended
    with an error, the next call of `run` begins the text again: it loads the prefill and decodes
    all earlier tokens, so that the token can be repeated.

    Parameters
    ----------
    transport : Transport
        Access to registers and memory.
    parameters : KelleAxiParameters
        Dimensions of the accelerator.
    model : IntegerModel
        The model.
    timeout : float
        Seconds after which a job is stopped.

    Members
    -------
    length : int
        Tokens of the text, those of its prefill included.
    layers : list[LayerRun]
        Results of each layer for the last token.
    prediction : tuple[int, int] | None
        The predicted token, and the low 32 bits of its sum.
    cycles, seconds : int, float
        Cycles of the last token, and the time of its job.

    Raises
    ------
    UserError
        If the accelerator has other parameters, or the memory is too small. Then nothing is
        written to memory.
    """

    def __init__(
        self,
        transport: Transport,
        parameters: KelleAxiParameters,
        model: IntegerModel,
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self.parameters, p = parameters, parameters.kelle
        vocabulary = model.vocabulary if p.vocabulary_size else None
        self.text = KelleText(parameters, model.layers, vocabulary)
        edram = p.memory.edram
        words = {
            # Those that begin a text: the scales, and two loads per layer.
            "instructions": 1 + 2 * p.layers,
            "scales": p.layers * p.scales,
            "prefill": p.layers * p.kv_heads * p.slots,
            "rows": edram.entries * edram.entry_words,
            "states": p.hidden_slices,
            "weights": p.layers * parameters.layer_words + parameters.vocabulary_words,
            "inputs": 1 << parameters.input_layout.size,
            "outputs": p.layers * p.hidden_slices,
            "placements": p.layers * p.kv_heads,
        }
        super().__init__(transport, parameters, "Kelle", words, timeout=timeout)
        self.write_words("weights", 0, self.text.weight_words())
        self.layers: list[LayerRun] = []
        self.prediction: tuple[int, int] | None = None
        # What begins the text again: its first program, and inputs in memory.
        self._first: KelleProgram | None = None
        self._inputs: dict[int, Bytes] = {}
        self._states = []

    def begin(
        self, prefills: Sequence[Prefill], models: Sequence[KelleModel], tokens: int = 1
    ) -> None:
        """Begin a text with a prefill of some tokens.

        Raises
        ------
        DeviceError
            If a job ends with an error, or does not end in time.
        """
        self._first = self.text.begin(prefills, models)
        self._inputs = {
            self.text.place(number, position): self.text.input_words(own)
            for number, model in enumerate(models)
            for position, own in self.text.recent_inputs(model.layer, tokens).items()
        }
        self._begin(tokens)

    def run(self, state: Integers, *, predict: bool) -> None:
        """Decode a token with its embedded state [hidden_size] through all layers.

        Raises
        ------
        UserError
            If no text has begun, or the text is too long.
        DeviceError
            If a job ends with an error, or does not end in time.
        """
        if self._first is None:
            raise UserError("a text must begin with a prefill, not with a token")
        last = self._next(state, most=self.parameters.kelle.context_length, predict=predict)
        self.prediction = (last.tokens[0], last.tokens[1]) if predict else None
        self.layers = [
            self._results(number, self.length) for number in range(len(self.text.layers))
        ]
        self._states.append(state)

    def _load(self) -> None:
        """Clear the accelerator, and load scales and prefill."""
        assert self._first is not None
        self.device.stop()
        for place, words in self._inputs.items():
            self.write_words("inputs", place, words)
        self.run_job(self._first.words)

    def _decode(self, position: int, state: Integers, *, predict: bool) -> JobResult:
        """Run the job of a token."""
        program = KelleProgram(self.parameters)
        self.text.add_token(program, position, state, predict=predict)
        return self.run_job(program.words)

    def _results(self, number: int, position: int) -> LayerRun:
        """Read the results of a layer."""
        p = self.parameters.kelle
        outputs = self.read_words("outputs", number * p.hidden_slices, p.hidden_slices)
        inputs = self.read_words("inputs", self.text.place(number, position), p.hidden_slices)
        output, normalised = (
            np.ascontiguousarray(words[:, : 2 * p.rows]).view("<i2").reshape(-1).astype(np.int64)
            for words in (outputs, inputs)
        )
        placements = self.read_words("placements", number * p.kv_heads, p.kv_heads)
        return LayerRun(
            output=output,
            normalised=normalised,
            placements=placements_of(
                self.parameters, (int.from_bytes(word.tobytes(), "little") for word in placements)
            ),
        )

"""P3-LLM with the AXI shell: loads a quantised model, and decodes a text token by token."""

import time

import numpy as np

from golden.p3llm.dram_image import layer_image, vocabulary_image
from golden.p3llm.p3llm import Bytes, Cache, Singles
from golden.p3llm.whole_model import QuantisedModel
from golden.shell.p3llm_axi import P3llmProgram
from hdl.errors import UserError
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from systola.host.shell import TIMEOUT, ShellHost
from systola.host.transport import Transport
from testbenches.p3llm.layer_run import LayerRun, multiplied_columns, state_of, state_words
from testbenches.packing import to_integers


class P3llmHost(ShellHost):
    """A model in the memory of P3-LLM with the AXI shell.

    Weights, keys and values are in the region of the banks. A token that ended with an error is not
    counted, and `run` can repeat it: it writes the same keys and values again.

    Parameters
    ----------
    transport : Transport
        Access to registers and memory.
    parameters : P3llmAxiParameters
        Dimensions of the accelerator.
    model : QuantisedModel
        The model in the formats of the banks.
    timeout : float
        Seconds after which a job is stopped.

    Members
    -------
    length : int
        Tokens of the text.
    layers : list[LayerRun]
        Results of each layer for the last token.
    prediction : tuple[int, int] | None
        The predicted token, and the code of its logit.
    cycles, seconds : int, float
        Cycles of the last token, and the time of its job.

    Raises
    ------
    UserError
        If the accelerator has several requests or other parameters, or the memory is too small.
        Then nothing is written to memory.
    """

    def __init__(
        self,
        transport: Transport,
        parameters: P3llmAxiParameters,
        model: QuantisedModel,
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self.parameters, p = parameters, parameters.p3llm
        if p.batch != 1:
            raise UserError(f"batch must be 1 for the host library, not {p.batch}")
        words = {
            "instructions": parameters.steps,
            "states": parameters.state_slices,
            "banks": parameters.positions,
            "outputs": p.layers * parameters.state_slices,
        }
        super().__init__(transport, parameters, "P3-LLM", words, timeout=timeout)
        for number, (weights, factors) in enumerate(zip(model.layers, model.factors, strict=True)):
            image = layer_image(p, weights, Cache.empty(factors))
            self._write_banks(number * p.layer_positions, image)
        if p.vocabulary_size:
            self._write_banks(p.layers * p.layer_positions, vocabulary_image(p, model.vocabulary))
        self.layers: list[LayerRun] = []
        self.prediction: tuple[int, int] | None = None
        self.cycles, self.seconds = 0, 0.0
        self.length = 0

    @property
    def cached(self) -> list[Bytes]:
        """Bytes of each layer's keys and values, shape (positions, units, bytes)."""
        p = self.parameters.p3llm
        first, count = p.key_base(0), p.layer_positions - p.key_base(0)
        found = []
        for number in range(p.layers):
            words = self.read_words("banks", number * p.layer_positions + first, count)
            units = p.pseudo_channels * p.units
            own = words[:, : units * 2 * p.elements]
            found.append(np.ascontiguousarray(own).reshape(count, units, 2 * p.elements))
        return found

    def begin(self, cached: Bytes | None = None, length: int = 0) -> None:
        """Begin a text with empty caches, or with the keys and values of some tokens."""
        p = self.parameters.p3llm
        for number in range(p.layers):
            place = number * p.layer_positions + p.key_base(0)
            count = p.layer_positions - p.key_base(0)
            empty = np.zeros((count, p.pseudo_channels * p.units, 2 * p.elements), np.uint8)
            self._write_banks(place, empty if cached is None else cached[number])
        self.length = length

    def bound(self, position: int) -> list[int]:
        """Cycles of the columns that all units multiply: of each layer, and of the LM head.

        A column takes at least the cycles of the accelerator, and those of its beats at the port.
        """
        p = self.parameters
        beats = p.regions["banks"] // p.data_bytes
        cycles = max(p.p3llm.channel.column_cycles, beats)
        return [cycles * own for own in multiplied_columns(p.p3llm, p.p3llm.layers, position)]

    def run(self, state: Singles, *, predict: bool) -> None:
        """Decode a token with its embedded state [hidden_size] through all layers.

        Raises
        ------
        UserError
            If the text is too long.
        DeviceError
            If a job ends with an error, or does not end in time.
        """
        p = self.parameters.p3llm
        if self.length >= p.slots:
            raise UserError(f"a text must have at most {p.slots} tokens, not {self.length + 1}")
        program = P3llmProgram(self.parameters)
        words = to_integers(state_words(p, state))
        program.token([self.length], words, predict=predict)
        started = time.monotonic()
        last = self.run_job(program.words)
        self.cycles, self.seconds = last.cycles, time.monotonic() - started
        self.prediction = (last.tokens[0], last.tokens[1]) if predict else None
        slices = self.parameters.state_slices
        outputs = self.read_words("outputs", 0, p.layers * slices)
        bits = np.unpackbits(outputs, axis=-1, bitorder="little")[:, : p.state_layout.size]
        states = state_of(p, bits).reshape(p.layers, -1)
        self.layers = [LayerRun(state=own) for own in states]
        self.length += 1

    def _write_banks(self, position: int, image: Bytes) -> None:
        """Write positions of all units from a position on."""
        self.write_words("banks", position, image.reshape(len(image), -1))

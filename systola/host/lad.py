"""LAD with the AXI shell: loads a model, and decodes a text token by token."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.lad.lad_tile import Head
from golden.lad.whole_model import Codes, HalfModel, angles
from golden.shell.lad_axi import LadProgram, first_word
from hdl.shell.lad_axi_parameters import LadAxiParameters
from systola.host.decoded_text import DecodedText
from systola.host.device import JobResult
from systola.host.shell import TIMEOUT, ShellHost
from systola.host.transport import Transport
from testbenches.lad.stored_heads import StoredHeads
from testbenches.shell.lad_text import REGION_OF, LadText, head_field, head_words


class MemoryHeads(StoredHeads):
    """Rows of all heads in the memory of the accelerator."""

    def __init__(self, host: ShellHost, p: LadAxiParameters) -> None:
        super().__init__(p.lad)
        self.host, self.dimensions = host, p

    def read(self, name: str, length: int) -> NDArray[Any]:
        """Return the first elements of each head in the layout of a model's `Head`."""
        p, region = self.dimensions, REGION_OF[name]
        count = -(-length // p.lad.tile.apid.lanes) if region == "positions" else length
        found = [
            self.host.read_words(region, first_word(p, region, number), count)
            for number in range(self.heads)
        ]
        return np.stack([head_field(p, name, words)[:length] for words in found])

    def write(self, heads: Sequence[Head]) -> None:
        """Write all rows of a model's heads."""
        for number, head in enumerate(heads):
            for region, words in head_words(self.dimensions, head).items():
                self.host.write_words(region, first_word(self.dimensions, region, number), words)

    def clear_caches(self) -> None:
        """Write 0 to the caches A to F of all heads, which is what a text begins with."""
        columns = self.p.tile.ac.columns
        for number in range(self.heads):
            place = first_word(self.dimensions, "caches", number)
            self.host.write_words("caches", place, np.zeros((columns, 0), np.uint8))


class LadHost(DecodedText):
    """A model in the memory of LAD with the AXI shell.

    All samples of a batch have the same number of tokens. After a token that ended with an error,
    the rows of some heads have this token and others have not: the next call of `run` begins the
    text again and decodes all earlier tokens, so that the token can be repeated.

    Parameters
    ----------
    transport : Transport
        Access to registers and memory.
    parameters : LadAxiParameters
        Dimensions of the accelerator.
    model : HalfModel
        The model.
    timeout : float
        Seconds after which a job is stopped.

    Members
    -------
    length : int
        Tokens of the text.
    heads : MemoryHeads
        The rows of all heads in memory.
    states : array [layers, batch, hidden_size]
        Hidden states of the last token after each layer; without a vocabulary, after the last one.
    flags : array [layers]
        Whether any denominator up to this layer was not positive.
    predictions : list of (int, int)
        Predicted token of each sample, and the code of its sum.
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
        parameters: LadAxiParameters,
        model: HalfModel,
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self.parameters, p = parameters, parameters
        self.text = LadText(p, model)
        words = {
            "tokens": 1,
            "slices": p.token_slices,
            "outputs": p.state_words,
            **p.region_words,
        }
        super().__init__(transport, p, "LAD", words, timeout=timeout)
        for place, own in self.text.weight_words():
            self.write_words("weights", place, own)
        self.write_words("norm_weights", 0, self.text.norm_words())
        self.heads = MemoryHeads(self, p)
        self.states: Codes = np.zeros((0, p.lad.batch, 0), np.uint16)
        self.flags: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.predictions: list[tuple[int, int]] = []
        # What begins the text again.
        self._first: list[Head] | None = None
        self._states = []

    def begin(self, heads: list[Head] | None = None) -> None:
        """Begin a text, or continue from the rows of heads, all of which have one length."""
        self._first = heads
        self._begin(heads[0].length if heads else 0)

    def run(self, states: Codes, *, predict: bool) -> None:
        """Decode a token of each sample with its embedded state [batch, hidden_size].

        Raises
        ------
        UserError
            If the text is too long.
        DeviceError
            If the job ends with an error, or does not end in time.
        """
        last = self._next(states, most=self.parameters.lad.context_length, predict=predict)
        pairs = zip(last.tokens[::2], last.tokens[1::2], strict=True)
        self.predictions = list(pairs)
        words = self.read_words("outputs", 0, self.parameters.state_words)
        self.states, self.flags = self.text.states_of(words)
        self._states.append(states)

    def _load(self) -> None:
        """Clear the record of active positions on the chip, and the caches."""
        self.device.stop()
        if self._first:
            self.heads.write(self._first)
        else:
            self.heads.clear_caches()

    def _decode(self, position: int, state: Codes, *, predict: bool) -> JobResult:
        """Run the job of a token."""
        lad = self.parameters.lad
        waves = angles(position, lad.head_size, self.text.model.rope_base)
        cosines, sines = (np.repeat(own[np.newaxis], lad.batch, axis=0) for own in waves)
        program = LadProgram(self.parameters)
        lengths = [position + 1] * lad.batch
        self.text.add_token(program, lengths, (cosines, sines), state, predict=predict)
        return self.run_job(program.words)

"""MEADOW with the AXI shell: loads a packed model, and runs blocks of tokens."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from golden.meadow.tile.requantisation import Integers
from hdl.errors import UserError
from hdl.meadow.control.program import Program
from hdl.shell.meadow_axi_parameters import MeadowAxiParameters
from systola.host.shell import TIMEOUT, ShellHost
from systola.host.transport import Transport
from testbenches.meadow.memory_images import STATE_BYTES, bytes_of
from testbenches.meadow.packed_model import PackedModel


class MeadowHost(ShellHost):
    """A model in the memory of MEADOW with the AXI shell.

    Parameters
    ----------
    transport : Transport
        Access to registers and memory.
    parameters : MeadowAxiParameters
        Dimensions of the accelerator.
    packed : PackedModel
        The model.
    timeout : float
        Seconds after which a job is stopped.

    Members
    -------
    length : int
        Number of cached tokens; 0 begins a new text. A block that ended with an error is not
        counted and can be repeated.
    program : Program | None
        Program of the current job, or of the last one.
    packets : list[int]
        Packets that this program has read at the end of each layer, and at its end.

    Raises
    ------
    UserError
        If the accelerator has other parameters, or the memory is too small. Then nothing is
        written to memory.
    """

    def __init__(
        self,
        transport: Transport,
        parameters: MeadowAxiParameters,
        packed: PackedModel,
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self.parameters, self.packed = parameters, packed
        self.length = 0
        self.program: Program | None = None
        self.packets: list[int] = []
        if parameters.meadow.biases:
            raise UserError("biases of a packed model's accelerator must be False, not True")
        longest = self._program(tokens=1, predict=True)
        words = {name: len(getattr(longest, name)) for name in parameters.program}
        images = {name: packed.images[name] for name in parameters.regions if name not in words}
        words |= {name: len(image) for name, image in images.items()}
        super().__init__(transport, parameters, "MEADOW", words, timeout=timeout)
        for name, image in images.items():
            self.write_words(name, 0, image)

    def _program(self, *, tokens: int, predict: bool) -> Program:
        """Return the program of a block that follows the cached tokens."""
        packed = self.packed
        program = Program(self.parameters.meadow, skip=True)
        program.load(tokens, packed.states)
        self.packets = []
        for layer, place in zip(packed.integers.layers, packed.layers, strict=True):
            program.layer(layer, place, past=self.length, tokens=tokens)
            self.packets.append(program.packets)
        if predict:
            epsilon = packed.integers.vocabulary.epsilon
            program.predict(packed.vocabulary, tokens=tokens, epsilon=epsilon)
        else:
            program.end()
        self.packets.append(program.packets)
        return program

    def run(self, states: Integers, *, predict: bool) -> int | None:
        """Run all layers for a block's hidden states [tokens, hidden_size].

        Returns
        -------
        int or None
            With `predict`, the next token.

        Raises
        ------
        UserError
            If the block or the text is too long.
        DeviceError
            If the job ends with an error, or does not end in time.
        """
        p, tokens = self.parameters.meadow, len(states)
        if not 1 <= tokens <= p.most_tokens:
            raise UserError(f"a block must have 1 to {p.most_tokens} tokens, not {tokens}")
        if self.length + tokens > p.slots:
            raise UserError(
                f"a text must have at most {p.slots} tokens, not {self.length + tokens}"
            )
        rows = bytes_of(states.reshape(-1, p.head_size), STATE_BYTES)
        self.write_words("vectors", self.packed.states, rows)
        self.program = program = self._program(tokens=tokens, predict=predict)
        last = self.run_job({name: getattr(program, name) for name in self.shell.program})
        self.length += tokens
        return last.tokens[0] if predict else None

    def cached(self, layer: int, name: str) -> NDArray[np.int8]:
        """Return a layer's cached `keys` or `values`, shape (kv_heads, cached, head_size)."""
        p = self.parameters.meadow
        rows = self.read_words("cache", self._place(layer, name), p.kv_heads * p.slots)
        return rows.view(np.int8).reshape(p.kv_heads, p.slots, -1)[:, : self.length, : p.head_size]

    def restore(self, layer: int, name: str, cached: NDArray[np.int8]) -> None:
        """Write a layer's `keys` or `values`, as `cached` returns them; `length` is set apart."""
        first = self._place(layer, name)
        for number, head in enumerate(cached):
            place = first + number * self.parameters.meadow.slots
            self.write_words("cache", place, head.view(np.uint8))

    def _place(self, layer: int, name: str) -> int:
        """Return the address of a layer's keys or values."""
        return self.packed.layers[layer].addresses[name]

    def generate(
        self, prompt: Sequence[int], tokens: int, embed: Callable[[Sequence[int]], Integers]
    ) -> Iterator[int]:
        """Generate the tokens that follow a prompt, from the present cache.

        Parameters
        ----------
        prompt : Sequence[int]
            Tokens of the prompt, at least one.
        tokens : int
            Number of tokens to generate.
        embed : Callable
            Returns the hidden states of tokens, as `IntegerModel.embedded`.
        """
        if not prompt:
            raise UserError("the prompt must contain at least one token, not be empty")
        most = self.parameters.meadow.most_tokens
        blocks = [prompt[first : first + most] for first in range(0, len(prompt), most)]
        for block in blocks[:-1]:
            self.run(embed(block), predict=False)
        block = blocks[-1]
        for _ in range(tokens):
            token = self.run(embed(block), predict=True)
            assert token is not None
            yield token
            block = [token]

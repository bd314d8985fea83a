"""cocotb: the host library decodes text with the RTL of Kelle and the AXI shell."""

from typing import Any

import cocotb
import numpy as np
import pytest

from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import KelleModel
from golden.kelle.whole_model import IntegerModel, vocabulary_sums
from hdl.errors import UserError
from hdl.shell.axi import Response
from hdl.shell.shell_parameters import TOKEN_BITS
from systola.host.device import DeviceError
from systola.host.kelle import KelleHost
from systola.host.transport import Window
from testbenches.shell.kelle_axi_work import kelle_text
from tests.shell.host_board import HostBoard

MEMORY = Window(0x12_3450_0000, 0x12_3454_0000)


class Board(HostBoard):
    """The simulated accelerator with layers of SmolLM2, and their golden models.

    Members
    -------
    stores : int
        Input vectors that the golden models have requested.
    """

    def __init__(self, dut: Any, salt: str) -> None:
        super().__init__(dut, salt, MEMORY)
        text, self.states = kelle_text(self.p, self.one.bench.numpy_rng)
        assert text.vocabulary is not None
        self.model = IntegerModel(list(text.layers), text.vocabulary, 1.0)
        self.stores = 0

    def host(self) -> KelleHost:
        """Return a host that has loaded the model."""
        return KelleHost(self.transport, self.p, self.model)

    def begin(self, host: KelleHost, tokens: int) -> None:
        """Begin a text in both."""
        layers = enumerate(self.model.layers)
        self.models = [KelleModel(self.p.kelle, layer, number) for number, layer in layers]
        self.inputs = [layer.quantised.copy() for layer in self.model.layers]
        host.begin([prefill(own, tokens) for own in self.models], self.models, tokens)
        assert host.length == tokens

    def decode(self, host: KelleHost, *, predict: bool) -> None:
        """Decode the next token in both, and compare all results."""
        compare, position = self.one.bench.compare, host.length
        state = self.states[position]
        host.run(state, predict=predict)
        assert host.length == position + 1
        for own, inputs, found in zip(self.models, self.inputs, host.layers, strict=True):
            step = own.step(position, state)
            inputs[position] = step.normalised
            if step.store:
                self.stores += 1
                own.inputs[step.store[1]] = inputs[step.store[0]]
            compare("outputs", step.output, found.output)
            compare("inputs", step.normalised, found.normalised)
            assert found.placements == step.placements
            state = step.output
        if predict:
            sums = vocabulary_sums(self.model.vocabulary, state, self.p.kelle)
            assert host.prediction == (sums.argmax(), sums.max() % (1 << TOKEN_BITS))


@cocotb.test()
async def texts_equal_the_golden_model(dut: Any) -> None:
    """Decode two texts, of which the second one begins with empty caches."""
    board = Board(dut, "texts")

    def decode() -> None:
        host = board.host()
        with pytest.raises(UserError, match="a text must begin with a prefill, not with a token"):
            host.run(board.states[0], predict=True)
        for prefilled in (board.p.kelle.slots + board.p.kelle.window, 1):
            board.begin(host, prefilled)
            for token in range(3):
                board.decode(host, predict=token != 1)
        assert board.stores

    await board.use(decode)


@cocotb.test()
async def a_token_is_repeated_after_errors(dut: Any) -> None:
    """Bus errors at a token, and while the host decodes the text again, are reported."""
    board = Board(dut, "errors")

    def repeat() -> None:
        host = board.host()
        board.begin(host, board.p.kelle.slots + board.p.kelle.window)
        board.decode(host, predict=False)
        length, state = host.length, board.states[host.length]
        for port in ("weight_reads", "scales", "output_writes"):
            board.one.responses[port].fail(3, Response.SLVERR.value)
            with pytest.raises(DeviceError, match=rf"SLVERR at address 0x\w+ of the port {port}"):
                host.run(state, predict=True)
            assert host.length == length
        board.decode(host, predict=True)

    await board.use(repeat)
    assert all(port.idle for port in board.one.ports.values())


@cocotb.test()
async def a_text_has_at_most_context_length_tokens(dut: Any) -> None:
    """Refuse a token after a text of `context_length` tokens."""
    board = Board(dut, "length")

    def fill() -> None:
        host = board.host()
        board.begin(host, 1)
        host._states = [np.zeros(0, np.int64)] * (board.p.kelle.context_length - 1)
        with pytest.raises(UserError, match="a text must have at most 256 tokens, not 257"):
            host.run(board.states[0], predict=True)

    await board.use(fill)

"""cocotb: the host library decodes text with the RTL of Kelle and the AXI shell."""

from typing import Any

import cocotb
import numpy as np
import pytest

from hdl.errors import UserError
from hdl.shell.axi import Response
from systola.host.device import DeviceError
from systola.host.kelle import KelleHost
from systola.host.transport import Window
from tests.shell.host_board import HostBoard
from tests.shell.kelle_texts import KelleTexts

MEMORY = Window(0x12_3450_0000, 0x12_3454_0000)


class Board(HostBoard):
    """The simulated accelerator with its texts."""

    def __init__(self, dut: Any, salt: str) -> None:
        super().__init__(dut, salt, MEMORY)
        self.texts = KelleTexts(self.one.bench, self.p)
        self.states = self.texts.states

    def host(self) -> KelleHost:
        """Return a host that has loaded the model."""
        return self.texts.host(self.transport)


@cocotb.test()
async def texts_equal_the_golden_model(dut: Any) -> None:
    """Decode two texts, of which the second one begins with empty caches."""
    board = Board(dut, "texts")
    texts = board.texts

    def decode() -> None:
        host = board.host()
        with pytest.raises(UserError, match="a text must begin with a prefill, not with a token"):
            host.run(board.states[0], predict=True)
        for prefilled in (board.p.kelle.slots + board.p.kelle.window, 1):
            texts.begin(host, prefilled)
            for token in range(3):
                texts.decode(host, predict=token != 1)
        assert texts.stores

    await board.use(decode)


@cocotb.test()
async def a_token_is_repeated_after_errors(dut: Any) -> None:
    """Bus errors at a token, and while the host decodes the text again, are reported."""
    board = Board(dut, "errors")
    texts = board.texts

    def repeat() -> None:
        host = board.host()
        texts.begin(host, board.p.kelle.slots + board.p.kelle.window)
        texts.decode(host, predict=False)
        length, state = host.length, board.states[host.length]
        for port in ("weight_reads", "scales", "output_writes"):
            board.one.responses[port].fail(3, Response.SLVERR.value)
            with pytest.raises(DeviceError, match=rf"SLVERR at address 0x\w+ of the port {port}"):
                host.run(state, predict=True)
            assert host.length == length
        texts.decode(host, predict=True)

    await board.use(repeat)
    assert all(port.idle for port in board.one.ports.values())


@cocotb.test()
async def a_text_has_at_most_context_length_tokens(dut: Any) -> None:
    """Refuse a token after a text of `context_length` tokens."""
    board = Board(dut, "length")

    def fill() -> None:
        host = board.host()
        board.texts.begin(host, 1)
        host._states = [np.zeros(0, np.int64)] * (board.p.kelle.context_length - 1)
        with pytest.raises(UserError, match="a text must have at most 256 tokens, not 257"):
            host.run(board.states[0], predict=True)

    await board.use(fill)

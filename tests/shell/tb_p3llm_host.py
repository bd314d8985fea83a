"""cocotb: the host library decodes text with the RTL of P3-LLM and the AXI shell."""

from typing import Any

import cocotb
import numpy as np
import pytest

from golden.p3llm.dram_image import cache_image
from golden.p3llm.p3llm import Cache
from golden.p3llm.whole_model import QuantisedModel
from hdl.errors import UserError
from hdl.shell.axi import Response
from systola.host.device import DeviceError
from systola.host.p3llm import P3llmHost
from systola.host.transport import Window
from testbenches.p3llm.system_models import Model
from tests.shell.host_board import HostBoard

MEMORY = Window(0x12_3450_0000, 0x12_3454_0000)


class Board(HostBoard):
    """The simulated accelerator with random layers, and their golden model."""

    def __init__(self, dut: Any, salt: str) -> None:
        super().__init__(dut, salt, MEMORY)
        self.golden = Model.random(self.p.p3llm, [1], self.one.bench.numpy_rng)
        factors = [caches[0].factors for caches in self.golden.caches]
        assert self.golden.vocabulary is not None
        self.model = QuantisedModel(self.golden.weights, factors, self.golden.vocabulary)

    def host(self) -> P3llmHost:
        """Return a host that has loaded the model."""
        return P3llmHost(self.transport, self.p, self.model)

    def begin(self, host: P3llmHost) -> None:
        """Begin a text in both."""
        self.golden.caches = [[Cache.empty(own)] for own in self.model.factors]
        host.begin()

    def decode(self, host: P3llmHost, *, predict: bool) -> None:
        """Decode the next token in both, and compare all results."""
        p, compare, position = self.p.p3llm, self.one.bench.compare, host.length
        states = self.one.bench.numpy_rng.normal(size=(1, p.hidden_size)).astype(np.float32)
        host.run(states[0], predict=predict)
        assert host.length == position + 1
        for number, found in enumerate(host.layers):
            states = self.golden.step(number, states, [position])
            compare("outputs", states[0].view(np.uint32), found.state.view(np.uint32))
            image = cache_image(p, self.golden.caches[number][0])
            compare("keys and values", image, host.cached[number])
        if predict:
            assert self.golden.vocabulary is not None
            assert host.prediction == tuple(self.golden.vocabulary.predicted(states[0], p))


@cocotb.test()
async def texts_equal_the_golden_model(dut: Any) -> None:
    """Decode two texts, of which the second one begins with empty caches."""
    board = Board(dut, "texts")

    def decode() -> None:
        host = board.host()
        for _text in range(2):
            board.begin(host)
            for token in range(3):
                board.decode(host, predict=token != 1)

    await board.use(decode)


@cocotb.test()
async def a_token_is_repeated_after_errors(dut: Any) -> None:
    """Bus errors at a token are reported, and its keys and values are written again."""
    board = Board(dut, "errors")

    def repeat() -> None:
        host = board.host()
        board.begin(host)
        board.decode(host, predict=False)
        state = np.ones(board.p.p3llm.hidden_size, np.float32)
        for port in ("bank_reads", "states", "bank_writes", "output_writes"):
            board.one.responses[port].fail(3, Response.SLVERR.value)
            with pytest.raises(DeviceError, match=rf"SLVERR at address 0x\w+ of the port {port}"):
                host.run(state, predict=True)
            assert host.length == 1
        board.decode(host, predict=True)

    await board.use(repeat)
    assert all(port.idle for port in board.one.ports.values())


@cocotb.test()
async def a_text_has_at_most_as_many_tokens_as_slots(dut: Any) -> None:
    """Refuse a token after a text of `slots` tokens."""
    board = Board(dut, "length")

    def fill() -> None:
        host = board.host()
        host.length = board.p.p3llm.slots
        with pytest.raises(UserError, match="a text must have at most 128 tokens, not 129"):
            host.run(np.ones(board.p.p3llm.hidden_size, np.float32), predict=True)

    await board.use(fill)

"""cocotb: the host library generates text with the RTL of MEADOW and the AXI shell."""

from dataclasses import replace
from typing import Any

import cocotb
import pytest

from golden.meadow.whole_model import WholeModel
from golden.shell.shell_jobs import Region
from hdl.errors import UserError
from hdl.shell.axi import Cause, Response
from systola.host.device import DeviceError
from systola.host.meadow import MeadowHost
from systola.host.transport import Window
from testbenches.shell.axi_memory import AxiReads
from tests.shell.host_board import HostBoard
from tests.shell.meadow_texts import MeadowTexts

MEMORY = Window(0x12_3450_0000, 0x12_3454_0000)


class Board(HostBoard):
    """The simulated accelerator with a random model.

    `memory_bytes` is the size of the memory from the start of `MEMORY`.
    """

    def __init__(self, dut: Any, salt: str, *, memory_bytes: int | None = None) -> None:
        end = MEMORY.end if memory_bytes is None else MEMORY.first + memory_bytes
        super().__init__(dut, salt, Window(MEMORY.first, end))
        self.texts = MeadowTexts(self.one.bench, self.p)
        self.embed = self.texts.embed

    def host(self, timeout: float = 60) -> MeadowHost:
        """Return a host that has loaded the model."""
        return self.texts.host(self.transport, timeout)


@cocotb.test()
async def text_equals_the_golden_model(dut: Any) -> None:
    """Generate two texts; each token, with its sum, is that of the golden model."""
    board = Board(dut, "text")
    prompts = [3, 1, 4, 1, 5], list(range(board.p.meadow.most_tokens + 1))[:12]

    def generate() -> None:
        host = board.host()
        for prompt in prompts:
            board.texts.generate(host, prompt, 4)

    await board.use(generate)


@cocotb.test()
async def wrong_digest_writes_nothing(dut: Any) -> None:
    board = Board(dut, "digest")
    before = bytes(board.content)
    other = replace(board.p, outstanding=board.p.outstanding + 1)

    def open_other() -> None:
        with pytest.raises(UserError, match="digest of the accelerator must be 0x") as caught:
            MeadowHost(board.transport, other, board.texts.packed)
        assert f"not {board.p.digest:#010x}" in str(caught.value)

    await board.use(open_other)
    assert board.content == before
    assert await board.one.read("base_0_low") == 0


@cocotb.test()
async def small_memory_is_refused(dut: Any) -> None:
    board = Board(dut, "small memory", memory_bytes=4096)
    before = bytes(board.content)

    def open_small() -> None:
        with pytest.raises(UserError, match=r"the memory must have .* bytes .*, not 4,096"):
            board.host()

    await board.use(open_small)
    assert board.content == before


@cocotb.test()
async def a_block_is_repeated_after_an_error(dut: Any) -> None:
    """A bus error, a job without end, and a second start are reported; the next job is correct."""
    board = Board(dut, "errors")
    golden = WholeModel(board.p.meadow, board.texts.model)
    expected = golden.step(board.embed([7, 8])).token

    def repeat() -> None:
        host = board.host(timeout=0.5)
        failing = board.one.responses["packet_reads"]
        failing.fail(40, Response.SLVERR.value)
        with pytest.raises(DeviceError, match=r"SLVERR at address 0x\w+ of the port packet_reads"):
            host.run(board.embed([7, 8]), predict=True)
        assert host.length == 0
        # Instructions without their matrices never end.
        count = len(host._program(tokens=2, predict=True).instructions)
        with pytest.raises(DeviceError, match=r"must end within 0\.5 s; it was stopped") as caught:
            host.device.run([count, 0], timeout=0.5)
        assert caught.value.cause is Cause.NONE
        host.device.start([count, 0])
        for refused in (lambda: host.device.start([1, 1]), lambda: host.device.set_regions([])):
            with pytest.raises(UserError, match=r"must be idle before .*, not busy"):
                refused()
        host.device.stop()
        odd = [Region(board.p.data_bytes // 2, 64)]
        with pytest.raises(UserError, match=f"must be multiples of {board.p.data_bytes} below"):
            host.device.set_regions(odd)
        host.timeout = 60
        assert host.run(board.embed([7, 8]), predict=True) == expected

    await board.use(repeat)
    reads = [one for one in board.one.ports.values() if isinstance(one, AxiReads)]
    assert all(one.idle for one in reads)

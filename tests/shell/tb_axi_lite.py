"""cocotb: the register block with the AXI4-Lite master of cocotbext-axi, an independent model."""

import itertools
import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

from golden.shell.axi_registers import RegisterModel
from hdl.shell.register_map import AxiRegistersParameters, registers
from testbenches.bench import catalog_parameters

SKIPPED = ("cycles_low", "cycles_high", "control")
"""Registers whose values depend on time."""


def pauses(rng: random.Random):
    """Yield whether to pause, at random."""
    return (rng.random() < 0.5 for _ in itertools.count())


@cocotb.test()
@cocotb.parametrize(paused=[False, True])
async def random_accesses_equal_the_model(dut, paused: bool) -> None:
    p: AxiRegistersParameters = catalog_parameters()
    rng, model = random.Random(f"{paused}"), RegisterModel(p)
    for name in ("finish", "errors", "tokens_in_ready", "tokens_out_valid"):
        getattr(dut, name).value = 0
    dut.idle.value = 1
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    master: Any = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)
    if paused:
        interface = master.write_if
        for channel in (interface.aw_channel, interface.w_channel, interface.b_channel):
            channel.set_pause_generator(pauses(rng))
        for channel in (master.read_if.ar_channel, master.read_if.r_channel):
            channel.set_pause_generator(pauses(rng))
    dut.rst.value = 1
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    offsets = [one.offset for one in registers(p) if one.name not in SKIPPED]
    for _ in range(150):
        offset = rng.choice([*offsets, 0x3C, 0xFFC])
        if rng.random() < 0.5:
            value = rng.choice([0, 1, 4, 64, rng.getrandbits(32)])
            answer: Any = await master.write(offset, value.to_bytes(4, "little"))
            assert answer.resp == AxiResp(model.write(offset, value))
        else:
            answer = await master.read(offset, 4)
            value, response = model.read(offset)
            assert answer.resp == AxiResp(response)
            assert int.from_bytes(answer.data, "little") == value

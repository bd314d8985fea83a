"""Expect zero in a register that nothing writes."""

from typing import Any

import cocotb
from cocotb.triggers import Timer


@cocotb.test()
async def an_unwritten_register_is_zero(dut: Any) -> None:
    await Timer(1, "ns")
    assert int(dut.held.value) == 0

"""Apply every pair of shifts to every value."""

from itertools import product
from typing import Any

import cocotb
from cocotb.triggers import Timer


@cocotb.test()
async def every_shift(dut: Any) -> None:
    for value, first, second in product(range(16), range(2), range(2)):
        dut.value.value, dut.first.value, dut.second.value = value, first, second
        await Timer(1, "ns")
        assert int(dut.left.value) == (value << first + second) & 15
        assert int(dut.right.value) == value >> first + second

"""Testbench that stops passing cycles."""

from itertools import repeat
from typing import Any

import cocotb

from testbenches.bench import Bench


@cocotb.test()
async def waits_without_a_cycle(dut: Any) -> None:
    bench = Bench(dut, "waits without a cycle")
    await bench.reset()
    for _ in repeat(None):
        pass

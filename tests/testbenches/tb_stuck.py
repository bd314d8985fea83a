"""Testbench of a design without progress, and of one that never finishes."""

from typing import Any

import cocotb

from testbenches.bench import Bench


@cocotb.test()
async def nothing_moves(dut: Any) -> None:
    bench = Bench(dut, "nothing moves", timeout=300)
    source = bench.source("source")
    await bench.reset()
    dut.deaf.value = 1
    source.send([1])
    await bench.run(until=lambda: source.idle)


@cocotb.test()
async def moves_without_end(dut: Any) -> None:
    bench = Bench(dut, "moves without end", timeout=300)
    sink = bench.sink("sink")
    await bench.reset()
    await bench.run(until=lambda: any(payload & 1 for _cycle, payload in sink.received[-1:]))

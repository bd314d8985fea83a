"""cocotb: the jobs of `meadow_axi`'s throughput test at MEADOW's own ports, without the shell.

`testbenches.shell.meadow_axi_speed` runs it on the unit `meadow`.
"""

from typing import Any

import cocotb

from hdl.meadow.parameters import MeadowParameters
from testbenches.bench import catalog_parameters, record_fact
from testbenches.meadow.accelerator import Accelerator
from testbenches.shell.meadow_axi_work import MeadowWork, measured_works
from testbenches.streams import read


@cocotb.test()
async def jobs(dut: Any) -> None:
    """Send one job after the other, and record the cycles of each."""
    p: MeadowParameters = catalog_parameters()
    for name, work in measured_works(p).items():
        record_fact("jobs", name, await run(dut, work))


async def run(dut: Any, work: MeadowWork) -> list[int]:
    """Run all jobs of a work; return the cycles of each."""
    one = Accelerator(dut, "bare jobs", work.program)
    await one.bench.reset()
    one.start()
    sent, cycles = 0, list[int]()
    for source in one.inputs.values():
        source.clear()
    for job in work.jobs:
        for name, words in job.words.items():
            one.inputs[name].send(words)
        sent += len(job.words["instructions"])
        cycles.append(
            await one.bench.run(
                until=lambda wanted=sent: (
                    one.inputs["instructions"].taken == wanted and bool(read(dut.idle))
                )
            )
        )
    one.bench.parts.clear()
    return cycles

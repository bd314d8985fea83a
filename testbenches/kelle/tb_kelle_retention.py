"""Testbench of the accelerator on fading banks: refresh in the whole, in the middle of traffic."""

from typing import Any

import cocotb
import numpy as np

from golden.kelle.edram.kv_edram import Retention
from hdl.kelle.edram.refresh_walker import RefreshSettings
from testbenches.bench import catalog_parameters
from testbenches.kelle.tb_kelle import Decode, longest

STEPS = 24
WALK = 21
TICK = 3 * WALK
NEWS = 100
"""Cycles from a key's arrival in its slot to its first score, at most."""
RETENTION = Retention(cycles=TICK + WALK + WALK + NEWS, rate=0.25, seed=5)
"""A fraction of a step; see `testbenches.kelle.edram.retention`."""


@cocotb.test()
async def refresh_keeps_the_cache(dut: Any) -> None:
    """Decode with every interval of one tick: not a bit of any output differs."""
    p = catalog_parameters()
    assert p.memory.refresh.walk_cycles == WALK
    decode = Decode(dut, "refresh keeps")
    settings = RefreshSettings(
        parameters=p.memory.refresh,
        tick_cycles=TICK,
        patience=WALK,
        msb_hst=1,
        msb_lst=1,
        lsb_hst=1,
        lsb_lst=1,
    )
    await decode.start(settings, decode.full)
    for now in range(decode.full, decode.full + STEPS):
        cycles = await decode.step(now)
        assert cycles > RETENTION.cycles
    await decode.check()


@cocotb.test()
async def without_refresh_the_cache_fades(dut: Any) -> None:
    """Decode without refresh: every output after the first steps is wrong."""
    decode = Decode(dut, "without refresh")
    await decode.start(longest(decode.p), decode.full)
    for now in range(decode.full, decode.full + 6):
        await decode.step(now)
    outputs, _cycles = decode.accelerator.outputs()
    wanted = np.stack([step.output for step in decode.steps])
    assert np.all(np.any(outputs[1:] != wanted[1:], axis=1))

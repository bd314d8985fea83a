"""Testbench of the accelerator on banks that lose bits: refresh during normal traffic."""

from typing import Any

import cocotb
import numpy as np

from golden.kelle.edram.kv_edram import Retention
from hdl.kelle.edram.refresh_walker import RefreshSettings
from hdl.kelle.parameters import KelleParameters
from testbenches.bench import catalog_parameters, record_fact
from testbenches.kelle.decode import Decode, longest

WALKS = (3, 12, 36)
"""Intervals of full sweeps, in units of one sweep: from busy banks to one sweep per step."""
NEWS = 100
"""Maximum cycles from the write of a key into its slot to its first score."""


def retention(p: KelleParameters) -> Retention:
    """Return a retention shorter than a step; see `testbenches.kelle.edram.retention`."""
    walk = p.memory.refresh.sweep_cycles
    news = NEWS * p.rows // 4
    return Retention(cycles=(WALKS[-1] + 2) * walk + news, rate=0.25, seed=5)


@cocotb.test()
@cocotb.parametrize(walks=WALKS)
async def refresh_keeps_the_cache(dut: Any, walks: int) -> None:
    """Decode with all intervals of one tick, several ticks per step: no bit differs."""
    p = catalog_parameters()
    decode = Decode(dut, f"refresh keeps {walks}")
    walk = p.memory.refresh.sweep_cycles
    settings = RefreshSettings(
        parameters=p.memory.refresh,
        tick_cycles=walks * walk,
        timeout=walk,
        msb_hst=1,
        msb_lst=1,
        lsb_hst=1,
        lsb_lst=1,
    )
    # The selection from a long text takes too long; some slots would still be empty.
    await decode.start(settings, decode.full, select=small_cache(p))
    taken = []
    for now in decode.text(decode.full, 12 if small_cache(p) else 2):
        taken.append(await decode.step(now))
        assert taken[-1] > retention(p).cycles
    await decode.check()
    record_fact("cycles_by_walks_between_sweeps", str(walks), max(taken))


@cocotb.test()
async def without_refresh_the_cache_fades(dut: Any) -> None:
    """Decode without refresh: every output after the first steps is wrong."""
    decode = Decode(dut, "without refresh")
    await decode.start(longest(decode.p), decode.full, select=small_cache(decode.p))
    taken = []
    for now in decode.text(decode.full, 12 if small_cache(decode.p) else 2):
        taken.append(await decode.step(now))
    outputs, _cycles = decode.accelerator.outputs()
    wanted = np.stack([step.output for step in decode.steps])
    assert np.all(np.any(outputs[1:] != wanted[1:], axis=1))
    record_fact("cycles_by_walks_between_sweeps", "none", max(taken))


def small_cache(p: KelleParameters) -> bool:
    """Return whether the preset is small enough to decode a whole text."""
    return p.slots <= 16

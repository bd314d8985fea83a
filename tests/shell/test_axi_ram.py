"""The masters with the memory of cocotbext-axi, an implementation of AXI4 by other authors."""

from pathlib import Path

import pytest

from hdl.catalog import entry_named
from hdl.emitted import emit_unit
from hdl.target import Target
from testbenches.runner import Request, run_testbench


@pytest.mark.parametrize("top", ["axi_read_master", "axi_write_master"])
@pytest.mark.parametrize("preset", ["tiny", "tiny_lanes"])
def test_the_master_works_with_the_memory_of_cocotbext_axi(
    top: str, preset: str, tmp_path: Path
) -> None:
    entry = entry_named(top)
    emitted = emit_unit(entry, preset, Target.ASIC, directory=tmp_path / "rtl")
    result = run_testbench(
        top=top,
        preset=preset,
        parameters=entry.parameters(preset),
        testbench="tests.shell.tb_axi_ram",
        ports=emitted.ports,
        verilog=list(emitted.verilog),
        home=tmp_path,
        request=Request(simulator="verilator", seed=1),
    )
    assert (result.tests, result.failures, result.first_failure) == (2, 0, "")

"""A simulation that never ends is terminated, with a report of its position."""

import re
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.catalog import entry_named
from hdl.emit import Emission, write_verilog
from hdl.errors import UserError
from hdl.unit import Unit
from testbenches.runner import (
    LONG_SECONDS,
    SECONDS,
    SLOW,
    TINY_SECONDS,
    Request,
    SimulationResult,
    run_testbench,
    time_limit,
)


class Talker(Unit):
    """Accept no input while `deaf` is 1, and output even numbers without end."""

    def __init__(self) -> None:
        super().__init__(
            {
                "deaf": In(1),
                "source": In(stream.Signature(8)),
                "sink": Out(stream.Signature(8)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [self.source.ready.eq(~self.deaf), self.sink.valid.eq(1)]
        with m.If(self.sink.ready):
            m.d.sync += self.sink.payload.eq(self.sink.payload + 2)
        return m


def run(home: Path, testbench: str) -> SimulationResult:
    emission = Emission(top=Talker(), name="talker")
    files = write_verilog(emission, home / "rtl")[:-1]
    return run_testbench(
        top="talker",
        preset="test",
        parameters=None,
        testbench=f"tests.testbenches.{testbench}",
        ports=emission.modules[-1].ports,
        verilog=files,
        home=home,
        request=Request(seed=1, seconds=4),
    )


def test_stuck_design_differs_from_endless_design(tmp_path: Path) -> None:
    result = run(tmp_path, "tb_stuck")
    assert (result.tests, result.failures) == (2, 2)
    # The reset takes two cycles.
    assert result.first_failure == "nothing_moves: cycle 302: no transfer for 300 cycles"
    junit = (tmp_path / "sim" / "junit.xml").read_text()
    assert re.search(r'name="moves_without_end".*cycle \d{4,}: no end after 4 s', junit, re.S)


def test_testbench_without_cycles_is_terminated(tmp_path: Path) -> None:
    test = r"tb_spinning\.waits_without_a_cycle"
    where = r"Timeout[\s\S]*tb_spinning\.py\", line \d+ in waits_without_a_cycle"
    with pytest.raises(UserError, match=rf"no results in \S*{test}[\s\S]*{where}"):
        run(tmp_path, "tb_spinning")


def test_time_limit_by_preset() -> None:
    entry = entry_named("kelle")
    assert time_limit(entry, "tiny", Request()) == TINY_SECONDS
    assert time_limit(entry_named("softmax"), "paper", Request()) == SECONDS
    assert time_limit(entry, "paper", Request()) == LONG_SECONDS
    assert time_limit(entry, "kelle_8_2", Request()) == LONG_SECONDS
    assert time_limit(entry, "tiny", Request(netlist=True)) == SLOW * TINY_SECONDS
    assert time_limit(entry, "tiny", Request(netlist=True, seconds=5)) == 5

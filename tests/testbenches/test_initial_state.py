"""Registers and memories without an initial value start at random, by the seed of the run."""

from pathlib import Path

import numpy as np
import pytest

from hdl.emit import Port
from testbenches.harness import Harness
from testbenches.runner import Request, run_testbench

PORTS = (
    Port(("clk",), "input", 1),
    Port(("rst",), "input", 1),
    Port(("held",), "output", 64),
    Port(("stored",), "output", 64),
)

UNWRITTEN = """\
module unwritten(input clk, input rst, output [63:0] held, output [63:0] stored);
  reg [63:0] register;
  reg [63:0] memory [0:3];
  always @(posedge clk) if (held == 64'd0 && stored == 64'd0) memory[0] <= register;
  assign held = register;
  assign stored = memory[1];
endmodule
"""


@pytest.fixture
def verilog(tmp_path: Path) -> Path:
    file = tmp_path / "unwritten.v"
    file.write_text(UNWRITTEN)
    return file


def test_the_harness_starts_with_random_registers_and_memories(verilog: Path) -> None:
    harness = Harness.built("unwritten", PORTS, [verilog])

    def start(seed: int) -> tuple[bytes, bytes]:
        run = harness.run({}, {}, seed=seed, record=["held", "stored"], trail=1)
        for bits in run.outputs.values():
            # 64 random bits; between 16 and 48 of them are 1, except for one seed in 30,000.
            assert 16 <= np.count_nonzero(bits[0]) <= 48
        return run.outputs["held"][0].tobytes(), run.outputs["stored"][0].tobytes()

    assert start(0) == start(0) != start(1)
    assert start(0)[0] != start(0)[1]


def test_a_testbench_sees_a_register_that_nothing_writes(verilog: Path, tmp_path: Path) -> None:
    result = run_testbench(
        top="unwritten",
        preset="test",
        parameters=None,
        testbench="tests.testbenches.tb_unwritten",
        ports=PORTS,
        verilog=[verilog],
        home=tmp_path,
        request=Request(seed=0),
    )
    assert not result.passed and "an_unwritten_register_is_zero" in result.first_failure

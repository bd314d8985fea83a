"""Cycles of whole tokens through the AXI shell, and at MEADOW's own ports.

``python -m testbenches.shell.meadow_axi_speed [PRESET [SETTINGS]]`` simulates both units with the
same work and the same latency of memory, and prints one row per job.
"""

import sys

from hdl.catalog import entry_named
from hdl.emitted import emit_unit
from hdl.paths import BUILD
from hdl.settings import parse_settings
from hdl.target import Target
from testbenches.runner import Request, prepare, run_testbench, simulate


def main(preset: str, settings: str) -> None:
    """Print the cycles of each job with and without the shell, and their ratio."""
    shell, bare = entry_named("meadow_axi"), entry_named("meadow")
    dimensions = shell.dimensions(preset, parse_settings(settings))
    name, p = shell.named(dimensions)
    request = Request(seed=1, target=Target.FPGA, lint=True, only="full_rate")
    found = simulate(shell, dimensions, request)
    assert found.passed, found.first_failure
    emitted = emit_unit(bare, p.meadow, Target.FPGA)
    prepare(shell, p)
    other = run_testbench(
        top=bare.top,
        preset=name,
        parameters=p.meadow,
        testbench="testbenches.shell.bare_meadow_jobs",
        ports=emitted.ports,
        verilog=list(emitted.verilog),
        home=BUILD / shell.top / name / "bare",
        request=Request(seed=1, target=Target.FPGA, lint=True),
    )
    assert other.passed, other.first_failure
    print("work; job; cycles at the burst ports; through AXI; ratio")
    for work, cycles in other.facts["jobs"].items():
        for number, (own, axi) in enumerate(zip(cycles, found.facts["jobs"][work], strict=True)):
            print(f"{work}; {number}; {own:,}; {axi:,}; {own / axi:.1%}")


if __name__ == "__main__":
    preset, settings, *_rest = [*sys.argv[1:], *("tiny", "")[len(sys.argv) - 1 :]]
    main(preset, settings)

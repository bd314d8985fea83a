from pathlib import Path

import pytest

from hdl.emit import Emission, Port, write_verilog
from synth.axi_stream import find_streams, write_wrapper
from testbenches.runner import Request, run_testbench
from tests.synth.designs import Doubler


def test_streams_are_found_by_their_ports() -> None:
    ports = [
        Port(("clk",), "input", 1),
        Port(("a", "b", "payload"), "input", 9),
        Port(("a", "b", "valid"), "input", 1),
        Port(("a", "b", "ready"), "output", 1),
        Port(("c", "payload"), "output", 3),
        Port(("c", "valid"), "output", 1),
        Port(("d", "payload"), "output", 4),
        Port(("mode",), "input", 2),
    ]
    streams, others = find_streams(ports)
    assert [(s.interface, s.width, s.bytes) for s in streams] == [
        ("s_axis_a_b", 9, 2),
        ("m_axis_c", 3, 1),
    ]
    assert [port.name for port in others] == ["d_payload", "mode"]


def test_a_module_without_streams_has_no_wrapper() -> None:
    with pytest.raises(ValueError, match="an AXI4-Stream wrapper needs a clock and a stream"):
        write_wrapper("plain", [Port(("clk",), "input", 1), Port(("a",), "input", 1)])


def test_the_wrapper_streams_under_any_pauses(tmp_path: Path) -> None:
    emission = Emission(top=Doubler(), name="doubler")
    files = write_verilog(emission, tmp_path / "rtl")
    ports = emission.modules[-1].ports
    wrapper = tmp_path / "doubler_axis.v"
    wrapper.write_text(write_wrapper("doubler", ports))
    outer = wrapper_ports(wrapper.read_text())
    result = run_testbench(
        top="doubler_axis",
        preset="test",
        parameters=None,
        testbench="tests.synth.tb_axi_stream",
        ports=outer,
        verilog=[*(file for file in files if file.suffix == ".v"), wrapper],
        home=tmp_path,
        request=Request(simulator="verilator", seed=1),
    )
    assert (result.tests, result.failures, result.first_failure) == (4, 0, "")


def wrapper_ports(text: str) -> list[Port]:
    """Read the ports of a wrapper back."""
    ports = []
    for line in text.splitlines():
        words = line.strip().rstrip(",").split()
        if words and words[0] in ("input", "output"):
            width = int(words[1][1:].split(":")[0]) + 1 if len(words) == 3 else 1
            ports.append(Port((words[-1],), words[0], width))
    return ports

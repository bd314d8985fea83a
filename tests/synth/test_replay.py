import pytest

from hdl.catalog import entry_named
from hdl.emitted import emit_unit
from hdl.paths import BUILD
from synth.asic import elaborate, map_to_cells
from synth.flat_netlist import FlatCell, FlatNetlist
from synth.functions import logic_function, names
from synth.liberty import GENERIC, read_library
from synth.mapped_design import Netlist
from synth.replay import replay
from synth.waveforms import Waveforms, read_waveforms
from testbenches.runner import Request, simulate

TOP, PRESET = "element_serial_layernorm", "tiny"


@pytest.fixture(scope="module")
def recorded() -> Waveforms:
    """A unit with memories, multipliers and sub-units, simulated as RTL."""
    assert simulate(entry_named(TOP), PRESET, Request(seed=1, waves=True, only="real")).passed
    return read_waveforms(BUILD / TOP / PRESET / "sim" / "dump.vcd", TOP)


@pytest.fixture(scope="module", params=[False, True], ids=["modules", "flat"])
def netlist(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Netlist:
    entry = entry_named(TOP)
    emitted = emit_unit(entry, entry.parameters(PRESET), sources=True)
    folder = tmp_path_factory.mktemp("netlist")
    design = elaborate(emitted.verilog, TOP, folder, flatten=request.param)
    return map_to_cells(design, read_library(GENERIC, origin="of the project"))


def differing(flat: FlatNetlist, netlist: Netlist, recorded: Waveforms) -> tuple[int, int]:
    """Count the nets that the RTL has under one of their names, and those that it has otherwise."""
    waves = replay(flat, netlist.library, recorded)
    both = [
        (wave, recorded.nets[name])
        for net, wave in waves.items()
        for name in flat.names[net]
        if name in recorded.nets
    ]
    return len(both), sum(own != theirs for own, theirs in both)


def test_every_net_is_known_and_named_ones_are_as_in_the_rtl(
    netlist: Netlist, recorded: Waveforms
) -> None:
    """Only sources are taken from the RTL; what the netlist's logic makes of them is compared."""
    flat = FlatNetlist.read(netlist)
    waves = replay(flat, netlist.library, recorded)
    driven = {
        cell.nets[pin.name]
        for cell in flat.cells
        for pin in netlist.library.cells[cell.kind].outputs
        if pin.name in cell.nets
    }
    assert len(driven) > 1000 and not driven - set(waves)
    compared, wrong = differing(flat, netlist, recorded)
    assert compared > 500 and wrong == 0


def test_a_wrong_gate_shows(netlist: Netlist, recorded: Waveforms) -> None:
    """One NAND in forty read as an inverter of its first input."""
    flat = FlatNetlist.read(netlist)
    gates = [i for i, cell in enumerate(flat.cells) if cell.kind == "NAND2"]
    for index in gates[::40]:
        cell = flat.cells[index]
        first = next(pin.name for pin in netlist.library.cells["NAND2"].inputs)
        tied = {pin: cell.nets[first] for pin in cell.nets if pin in "AB"}
        flat.cells[index] = FlatCell(path=cell.path, kind=cell.kind, nets=cell.nets | tied)
    assert differing(flat, netlist, recorded)[1] > 0


def test_registers_that_no_one_recorded_follow_from_their_inputs(
    netlist: Netlist, recorded: Waveforms
) -> None:
    """Without the pipeline registers of an operator, all that follows is still the RTL's."""
    flat = FlatNetlist.read(netlist)
    fewer = {name: wave for name, wave in recorded.nets.items() if "multiply" not in name}
    assert len(fewer) < len(recorded.nets)
    partial = Waveforms(cycles=recorded.cycles, changes=recorded.changes, nets=fewer)
    waves = replay(flat, netlist.library, partial)
    late = [
        (wave, recorded.nets[name])
        for net, wave in waves.items()
        for name in flat.names[net]
        if name in recorded.nets and name not in fewer
    ]
    first = 8  # Cycles in which the registers still have what was before.
    assert late and all(own >> first == theirs >> first for own, theirs in late)


@pytest.mark.parametrize(
    ("text", "table"),
    [("!(A B)", 0b0111), ("A' + B", 0b1101), ("A ^ !B", 0b1001), ("(A & B) | !A", 0b1101)],
)
def test_functions_are_those_of_liberty(text: str, table: int) -> None:
    assert logic_function(text)({"A": 0b1010, "B": 0b1100}, 0b1111) == table
    assert names(text) == ["A", "B"]


@pytest.mark.parametrize("text", ["", "A +", "(A", "A)"])
def test_what_is_no_function_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a function must be complete"):
        logic_function(text)

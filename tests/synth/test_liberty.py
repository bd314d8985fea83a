"""Liberty files: reading, paths of any characters, several files, and refusals."""

import gzip
import os
from pathlib import Path

import pytest

from hdl.errors import UserError
from hdl.paths import BUILD
from synth.asic import elaborate, map_to_cells
from synth.debian import opensta, osu018
from synth.liberty import GENERIC, find_library, read_library
from synth.netlist import netlist_sources
from synth.timing import analyse
from tests.synth.designs import Counter, emit

SMALL = """
/* a library */
library (small) {
  nom_voltage : 1.10; nom_temperature : 25.0;
  capacitive_load_unit (1, pf);
  cell (NAND2_WIDE) { area : 9; pin (A) { direction : input; } pin (B) { direction : input; }
    pin (Y) { direction : output; function : "!(A*B)"; } }
  cell (NAND2_B) { area : 3; pin (A) { direction : input; } pin (B) { direction : input; }
    pin (Y) { direction : output; function : "(A B)'"; } }
  cell (NOR2) { area : 2; pin (A) { direction : input; } pin (B) { direction : input; }
    pin (Y) { direction : output; function : "(!A) & (!B)"; } }
  cell (INV) { area : 1; pin (A) { direction : input; }
    pin (Y) { direction : output; function : "A'"; } }
  cell (BUF) { area : 2; dont_use : true; pin (A) { direction : input; }
    pin (Y) { direction : output; function : "A"; } }
  cell (DFF) { area : 5; ff (IQ, IQN) { clocked_on : "C"; next_state : "D"; }
    pin (C) { direction : input; clock : true; } pin (D) { direction : input; }
    pin (Q) { direction : output; function : "IQ"; } }
  cell (EDFF) { area : 9; ff (IQ, IQN) { clocked_on : "C"; next_state : "(D E) + (IQ !E)"; }
    pin (C) { direction : input; clock : true; } pin (D) { direction : input; }
    pin (E) { direction : input; } pin (Q) { direction : output; function : "IQ"; } }
}
"""


def test_a_library_is_read(tmp_path: Path) -> None:
    file = tmp_path / "small.lib"
    file.write_text(SMALL)
    library = find_library(file)
    assert (library.name, library.corner) == ("small", "1.1 V, 25 C")
    assert library.nand2_area == 3
    assert library.inverter is not None and library.inverter.name == "INV"
    assert library.buffer is None
    assert library.dont_use == ["BUF", "EDFF"]
    assert library.capacitance_unit_ff == 1000
    assert {name for name, cell in library.cells.items() if cell.state} == {"DFF", "EDFF"}


def test_a_compressed_library_is_the_same(tmp_path: Path) -> None:
    plain, packed = tmp_path / "small.lib", tmp_path / "small.lib.gz"
    plain.write_text(SMALL)
    packed.write_bytes(gzip.compress(SMALL.encode()))
    assert find_library(plain).cells == find_library(packed).cells
    assert find_library(plain).digest == find_library(packed).digest


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.lib", None, "LIBERTY must be a file that exists"),
        ("text.lib", b"module top; endmodule", "LIBERTY must be a liberty file that opens with"),
        ("cut.lib", SMALL[:-200].encode(), "LIBERTY must be a whole file"),
        ("empty.lib", b"library (nothing) { }", "LIBERTY must be a liberty file with cells"),
        ("cut.lib.gz", gzip.compress(SMALL.encode())[:-20], "LIBERTY must be a whole gzip file"),
    ],
)
def test_what_is_no_liberty_is_refused(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=message):
        find_library(file)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a:b.lib", "must be a file that exists, not '.*/a'; a colon separates files"),
        ("a b.lib", "must be a file that exists, not '.*/a b.lib'$"),
        ("small.lib:", "must name a file between colons, not '.*small.lib:'"),
        (":small.lib", "must name a file between colons, not ':"),
    ],
)
def test_a_list_of_files_with_a_fault_is_refused(
    given: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.lib").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        find_library(given)


def test_a_library_without_nand_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "inverters.lib"
    file.write_text("library (i) { cell (INV) { area : 1; pin (A) { direction : input; } } }")
    with pytest.raises(UserError, match="must contain a two-input NAND cell"):
        _ = find_library(file).nand2_area


def test_without_any_library_there_is_a_stated_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.liberty.osu018", lambda *_, **__: None)
    library = find_library()
    assert library.origin.startswith("generic estimate")
    assert library.nand2_area == 1 and not library.timed
    assert library == read_library(GENERIC, origin=library.origin)


TOP = "design_under_test"
OSU = osu018(fetch=False)
AWKWARD = 'my libs é, it\'s "q" $HOME {x} [0] ; #\\'

needs_tools = pytest.mark.skipif(
    opensta(fetch=False) is None or OSU is None, reason="needs OpenSTA and OSU018"
)


def split(text: str, folder: Path, count: int) -> list[Path]:
    """Write a library as several files with its head each, and an equal share of its cells."""
    head, *cells = text.rpartition("}")[0].split("\ncell (")
    share = -(-len(cells) // count)
    files = []
    for number in range(count):
        file = folder / f"part {number}.lib"
        own = cells[number * share : (number + 1) * share]
        file.write_text("\ncell (".join([head, *own]) + "}\n")
        files.append(file)
    return files


@needs_tools
def test_awkward_paths_and_several_files_give_the_same_netlist(tmp_path: Path) -> None:
    """The whole flow: mapping, cell models and timing."""
    assert OSU is not None
    folder = tmp_path / AWKWARD
    folder.mkdir()
    whole = folder / "whole é.lib"
    whole.write_bytes(OSU.read_bytes())
    parts = ":".join(map(str, split(OSU.read_text(), folder, 3)))
    verilog = emit(Counter(width=8, memory=False), tmp_path / "rtl")
    found = []
    for number, given in enumerate((OSU, whole, parts)):
        library = find_library(given)
        netlist = map_to_cells(elaborate(verilog, TOP, tmp_path / f"synth{number}"), library)
        timing = analyse(netlist)
        assert timing is not None
        sources = netlist_sources(netlist, tmp_path / f"netlist{number}")
        models = sources[0].read_text()
        found.append((netlist.verilog.read_text(), netlist.area_um2, timing.paths, models))
    assert found[0] == found[1] == found[2]


def test_the_tools_read_a_copy_with_a_plain_path(tmp_path: Path) -> None:
    file = tmp_path / f"{AWKWARD}.lib"
    file.write_text(SMALL)
    library = find_library(str(file))
    assert library.path.is_relative_to(BUILD / "liberty")
    assert library.path.name.isascii() and not set(library.path.name) & set(" '\"$;#{}[]\\")
    library.path.write_text("changed by somebody")
    assert find_library(str(file)).path.read_text() == SMALL


def test_the_home_directory_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "small.lib").write_text(SMALL)
    assert find_library("~/small.lib").name == "small"
    with pytest.raises(UserError, match="LIBERTY must name a user that exists, not '~no_s"):
        find_library("~no_such_user/x")


INVERTER = """cell (%s) { area : %d; pin (A) { direction : input; } pin (Y) {
  direction : output; function : "A'"; timing () { cell_rise (%s) { values ("1"); } } } }"""


def library_text(head: str, cell: str, template: str = "scalar", area: int = 1) -> str:
    return f"library (part) {{ {head}\n {INVERTER % (cell, area, template)} }}"


def find_both(folder: Path, first: str, second: str):
    names = [folder / "a.lib", folder / "b.lib.gz"]
    names[0].write_text(first)
    names[1].write_bytes(gzip.compress(second.encode()))
    return find_library(os.pathsep.join(map(str, names)))


def test_files_of_one_library_are_merged(tmp_path: Path) -> None:
    """Remarks may differ; equal definitions appear once; a template of other content is renamed."""
    head = 'time_unit : "1ns"\n capacitive_load_unit (1, ff); voltage_map (VDD, %s); date : "%s";'
    template = (
        'lu_table_template (t) { variable_1 : total_output_net_capacitance; index_1 ("%d"); }'
    )
    texts = [
        library_text(head % ("1.1", "Monday // {") + template % 1, "ONE", "t"),
        library_text(head % ("1.1", "Tuesday") + template % 2, "TWO", "t", 2),
    ]
    library = find_both(tmp_path, *texts)
    assert {name: cell.area for name, cell in library.cells.items()} == {"ONE": 1, "TWO": 2}
    assert library.name == "part_and_1_more"
    assert library.capacitance_unit_ff == 1
    text = library.path.read_text()
    assert text.count("time_unit") == text.count("voltage_map") == text.count("date") == 1
    one, two = text.index("cell (ONE)"), text.index("cell (TWO)")
    assert "cell_rise (t)" in text[one:two] and "cell_rise (t_1)" in text[two:]
    assert text.count("lu_table_template (t)") == text.count("lu_table_template (t_1)") == 1


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (("", "X"), ("", "X"), "must define cell X once, not in .*a.lib and .*b.lib"),
        (('time_unit : "1ns";', "X"), ('time_unit : "1ps";', "Y"), 'agree: time_unit : "1ns";'),
        (
            ("capacitive_load_unit (1, ff);", "X"),
            ("capacitive_load_unit (1, pf);", "Y"),
            r"agree: capacitive_load_unit \(1, ff\);",
        ),
        (("voltage_map (V, 1);", "X"), ("voltage_map (V, 2);", "Y"), "agree: voltage_map"),
        (("nom_voltage : 1;", "X"), ("nom_voltage : 0.7;", "Y"), "agree: nom_voltage : 1;"),
        (
            ("operating_conditions (t) { voltage : 1; }", "X"),
            ("operating_conditions (t) { voltage : 2; }", "Y"),
            "agree: operating_conditions",
        ),
        (("", "X"), ("? : 1;", "Y"), "must be a whole file, not '.*b.lib.gz': '[?] : 1;"),
    ],
)
def test_files_that_contradict_each_other_are_refused(
    first: tuple[str, str], second: tuple[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        find_both(tmp_path, library_text(*first), library_text(*second))


def test_a_cell_with_two_definitions_in_one_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "twice.lib"
    file.write_text(library_text(INVERTER % ("X", 2, "scalar"), "X"))
    with pytest.raises(UserError, match="LIBERTY must define cell X once"):
        find_library(file)


def test_a_library_name_is_fit_for_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "x.lib"
    file.write_text(SMALL.replace("(small)", '("/../tt 1.8V")'))
    assert find_library(file).name == "_.._tt_1.8V"

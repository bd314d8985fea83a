"""Power grid, DRC, LVS, GDS and picture of a small layout, and faults that the checks must find."""

import re
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import pytest

from hdl.errors import UserError
from synth.debian import opensta
from synth.layout import checker as programs
from synth.layout import flow, picture, tools
from synth.layout.checks import Checks, check, check_inputs, read_checks
from synth.layout.dies import write_dies
from synth.layout.flow import Layout, lay_out
from synth.layout.lef import Lef, read_lef
from synth.layout.netlist import Instance, LayoutNetlist
from synth.layout.picture import owners
from synth.layout.placement import Placement
from synth.layout.power import plan_power
from synth.liberty import find_library
from synth.mapped_design import Netlist
from synth.svg import SMALLEST, width_at
from tests.synth.test_timing import OSU

HAS_TOOLS = bool(
    tools.layout_programs(fetch=False)
    and programs.layout_checker(fetch=False)
    and opensta(fetch=False)
    and OSU
)
needs_tools = pytest.mark.skipif(not HAS_TOOLS, reason="needs graywolf, qrouter, Magic, netgen")
needs_lef = pytest.mark.skipif(OSU is None, reason="needs OSU018")


def _recheck(
    layout: Layout,
    lef: Lef,
    directory: Path,
    *,
    routed: str = "",
    netlist: tuple[str, str] = ("", ""),
) -> Checks:
    """Check a routed DEF, and a netlist in which one text is replaced by another."""
    original = (layout.file.parent / "counter.def").read_text()
    (directory / "counter.def").write_text(routed or original)
    checker = programs.find_checker(fetch=False)
    magic, netgen, spice = check_inputs(checker, layout.design, layout.power, lef)
    assert netlist[0] in spice
    inputs = [magic, netgen, spice.replace(*netlist)]
    return check(checker, inputs, "counter", directory)


def _with_wire(layout: Layout, wire: str) -> str:
    """Return the routed DEF with one more wire of the power net."""
    text = (layout.file.parent / "counter.def").read_text()
    changed = re.sub(r"(- vdd \( \* vdd \)[^;]*?) ;", rf"\1\n  NEW {wire} ;", text, count=1)
    assert changed != text
    return changed


@needs_tools
def test_a_layout_has_no_errors(layout: Layout) -> None:
    clean = Checks(drc={}, lvs="Circuits match uniquely.", lvs_differences=0)
    assert layout.checks == clean and clean.matches
    assert layout.figures["checks"]["drc_errors"] == 0 and layout.figures["checks"]["lvs_matches"]


@needs_tools
def test_the_router_gets_the_net_of_an_unused_port(layout: Layout) -> None:
    """Input `d` leads to the memory only; without a net, wires would cross its pin."""
    text = (layout.file.parent / "placed.def").read_text()
    assert "\n- d_0\n  ( PIN d_0 ) ;\n" in text


@needs_tools
def test_drc_counts_a_narrow_wire(layout: Layout, lef: Lef, tmp_path: Path) -> None:
    found = _recheck(
        layout, lef, tmp_path, routed=_with_wire(layout, "metal5 100 ( 1000 3000 ) ( 9000 3000 )")
    )
    assert found.drc_errors >= 1 and any("etal5 width" in rule for rule in found.drc)
    assert found.matches


@needs_tools
def test_drc_counts_two_wires_without_space(layout: Layout, lef: Lef, tmp_path: Path) -> None:
    """Two wires of 0.4 um, whose centres are 0.5 um apart."""
    wires = "metal5 400 ( 1000 3000 ) ( 9000 3000 )\n  NEW metal5 400 ( 1000 3500 ) ( 9000 3500 )"
    found = _recheck(layout, lef, tmp_path, routed=_with_wire(layout, wires))
    assert any("etal5 spacing" in rule for rule in found.drc)


@needs_tools
def test_lvs_finds_a_short(layout: Layout, lef: Lef, tmp_path: Path) -> None:
    """A horizontal wire over the whole core connects the vertical wires that it crosses."""
    found = _recheck(
        layout, lef, tmp_path, routed=_with_wire(layout, "metal2 300 ( 400 15000 ) ( 44000 15000 )")
    )
    assert not found.matches and found.lvs_differences > 0


@needs_tools
def test_lvs_finds_an_open_net(layout: Layout, lef: Lef, tmp_path: Path) -> None:
    text = (layout.file.parent / "counter.def").read_text()
    start = text.index("\nNETS")
    first = text.index("+ ROUTED", start)
    end = text.index(";", first)
    found = _recheck(layout, lef, tmp_path, routed=text[:first] + text[end:])
    assert not found.matches and found.lvs_differences > 0


@needs_tools
def test_lvs_finds_swapped_pins(layout: Layout, lef: Lef, tmp_path: Path) -> None:
    """Both inputs of a gate compute the same in both orders; the layout is still another one."""
    gate = next(cell for cell in layout.design.cells.values() if cell.kind == "NAND2X1")
    line = " ".join(
        (gate.nets | {"vdd": "vdd", "gnd": "gnd"})[pin] for pin in lef.macro(gate.kind).pins
    )
    one, two = gate.nets["A"], gate.nets["B"]
    swapped = " ".join({one: two, two: one}.get(net, net) for net in line.split())
    head = f"X{gate.name} "
    found = _recheck(layout, lef, tmp_path, netlist=(head + line, head + swapped))
    assert not found.matches and found.lvs_differences > 0


@needs_tools
def test_lvs_finds_rails_that_no_strap_connects(layout: Layout, lef: Lef, tmp_path: Path) -> None:
    text = (layout.file.parent / "counter.def").read_text()
    net = re.search(r"- vdd \( \* vdd \)[^;]*;", text)
    assert net
    kept = "\n".join(line for line in net[0].splitlines() if "M2_M1" not in line)
    found = _recheck(layout, lef, tmp_path, routed=text.replace(net[0], kept))
    assert not found.matches


@needs_tools
def test_unchanged_checks_are_not_repeated(
    layout: Layout, netlist: Netlist, lef: Lef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(flow, "check", fail)
    directory = layout.file.parent
    again = lay_out(netlist, lef, directory, density=0.6, facts={"top": "counter"})
    assert again.checks == layout.checks == read_checks(directory / "checks.json")
    (directory / "counter.gds").rename(directory / "away.gds")
    with pytest.raises(AssertionError):
        lay_out(netlist, lef, directory, density=0.6, facts={"top": "counter"})
    (directory / "away.gds").rename(directory / "counter.gds")


@needs_tools
def test_a_layout_without_magic_states_the_reason(
    netlist: Netlist, layout: Layout, lef: Lef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise UserError("layout needs Debian's package magic")

    monkeypatch.setattr(flow, "find_checker", fail)
    found = lay_out(netlist, lef, layout.file.parent, density=0.6, facts={"top": "counter"})
    assert found.checks is None and found.figures["checks"] is None
    assert found.unchecked == "layout needs Debian's package magic"
    assert found.wired == layout.wired


def test_missing_checker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "debian_package", lambda *_, **__: None)
    with pytest.raises(UserError, match="layout needs Debian's package magic: 'apt-get install"):
        programs.find_checker()
    assert programs.layout_checker(fetch=False) is None
    assert "DRC, LVS and GDS, layout" == programs.missing_programs()["Magic, netgen"]


@needs_tools
def test_rejects_cells_of_another_library(layout: Layout, lef: Lef, tmp_path: Path) -> None:
    checker = programs.find_checker(fetch=False)
    other = replace(lef, path=tmp_path / "other.lef")
    with pytest.raises(UserError, match=r"DRC, LVS and GDS need the cells of osu018_stdcells\.lef"):
        check_inputs(checker, layout.design, layout.power, other)


@needs_tools
def test_cells_of_another_library_are_laid_out_without_checks(
    netlist: Netlist, lef: Lef, tmp_path: Path
) -> None:
    (tmp_path / "cells.lef").write_text(lef.path.read_text())
    found = lay_out(netlist, read_lef(tmp_path / "cells.lef"), tmp_path, density=0.6, facts={})
    assert found.wired is not None and found.checks is None
    assert found.unchecked.startswith("DRC, LVS and GDS need the cells of osu018_stdcells.lef")


def _gds(path: Path) -> dict[str, Counter[str]]:
    """Return the number of references to each structure, by structure of a GDS file."""
    data, index, name = path.read_bytes(), 0, ""
    found: dict[str, Counter[str]] = {}
    while index < len(data):
        length, kind = struct.unpack(">HBx", data[index : index + 4])
        if not length:
            break
        text = data[index + 4 : index + length].rstrip(b"\0").decode("latin-1")
        if kind == 0x06:
            name = text
            found[name] = Counter()
        elif kind == 0x12:
            found[name][text] += 1
        index += length
    return found


@needs_tools
def test_gds_has_every_cell_and_filler(layout: Layout) -> None:
    wanted = Counter(cell.kind for cell in layout.design.cells.values())
    wanted["FILL"] = len(layout.power.fillers)
    assert _gds(layout.file.parent / "counter.gds")["counter"] == wanted


@needs_tools
def test_rows_have_no_gaps(layout: Layout, lef: Lef) -> None:
    rows: Counter[int] = Counter()
    for name, place in layout.placement.cells.items():
        rows[place.row] += lef.macro(layout.design.cells[name].kind).width
    for place in layout.power.fillers.values():
        rows[place.row] += lef.site
    assert set(rows.values()) == {layout.placement.width}
    assert len(rows) == layout.placement.rows


@needs_tools
def test_every_rail_has_a_stack_of_vias(layout: Layout) -> None:
    """Rows 10 um high have rails at 0.5, 10.5, ..., ground and power in turn; one stack each."""
    stacks = {
        net.name: {wire.start[1] for wire in net.stacks if wire.via == "M2_M1"}
        for net in layout.power.nets
    }
    heights = [500 + 10_000 * row for row in range(layout.placement.rows + 1)]
    assert sorted(stacks["vdd"] | stacks["gnd"]) == heights
    assert not stacks["vdd"] & stacks["gnd"]
    for net in layout.power.nets:
        assert Counter(wire.via for wire in net.stacks if wire.via).keys() == {
            "M2_M1", "M3_M2", "M4_M3", "M5_M4", "M6_M5",
        }  # fmt: skip


@needs_lef
def test_rejects_cells_without_a_filler(tmp_path: Path, lef: Lef) -> None:
    text = lef.path.read_text()
    (tmp_path / "cells.lef").write_text(
        re.sub(r"^MACRO FILL\n.*?^END FILL\n", "", text, flags=re.M | re.S)
    )
    with pytest.raises(UserError, match=r"a filler cell with .* and a width of 0\.8 um"):
        plan_power(
            LayoutNetlist(top="none", library=find_library(None)),
            Placement(width=8000, rows=1, row_height=10_000, cells={}, ports={}, flipped=[False]),
            (400, 500),
            (0, 0, 8000, 10_000),
            read_lef(tmp_path / "cells.lef"),
        )


@needs_lef
def test_a_cell_belongs_to_the_nearest_register_downstream() -> None:
    """a -> b -> register of `one`; b -> c -> d -> register of `two`; e drives only a port."""
    design = LayoutNetlist(top="top", library=find_library(None))
    design.ports = {"x": ("input", "x"), "y": ("output", "y"), "clk": ("input", "clk")}
    chain = {"a": ("x", "n1"), "b": ("n1", "n2"), "c": ("n2", "n3"), "d": ("n3", "n4")}
    for name, (source, target) in (chain | {"e": ("x", "y")}).items():
        nets = {"A": source, "Y": target}
        design.cells[name] = Instance(name=name, kind="INVX1", nets=nets)
    for name, net, source in (("f", "n2", "one"), ("g", "n4", "two"), ("h", "n4", "two")):
        nets = {"CLK": "clk", "D": net, "Q": f"q{name}"}
        design.cells[name] = Instance(name=name, kind="DFFPOSX1", nets=nets, source=source)
    found = owners(design)
    assert [found[name] for name in "abcdefgh"] == [
        "one", "one", "two", "two", "two", "one", "two", "two",
    ]  # fmt: skip


@needs_tools
def test_the_picture_shows_the_clock_buffer_and_the_straps(layout: Layout) -> None:
    pixels = matplotlib.image.imread(layout.file.parent / "die.png")
    colors = {tuple(round(255 * part) for part in pixel[:3]) for row in pixels for pixel in row}
    assert (0x11, 0x11, 0x11) in colors, "clock buffer"
    assert (0x4E, 0x79, 0xA7) in colors, "cells"
    assert pixels.shape[1] > 1000


@needs_tools
def test_a_picture_of_many_source_files_counts_the_last_ones(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {name: f"hdl/file{i}.py" for i, name in enumerate(layout.design.cells)}
    monkeypatch.setattr(picture, "owners", lambda _: files)
    _, svg = write_dies({"many": layout.die}, tmp_path / "dies")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())
    assert sum(text.startswith("file") for text in texts) == picture.NAMED
    left = len(files) - layout.figures["clock_buffers"] - picture.NAMED
    assert f"{left} more files" in texts


@needs_tools
def test_a_picture_of_dies_has_each_title_and_size_as_text(layout: Layout, tmp_path: Path) -> None:
    dies = {"One: counter": layout.die, "Two: counter": layout.die}
    png, svg = write_dies(dies, tmp_path / "pictures" / "dies")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())
    width, height = layout.placement.width / 1000, layout.placement.height / 1000
    facts = f"{len(layout.design.cells)} cells, {width:.0f} x {height:.0f} um"
    assert {*dies, "Two: counter, wires", "clock buffer", "metal2"} <= set(texts)
    assert texts.count(facts) == 2
    assert width_at(svg.read_text(), SMALLEST) < 800
    pixels = matplotlib.image.imread(png)
    colors = Counter(tuple(round(255 * p) for p in pixel[:3]) for row in pixels for pixel in row)
    assert colors[0x4E, 0x79, 0xA7] > 1000, "cells"

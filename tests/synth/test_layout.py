import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from hdl.errors import UserError
from synth.asic import elaborate, map_to_cells
from synth.debian import opensta
from synth.layout import flow, timing, tools
from synth.layout.clock import FANOUT, build_clock_tree
from synth.layout.design_exchange import Route, read_routes
from synth.layout.extraction import extract, lost_vias, open_ends, write_spef
from synth.layout.flow import Layout, check_density, find_lef, lay_out
from synth.layout.lef import NM, Box, Lef
from synth.layout.netlist import Instance, LayoutNetlist, read_netlist
from synth.layout.placement import Place, Placement, add_cells
from synth.layout.timing import analyse_layout
from synth.liberty import find_library
from synth.mapped_design import Netlist
from tests.synth.test_timing import OSU

HAS_TOOLS = bool(tools.layout_programs(fetch=False) and opensta(fetch=False) and OSU)
needs_tools = pytest.mark.skipif(not HAS_TOOLS, reason="needs graywolf, qrouter and OpenSTA")
needs_lef = pytest.mark.skipif(OSU is None, reason="needs OSU018")


def _components(text: str) -> dict[str, tuple[str, int, int]]:
    rows = re.findall(r"^- (\S+) (\S+) \+ PLACED \( (\S+) (\S+) \)", text, flags=re.M)
    return {name: (kind, int(x), int(y)) for name, kind, x, y in rows}


@needs_tools
def test_routed_netlist_equals_the_mapped_netlist(layout: Layout, netlist: Netlist) -> None:
    """Cells and connections of the routed DEF, without the clock tree, are those of Yosys."""
    text = (layout.file.parent / "counter.def").read_text()
    mapped = json.loads((netlist.directory / f"{netlist.stem}.json").read_text())["modules"]
    memories = {memory.module for memory in netlist.memories}
    wanted: dict[int, set[tuple[str, str]]] = {}
    kinds: dict[str, str] = {}
    for name, cell in mapped["counter"]["cells"].items():
        if cell["type"] not in memories:
            own = re.sub(r"\W", "_", name)
            kinds[own] = cell["type"]
            for pin, bits in cell["connections"].items():
                if not (cell["type"].startswith("DFF") and pin == "CLK"):
                    wanted.setdefault(bits[0], set()).add((own, pin))
    placed = {name: kind for name, (kind, _, _) in _components(text).items() if kind != "FILL"}
    assert {n: k for n, k in placed.items() if not n.startswith("clock_buffer")} == kinds
    nets = text.split("\nNETS")[1].split("END NETS")[0]
    found = {
        frozenset(
            (owner, pin)
            for owner, pin in re.findall(r"\( (\S+) (\S+) \)", block.split("+ ROUTED")[0])
            if owner != "PIN" and not owner.startswith("clock_buffer") and pin != "CLK"
        )
        for block in nets.split("\n- ")[1:]
    }
    # A net with one pin and no port has no route.
    assert {frozenset(pins) for pins in wanted.values() if len(pins) > 1} <= found
    assert found - {frozenset(pins) for pins in wanted.values()} <= {frozenset()}


@needs_tools
def test_wire_length_equals_an_independent_sum(layout: Layout) -> None:
    """Sum the points of all wires in the text of the DEF."""
    text = (layout.file.parent / "counter.def").read_text()
    text = re.sub(r"^- (?:vdd|gnd) \( \*.*?;$", "", text, flags=re.M | re.S)
    total = 0
    for wire in re.findall(r"(?:\+ ROUTED|NEW) (metal\d[^;+]*?)(?=NEW|;|\+)", text):
        last: tuple[int, int] | None = None
        for one, two in re.findall(r"\( (\S+) (\S+) \)", wire):
            before = last or (0, 0)
            x = before[0] if one == "*" else int(one)
            y = before[1] if two == "*" else int(two)
            total += abs(x - before[0]) + abs(y - before[1]) if last else 0
            last = x, y
    # qrouter writes some positions 1 nm off the track.
    assert layout.figures["wire_um"] == pytest.approx(total / NM, abs=1.0)
    assert layout.figures["wire_um"] > 100


@needs_tools
def test_no_cell_overlaps_another_or_is_outside_the_core(layout: Layout, lef: Lef) -> None:
    cells = _components((layout.file.parent / "counter.def").read_text())
    rows: dict[int, list[tuple[int, int]]] = {}
    for kind, x, y in cells.values():
        rows.setdefault(y, []).append((x, x + lef.macro(kind).width))
    offset = round(lef.layers[1].offset * NM)
    for row in rows.values():
        row.sort()
        assert row[0][0] >= offset and row[-1][1] <= offset + layout.placement.width
        assert all(left[1] <= right[0] for left, right in pairwise(row))
    assert all((x - offset) % lef.site == 0 for _, x, _ in cells.values())


@needs_tools
def test_memories_and_constants_are_named_ports(layout: Layout) -> None:
    cut = layout.figures["cut"]
    (memory,) = (name for name in cut if "memory" in name)
    assert len(cut[memory]) >= 8 and set(cut[memory]) <= set(layout.design.ports)
    assert cut["constant_one"] == ["one"] and "one" not in layout.design.ports


@needs_tools
def test_wires_and_clock_tree_are_in_the_wired_clock_only(layout: Layout) -> None:
    assert layout.wireless is not None and layout.wired is not None
    assert layout.wireless.latency_ps == 0 < layout.wired.latency_ps
    assert layout.wired.critical_ps is not None and layout.wireless.critical_ps is not None
    assert layout.wired.critical_ps > layout.wireless.critical_ps
    assert layout.wired.hold_slack_ps is not None


@needs_tools
def test_a_second_run_repeats_no_stage(
    layout: Layout, netlist: Netlist, lef: Lef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(flow, "place", fail)
    monkeypatch.setattr(flow, "route", fail)
    again = lay_out(netlist, lef, layout.file.parent, density=0.6, facts={"top": "counter"})
    assert again.seconds == layout.seconds and again.wired == layout.wired
    assert set(again.seconds) >= {"placement", "routing"} and again.seconds["placement"] > 0
    routed = layout.file.parent / "routed.def"
    text = routed.read_text()
    routed.write_text(text.replace("metal2", "metal3", 1))
    with pytest.raises(AssertionError):
        lay_out(netlist, lef, layout.file.parent, density=0.6, facts={})
    routed.write_text(text)


@needs_tools
def test_an_interrupted_run_continues_with_the_routing(
    netlist: Netlist, lef: Lef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def fail(*_: object) -> None:
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(flow, "route", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lay_out(netlist, lef, tmp_path, density=0.6, facts={})
    assert not (tmp_path / "layout.json").exists()
    monkeypatch.setattr(flow, "place", fail)
    assert lay_out(netlist, lef, tmp_path, density=0.6, facts={}).file.exists()


@needs_tools
def test_a_layout_without_opensta_has_no_timing(
    layout: Layout, netlist: Netlist, lef: Lef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "opensta", lambda: None)
    found = lay_out(netlist, lef, layout.file.parent, density=0.6, facts={"top": "counter"})
    assert (found.wireless, found.wired, found.figures["wired"]) == (None, None, None)
    assert found.checks == layout.checks


@needs_lef
def test_resistance_and_capacitance_of_a_branch(lef: Lef) -> None:
    """A wire of 100 um on metal2 with a branch of 40 um on metal3 at its middle.

    Metal2 has 0.08 / 0.3 ohm/um and 0.3 * 0.019 + 2 * 0.06 = 0.1257 fF/um, metal3 has the same
    resistance and 0.3 * 0.013 + 2 * 0.054 = 0.1119 fF/um.
    """
    route = Route(
        segments=[
            (("metal2", 0, 0), ("metal2", 0, 100_000)),
            (("metal3", 0, 50_000), ("metal3", 40_000, 50_000)),
        ],
        vias=[("M3_M2", 0, 50_000)],
    )
    boxes = {
        ("a", "Y"): [("metal2", (0, 0, 0, 0))],
        ("b", "A"): [("metal2", (-100, 99_900, 100, 100_100))],
        ("c", "A"): [("metal3", (40_000, 50_000, 40_000, 50_000))],
    }
    found = extract(route, boxes, lef, "n")
    assert found.total_ff == pytest.approx(100 * 0.1257 + 40 * 0.1119)
    ohms = sorted(ohm for _, _, ohm in found.resistances)
    assert ohms == pytest.approx([40 * 0.08 / 0.3, 50 * 0.08 / 0.3, 50 * 0.08 / 0.3])
    middle = set(found.capacitance_ff) - set(found.pins.values())
    assert [found.capacitance_ff[node] for node in middle] == pytest.approx(
        [50 * 0.1257 + 20 * 0.1119]
    )
    with pytest.raises(UserError, match="the router must connect d A to net n"):
        extract(route, boxes | {("d", "A"): [("metal1", (0, 0, 0, 0))]}, lef, "n")
    route.vias.clear()
    with pytest.raises(UserError, match="the router must connect c A to net n"):
        extract(route, boxes, lef, "n")


def _open_route() -> tuple[Route, dict[tuple[str, str], list[tuple[str, Box]]]]:
    """Return a route from metal1 over metal2 back to metal1 whose second via is absent."""
    route = Route(
        segments=[
            (("metal2", 0, 0), ("metal2", 0, 9000)),
            (("metal1", 0, 9000), ("metal1", 800, 9000)),
        ],
        vias=[("M2_M1", 0, 0)],
    )
    spots = {("a", "Y"): (0, 0), ("b", "A"): (800, 9000)}
    return route, {pin: [("metal1", (x, y, x, y))] for pin, (x, y) in spots.items()}


@needs_lef
def test_a_via_that_the_router_lost_is_found(lef: Lef) -> None:
    route, boxes = _open_route()
    with pytest.raises(UserError, match="the router must connect b A to net n"):
        extract(route, boxes, lef, "n")
    assert lost_vias(route, boxes, lef, "n") == [("M2_M1", 0, 9000)]
    route.vias.append(("M2_M1", 0, 9000))
    assert lost_vias(route, boxes, lef, "n") == []
    extract(route, boxes, lef, "n")


@needs_lef
def test_wires_that_end_at_different_places_get_no_via(lef: Lef) -> None:
    """The second via is 0.45 um above the end of the wire: their metal is 0.1 um apart."""
    route, boxes = _open_route()
    route.segments = [(("metal2", 0, 0), ("metal2", 0, 8550)), route.segments[1]]
    route.vias.append(("M2_M1", 0, 9000))
    assert lost_vias(route, boxes, lef, "n") == []
    first, *others = open_ends(route, boxes, lef, "n")
    assert first == (("metal2", 0, 8550), ("metal2", 0, 9000))
    assert others == [((layer, 0, 0), (layer, 0, 9000)) for layer in ("metal1", "metal2")]
    route.segments.append(first)
    assert open_ends(route, boxes, lef, "n") == []
    extract(route, boxes, lef, "n")


@needs_lef
def test_a_connected_net_gets_no_via(lef: Lef) -> None:
    """A wire of metal3 ends above the net's metal2, and no pin needs it."""
    route, boxes = _open_route()
    route.vias.append(("M2_M1", 0, 9000))
    route.segments.append((("metal3", 0, 9000), ("metal3", 5000, 9000)))
    assert lost_vias(route, boxes, lef, "n") == []


@needs_tools
def test_a_lost_via_is_added(layout: Layout, lef: Lef) -> None:
    """Remove each via of a net in turn: the same one is added if the net is then open.

    A pin whose only via is removed has no wire any more, and stays open.
    """
    die, mended = layout.die, 0
    net = max(layout.routes, key=lambda net: len(layout.routes[net].vias))
    for via in layout.routes[net].vias:
        route = layout.routes[net]
        left = [other for other in route.vias if other != via]
        routes = {net: replace(route, vias=list(left), segments=list(route.segments))}
        nets = flow.mend(layout.design, die.placement, die.plan, die.power, lef, routes)
        if routes[net].vias != left:
            assert nets == {net} and routes[net].vias == [*left, via]
            mended += 1
    assert mended > 0


@needs_tools
def test_opensta_delays_a_net_by_its_spef(tmp_path: Path, lef: Lef) -> None:
    """A net of 240 um metal2 delays an inverter like 30.2 fF more at its output."""
    (tmp_path / "i.v").write_text(
        "module i(input clk, input d, output q); assign q = ~d; endmodule"
    )
    library = find_library(None)
    design = read_netlist(map_to_cells(elaborate([tmp_path / "i.v"], "i", tmp_path), library))
    (net,) = (net for net, pins in design.pins().items() if ("PIN", "q") in pins)
    pins = design.pins()[net]
    route = Route(segments=[(("metal2", 0, 0), ("metal2", 0, 240_000))])
    spots = [0 if design.drives(*pin) else 240_000 for pin in pins]
    boxes = {pin: [("metal2", (0, y, 0, y))] for pin, y in zip(pins, spots, strict=True)}
    found = extract(route, boxes, lef, net)
    # Without resistance, the whole capacitance is the driver's load.
    found.resistances = [(one, two, 0.001) for one, two, _ in found.resistances]
    (tmp_path / "i.spef").write_text(write_spef(design, {net: found}))
    (tmp_path / "layout.v").write_text(design.verilog())
    program = opensta(fetch=False)
    assert program is not None

    def length(spef: Path | None = None) -> float:
        files = [library.path], tmp_path / "layout.v", "i", set(design.ports)
        critical = analyse_layout(program, *files, spef=spef).critical_ps
        assert critical is not None
        return critical

    wired, alone = length(tmp_path / "i.spef"), length()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "LOAD_FF", 10.0 + 240 * 0.1257)
        assert wired == pytest.approx(length(), abs=0.05)
    assert wired > 2 * alone


def _grid(count: int) -> tuple[LayoutNetlist, Placement]:
    """Return flip-flops in rows of twenty, with space at the right."""
    design = LayoutNetlist(top="grid", library=find_library(None))
    design.ports["clk"] = ("input", "clk")
    cells: dict[str, Place] = {}
    for index in range(count):
        name = f"f{index}"
        nets = {"CLK": "clk", "D": f"d{index}", "Q": f"q{index}"}
        design.cells[name] = Instance(name=name, kind="DFFPOSX1", nets=nets)
        row, column = divmod(index, 20)
        cells[name] = Place(x=column * 9600, y=row * 10_000, orientation="N", row=row)
    rows = -(-count // 20)
    return design, Placement(
        width=20 * 9600 + 40_000,
        rows=rows,
        row_height=10_000,
        cells=cells,
        ports={"clk": (-100, 0)},
        flipped=[False] * rows,
    )


@needs_lef
@pytest.mark.parametrize(("count", "levels"), [(1, 1), (16, 1), (17, 2), (300, 3)])
def test_every_flop_has_the_same_number_of_buffers(count: int, levels: int, lef: Lef) -> None:
    design, placement = _grid(count)
    assert build_clock_tree(design, placement, lef) == levels
    pins = design.pins()
    drivers = {
        cell.nets["Y"]: cell.nets["A"]
        for cell in design.cells.values()
        if cell.name.startswith("clock_buffer")
    }
    for index in range(count):
        net, depth = design.cells[f"f{index}"].nets["CLK"], 0
        while net != "clk":
            net, depth = drivers[net], depth + 1
        assert depth == levels
    assert all(len(pins[net]) <= FANOUT + 1 for net in drivers)
    assert len(pins["clk"]) == 2 and set(placement.cells) == set(design.cells)


@needs_lef
def test_rejects_a_clock_buffer_without_space(lef: Lef) -> None:
    design, placement = _grid(20)
    placement.width = 20 * 9600
    kinds = {name: cell.kind for name, cell in design.cells.items()} | {"b": "CLKBUF1"}
    with pytest.raises(UserError, match="DENSITY must be lower: no row has space for clock buffer"):
        add_cells(placement, kinds, [("b", 0, 0)], lef)


@needs_lef
def test_illegal_input_is_rejected_in_one_sentence(
    netlist: Netlist, lef: Lef, tmp_path: Path
) -> None:
    for density in (0.1, 0.95, float("nan")):
        with pytest.raises(UserError, match=r"DENSITY must be between 0\.3 and 0\.9, not"):
            check_density(density)
    with pytest.raises(UserError, match="LEF must name the LEF file of the library"):
        find_lef("cells.lib", None)
    with pytest.raises(UserError, match="LIBERTY must name the liberty file of the cells"):
        find_lef(None, Path("cells.lef"))
    with pytest.raises(UserError, match="LEF must be a file that exists"):
        find_lef("cells.lib", tmp_path / "none.lef")
    (part,) = netlist.modules
    large = replace(netlist, modules=(replace(part, cells=6001),))
    with pytest.raises(UserError, match=r"at most 6000 cells, but counter has 6001: .*LIMIT sets"):
        lay_out(large, lef, tmp_path / "out", density=0.7, facts={})
    with pytest.raises(UserError, match="LIMIT must be at least 1 cell, not 0"):
        lay_out(large, lef, tmp_path / "out", density=0.7, limit=0, facts={})
    assert not (tmp_path / "out").exists()


@needs_tools
def test_limit_is_the_largest_number_of_cells(netlist: Netlist, lef: Lef, tmp_path: Path) -> None:
    count = netlist.cells
    with pytest.raises(UserError, match=f"at most {count - 1} cells, but counter has {count}"):
        lay_out(netlist, lef, tmp_path, density=0.6, limit=count - 1, facts={})
    assert lay_out(netlist, lef, tmp_path, density=0.6, limit=count, facts={}).file.exists()


@needs_tools
def test_routes_of_a_large_unit_are_not_repeated(
    netlist: Netlist, lef: Lef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "CELL_LIMIT", netlist.cells - 1)
    found = lay_out(netlist, lef, tmp_path, density=0.6, facts={})
    assert not found.figures["routes_repeated"]
    assert "Running stage3" not in (tmp_path / "route.log").read_text()
    monkeypatch.setattr(flow, "CELL_LIMIT", netlist.cells)
    found = lay_out(netlist, lef, tmp_path, density=0.6, facts={})
    assert found.figures["routes_repeated"]
    assert "Running stage3" in (tmp_path / "route.log").read_text()


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "debian_package", lambda *_, **__: None)
    with pytest.raises(UserError, match="layout needs Debian's package graywolf: 'apt-get install"):
        tools.find_placer()
    with pytest.raises(UserError, match="layout needs Debian's package qrouter"):
        tools.find_router()


def test_rejects_a_truncated_routed_file(tmp_path: Path) -> None:
    (tmp_path / "routed.def").write_text("NETS 1 ;\n- a ( PIN a )\n+ ROUTED metal1 ( 0 0 )")
    with pytest.raises(UserError, match="the routed DEF must be complete"):
        read_routes(tmp_path / "routed.def")

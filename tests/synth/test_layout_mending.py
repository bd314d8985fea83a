"""Mending: lost wires and vias, and metal below the minimum area, where there is space."""

from dataclasses import replace
from pathlib import Path

import pytest

from hdl.errors import UserError
from synth.layout import checker as programs
from synth.layout.checks import Checks, check, check_inputs
from synth.layout.design_exchange import Floorplan, Route, read_routes, with_routes
from synth.layout.flow import Layout
from synth.layout.lef import Lef
from synth.layout.mending import Wire, mend
from synth.layout.netlist import Instance, LayoutNetlist
from synth.layout.placement import Place, Placement
from synth.layout.power import PowerGrid
from synth.liberty import find_library
from tests.synth.test_layout import needs_lef
from tests.synth.test_layout_checks import needs_tools

AT = 30_000, 40_000
"""Position of a via, far from all cells."""


def _inverters() -> tuple[LayoutNetlist, Floorplan, Placement, PowerGrid]:
    """Return two inverters at the left, which drive each other by nets `n` and `m`."""
    design = LayoutNetlist(top="top", library=find_library(None))
    cells: dict[str, Place] = {}
    for index, nets in enumerate(({"A": "n", "Y": "m"}, {"A": "m", "Y": "n"})):
        name = f"i{index}"
        design.cells[name] = Instance(name=name, kind="INVX1", nets=nets)
        cells[name] = Place(x=1600 * index, y=0, orientation="N", row=0)
    placement = Placement(
        width=8000, rows=1, row_height=10_000, cells=cells, ports={}, flipped=[False]
    )
    edges = 0, 0, 80_000, 80_000
    plan = Floorplan(die=edges, tracks=edges, origin=(400, 500), ports={})
    return design, plan, placement, PowerGrid(filler="FILL", fillers={}, nets=())


def _added(lef: Lef, **routes: Route) -> dict[str, list[Wire]]:
    """Return the wires that are added to nets `n` and `m` of `_inverters`."""
    design, plan, placement, power = _inverters()
    copies = {
        net: replace(route, segments=list(route.segments), vias=list(route.vias))
        for net, route in routes.items()
    }
    mended = mend(design, placement, plan, power, lef, copies)
    assert all(copies[net].vias == routes[net].vias for net in routes)
    added = {net: copies[net].segments[len(routes[net].segments) :] for net in routes}
    assert {net for net, wires in added.items() if wires} == mended
    return {net: wires for net, wires in added.items() if wires}


def _metal1(*points: tuple[int, int]) -> Route:
    """Return a wire of metal1 between two points relative to `AT`."""
    start, end = (("metal1", AT[0] + x, AT[1] + y) for x, y in points)
    return Route(segments=[(start, end)])


VIA = Route(vias=[("M2_M1", *AT)], segments=[(("metal2", *AT), ("metal2", AT[0], AT[1] + 20_000))])


@needs_lef
def test_a_via_without_a_wire_gets_the_shortest_one(lef: Lef) -> None:
    """A pad of 0.4 um has 0.16 um2, and the minimum is 0.2 um2.

    A wire of 0.3 um whose end is 0.25 um from the centre of the pad extends to 0.4 um, which gives
    0.16 + 0.3 * 0.2 = 0.22 um2. The next shorter one gives 0.19 um2.
    """
    assert _added(lef, n=VIA) == {"n": [(("metal1", *AT), ("metal1", AT[0], AT[1] + 250))]}


@needs_lef
def test_metal_is_added_where_other_metal_keeps_its_distance(lef: Lef) -> None:
    """The wire to the top would extend to 0.4 um. A wire at 0.8 um begins at 0.65 um."""
    above = _metal1((-5000, 800), (5000, 800))
    assert _added(lef, n=VIA, m=above) == {"n": [(("metal1", *AT), ("metal1", AT[0], AT[1] - 250))]}
    allowed = _metal1((-5000, 850), (5000, 850))
    assert _added(lef, n=VIA, m=allowed) == _added(lef, n=VIA)


@needs_lef
def test_metal_without_space_stays_small(lef: Lef) -> None:
    ring = Route()
    for one, two in (
        ((-5000, 700), (5000, 700)),
        ((-5000, -700), (5000, -700)),
        ((-700, -5000), (-700, 5000)),
        ((700, -5000), (700, 5000)),
    ):
        ring.segments += _metal1(one, two).segments
    assert _added(lef, n=VIA, m=ring) == {}


@needs_lef
def test_metal_of_the_same_net_is_not_reached_by_accident(lef: Lef) -> None:
    """Another wire of the net that does not touch the via keeps its distance, too."""
    own = replace(VIA, segments=[*VIA.segments, *_metal1((-5000, 800), (5000, 800)).segments])
    assert _added(lef, n=own) == {"n": [(("metal1", *AT), ("metal1", AT[0], AT[1] - 250))]}


@needs_lef
@pytest.mark.parametrize("end", [(800, 0), (0, 350)])
def test_metal_that_is_large_enough_gets_no_wire(lef: Lef, end: tuple[int, int]) -> None:
    route = replace(VIA, segments=[*VIA.segments, *_metal1((0, 0), end).segments])
    assert _added(lef, n=route) == {}


def _beside_the_pin(lef: Lef) -> tuple[Route, int, int]:
    """Return a route that ends at a via one track to the left of pin A of `i0`; that pin."""
    x, y = lef.macro("INVX1").pin("A").center
    x, y = 400 + x, 500 + y
    wire = (("metal2", x - 800, y), ("metal2", x - 800, 30_000))
    return Route(vias=[("M2_M1", x - 800, y)], segments=[wire]), x, y


@needs_lef
def test_a_wire_to_a_pin_that_the_router_lost_is_added(lef: Lef) -> None:
    route, x, y = _beside_the_pin(lef)
    assert _added(lef, n=route) == {"n": [(("metal1", x - 800, y), ("metal1", x, y))]}
    far = Route(vias=[("M2_M1", x, y + 3000)], segments=[])
    assert (("metal1", x, y + 3000), ("metal1", x, y)) not in _added(lef, n=far)["n"]


def _mended_via(lef: Lef, *wires: Wire) -> tuple[Route, int, int]:
    """Mend a route whose via is 0.45 um below the end of its metal2; return it and the via.

    A wire of metal1 connects the via to pin A of `i0`, and the pin of `i1` is at the other via.
    """
    design, plan, placement, power = _inverters()
    x, y = lef.macro("INVX1").pin("A").center
    x, y = 400 + x, 500 + y
    metal1 = ("metal1", x, y), ("metal1", x - 1600, y)
    metal2 = ("metal2", x - 1600, y + 450), ("metal2", x - 1600, y + 30_000)
    vias = [("M2_M1", x - 1600, y), ("M2_M1", x - 1600, y + 30_000)]
    route = Route(segments=[metal1, metal2, *wires], vias=vias)
    place = placement.cells["i1"]
    right, top = lef.macro("INVX1").pin("Y").center
    placement.cells["i1"] = replace(place, x=x - 1600 - 400 - right, y=y + 30_000 - 500 - top)
    assert mend(design, placement, plan, power, lef, {"n": route}) == {"n"}
    return route, x - 1600, y


@needs_lef
def test_a_via_off_the_track_is_moved_with_its_wire(lef: Lef) -> None:
    route, x, y = _mended_via(lef)
    assert route.vias == [("M2_M1", x, y + 30_000), ("M2_M1", x, y + 450)]
    assert route.segments[1:] == [
        (("metal1", x + 1600, y), ("metal1", x + 1600, y + 450)),
        (("metal1", x + 1600, y + 450), ("metal1", x, y + 450)),
    ]


@needs_lef
def test_a_via_with_another_wire_is_not_moved(lef: Lef) -> None:
    _, x, y = _mended_via(lef)
    route, _, _ = _mended_via(lef, (("metal2", x, y), ("metal2", x - 3000, y)))
    assert route.vias == [("M2_M1", x, y), ("M2_M1", x, y + 30_000)]
    assert route.segments[-1] == (("metal2", x, y), ("metal2", x, y + 450))


@needs_lef
def test_no_wire_to_a_pin_touches_another_net(lef: Lef) -> None:
    route, x, y = _beside_the_pin(lef)
    other = Route(segments=[(("metal1", x - 400, y), ("metal1", x - 400, y + 2000))])
    assert (("metal1", x - 800, y), ("metal1", x, y)) not in _added(lef, n=route, m=other).get(
        "n", []
    )


@needs_lef
def test_rejects_a_via_that_the_lef_file_does_not_define(lef: Lef) -> None:
    with pytest.raises(UserError, match="LEF must define via M9_M8, but '"):
        _added(lef, n=Route(vias=[("M9_M8", *AT)]))


@needs_lef
def test_an_unknown_minimum_area_adds_nothing(lef: Lef) -> None:
    other = replace(lef, path=Path("other.lef"))
    assert _added(other, n=VIA) == {}
    stated = replace(other, layers=tuple(replace(layer, area=0.2) for layer in lef.layers))
    assert _added(stated, n=VIA) == _added(lef, n=VIA)


@needs_lef
def test_a_changed_route_replaces_that_of_its_net(lef: Lef, tmp_path: Path) -> None:
    text = (
        "PINS 1 ;\n- n + NET n ;\nEND PINS\nNETS 2 ;\n"
        "- n1\n  ( a A )\n+ ROUTED metal1 ( 0 0 ) M2_M1 ;\n"
        "- n\n  ( b A ) \n+ ROUTED metal1 ( 0 0 ) M2_M1 \n  NEW metal2 ( 0 0 ) ( * 9 ) ;\n"
        "END NETS\nSPECIALNETS 1 ;\n- n2\n+ ROUTED metal1 400 ( 1 1 ) ( 2 * ) ;\nEND SPECIALNETS\n"
        "END DESIGN\n"
    )
    wire = (("metal1", 10, -20), ("metal1", 10, 30))
    changed = {"n": Route(segments=[wire], vias=[("M3_M2", 50, 60)])}
    written = with_routes(text, changed, lef)
    assert written == text.replace(
        "metal1 ( 0 0 ) M2_M1 \n  NEW metal2 ( 0 0 ) ( * 9 ) ;",
        "metal1 ( 10 -20 ) ( 10 30 )\n  NEW metal2 ( 50 60 ) M3_M2 ;",
    )
    (tmp_path / "routed.def").write_text(written)
    assert read_routes(tmp_path / "routed.def")["n"] == replace(changed["n"], pins=[("b", "A")])
    assert with_routes(text, {}, lef) == text


@needs_tools
def test_drc_accepts_added_metal(layout: Layout, lef: Lef, tmp_path: Path) -> None:
    """A via in a corner of the die, without wires: its pads on both layers are too small."""
    die, name = layout.die, f"{layout.design.top}.def"
    text = (layout.file.parent / name).read_text()
    (net,) = (net for net, pins in layout.design.pins().items() if ("PIN", "d_0") in pins)
    x, y = (round((edge + 2400) / 400) * 400 for edge in die.plan.die[:2])
    statement = f"\n- {net}\n  ( PIN d_0 )"
    assert statement in text
    head, _, tail = text.partition(statement)
    routed, _, rest = tail.partition(";")
    start = "\n  NEW" if "ROUTED" in routed else "\n+ ROUTED"
    corrupted = f"{head}{statement}{routed}{start} metal3 ( {x} {y} ) M4_M3 ;{rest}"

    def checked(routed: str) -> Checks:
        (tmp_path / name).write_text(routed)
        program = programs.find_checker(fetch=False)
        inputs = check_inputs(program, layout.design, layout.power, lef)
        return check(program, inputs, layout.design.top, tmp_path)

    small = checked(corrupted)
    assert sorted(rule.split(" <")[0] for rule in small.drc) == ["Metal3 area", "Metal4 area"]
    routes = read_routes(tmp_path / name)
    before = len(routes[net].segments)
    assert mend(layout.design, die.placement, die.plan, die.power, lef, routes) == {net}
    assert len(routes[net].segments) == before + 2
    mended = checked(with_routes(corrupted, {net: routes[net]}, lef))
    assert not mended.drc and mended.matches

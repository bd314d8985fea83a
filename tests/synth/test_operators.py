import json
from pathlib import Path

import pytest

from hdl.errors import UserError
from hdl.paths import ROOT
from synth import operators
from synth.liberty import GENERIC, find_library, read_library
from synth.measure import build_unit
from synth.operators import (
    Circuit,
    compared_circuits,
    measure_operators,
    operators_of_pages,
    reference,
)


def test_each_of_our_circuits_can_be_built_and_has_a_peer() -> None:
    known = reference()
    works = {peer["like"] for peer in known["peer"]}
    assert len({ours["name"] for ours in known["ours"]}) == len(known["ours"])
    for ours in known["ours"]:
        build_unit(ours["unit"])
        assert ours["like"] in works


@pytest.mark.parametrize("page", operators_of_pages())
def test_every_operator_of_a_page_can_be_built(page: str) -> None:
    assert (ROOT / "docs" / f"{page}.md").is_file()
    for unit in operators_of_pages()[page]:
        build_unit(unit)


def test_another_library_is_refused(tmp_path: Path) -> None:
    library = read_library(GENERIC, origin="test")
    with pytest.raises(UserError, match=r"LIBERTY must be Nangate\w+, in which the other circuits"):
        measure_operators(library, tmp_path / "operators.json")
    assert not list(tmp_path.iterdir())


def test_measured_circuit_is_compared_with_its_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = find_library()
    ours = {"name": "an adder", "like": "sums", "unit": "hdl.arith.float_add:FloatAdd()"}
    theirs = {"name": "another", "like": "sums", "area_um2": 10, "delay_ps": 20}
    alone = {"name": "alone", "like": "nothing of ours", "area_um2": 1, "delay_ps": 2}
    known = {"library": library.name, "ours": [ours], "peer": [theirs, alone]}
    monkeypatch.setattr(operators, "reference", lambda: known)
    monkeypatch.setattr(operators, "operators_of_pages", dict)
    results = measure_operators(library, tmp_path / "operators.json")
    assert json.loads((tmp_path / "operators.json").read_text()) == results
    (group,) = compared_circuits(results["costs"]).items()
    assert group[0] == "sums"
    recipes = results["costs"][ours["unit"]]
    points = tuple((i["recipe"], i["area_um2"], i["mapper_delay_ps"]) for i in recipes)
    assert group[1] == [
        Circuit(name="an adder", ours=True, points=points),
        Circuit(name="another", ours=False, points=(("plain", 10, 20),)),
    ]
    areas = {item["recipe"]: item["area_um2"] for item in recipes}
    assert areas["area"] < areas.get("speed", float("inf"))

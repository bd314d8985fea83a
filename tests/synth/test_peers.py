import json
from pathlib import Path

import pytest

from hdl.errors import UserError
from synth import peers
from synth.liberty import GENERIC, find_library, read_library
from synth.measure import build_unit
from synth.peers import beside, measure_peers, reference


def test_everything_of_ours_can_be_built_and_has_somebody_beside_it() -> None:
    known = reference()
    works = {peer["like"] for peer in known["peer"]}
    assert len({ours["name"] for ours in known["ours"]}) == len(known["ours"])
    for ours in known["ours"]:
        build_unit(ours["unit"])
        assert ours["like"] in works


def test_another_library_is_refused(tmp_path: Path) -> None:
    library = read_library(GENERIC, origin="test")
    with pytest.raises(UserError, match=r"LIBERTY must be Nangate\w+, in which the other circuits"):
        measure_peers(library, tmp_path / "peers.json")
    assert not list(tmp_path.iterdir())


def test_what_is_measured_stands_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = find_library()
    ours = {"name": "an adder", "like": "sums", "unit": "hdl.arith.float_add:FloatAdd()"}
    theirs = {"name": "another", "like": "sums", "area_um2": 10, "delay_ps": 20}
    alone = {"name": "alone", "like": "nothing of ours", "area_um2": 1, "delay_ps": 2}
    known = {"library": library.name, "ours": [ours], "peer": [theirs, alone]}
    monkeypatch.setattr(peers, "reference", lambda: known)
    results = measure_peers(library, tmp_path / "peers.json")
    assert json.loads((tmp_path / "peers.json").read_text()) == results
    (group,) = beside(results["circuits"]).items()
    assert group[0] == "sums"
    assert group[1][-1] == ("another", 10, 20, False)
    recipes = results["circuits"][0]["recipes"]
    assert group[1][:-1] == [
        (f"an adder, {item['recipe']}", item["area_um2"], item["mapper_delay_ps"], True)
        for item in recipes
    ]
    areas = {item["recipe"]: item["area_um2"] for item in recipes}
    assert areas["area"] < areas.get("speed", float("inf"))

"""A unit of an installed package takes part in the verbs, and a bad entry is one sentence."""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.paths import BUILD, ROOT
from systola import environment
from systola.cli import main
from systola.exploration.plan import plan_jobs
from systola.exploration.sweep import Sweep, expand, parse_sweep
from systola.units import PackagedUnit, all_units, unit_named

PAGE = ROOT / "docs" / "tutorials" / "project.md"


def install(folder: Path, name: str, value: str) -> None:
    """Write the metadata of an installed package with one entry point."""
    info = folder / f"{name}_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[systola.units]\n{name} = {value}\n")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the project of the tutorial, with its entry of the unit."""
    texts = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    for name, start in (
        ("greedy.py", '"""The index'),
        ("tb_greedy.py", '"""Testbench'),
        ("units.py", '"""The units'),
    ):
        (own,) = [text for text in texts if text.startswith(start)]
        (tmp_path / f"project_{name}" if name == "units.py" else tmp_path / name).write_text(own)
    install(tmp_path, "greedy", "project_units:greedy")
    monkeypatch.syspath_prepend(tmp_path)
    # The simulator imports the testbench in a process of its own.
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    yield tmp_path
    for name in ("greedy", "tb_greedy", "project_units"):
        sys.modules.pop(name, None)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize(("verb", "check"), [("sim", "require_ready"), ("mutate", "require")])
def test_a_unit_of_a_package_needs_no_packages_of_language_models(
    verb: str, check: str, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def require(*groups: str) -> None:
        asked.append(groups)
        raise UserError("no further")

    monkeypatch.setattr(environment, check, require)
    assert [run(verb, "--top", top).exit_code for top in ("greedy", "softmax")] == [2, 2]
    assert asked == [("sim",), environment.SIMULATION]


def test_a_unit_of_a_package_is_listed_and_emitted(package: Path) -> None:
    entry = unit_named("greedy")
    assert isinstance(entry, PackagedUnit)
    assert (entry.top, entry.paper, entry.testbench) == ("greedy", "greedy", "tb_greedy")
    assert list(all_units())[-1] == entry
    listed = run("list")
    assert re.search(r"^greedy +greedy +outputs", listed.output, re.M), listed.output
    assert "lanes" in run("list", "--top", "greedy").output
    out = package / "rtl"
    result = run("verilog", "--top", "greedy", "--set", "lanes=8", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "module greedy" in (out / "greedy.v").read_text()


def test_a_sweep_has_the_unit_and_its_digest(package: Path) -> None:
    sweep = Sweep(
        name="greedy", top="greedy", preset=None, verbs=("sim",), grid=parse_sweep("lanes=2,4")
    )
    before = plan_jobs(sweep, expand(sweep), ("", ""))
    assert len({job.point for job in before}) == 2
    again = plan_jobs(sweep, expand(sweep), ("", ""))
    assert [job.key for job in again] == [job.key for job in before]
    bench = package / "tb_greedy.py"
    bench.write_text(bench.read_text() + "\n# Changed.\n")
    changed = plan_jobs(sweep, expand(sweep), ("", ""))
    assert not {job.key for job in changed} & {job.key for job in before}
    own = Sweep(name="a", top="argmax", preset="tiny", verbs=("sim",), grid=parse_sweep("lanes=2"))
    (job,) = plan_jobs(own, expand(own), ("", ""))
    assert "-" not in job.sources


@pytest.mark.full
def test_a_unit_of_a_package_is_simulated_synthesised_and_mutated(package: Path) -> None:
    result = run("sim", "--top", "greedy", "--seed", "1")
    assert result.exit_code == 0, result.output
    assert "18, 0 failed" in result.output
    result = run("synth", "--top", "greedy")
    assert result.exit_code == 0, result.output
    assert (BUILD / "greedy" / "tiny" / "synth").is_dir()
    result = run("mutate", "--top", "greedy", "--preset", "tiny", "--count", "2")
    assert result.exit_code == 0, result.output


@pytest.mark.full
def test_a_unit_of_a_package_is_explored(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers, which are other processes, find the package as well."""
    monkeypatch.setattr("systola.explore.HOME", package / "explore")
    sweep = ("--sweep", "lanes=2,4", "--for", "synth,sim")
    result = run("explore", "--top", "greedy", *sweep)
    assert result.exit_code == 0, result.output
    (table,) = package.glob("explore/*/results.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    # Two netlists and a simulation of each point.
    points = Counter(row["parameter.lanes"] for row in rows)
    assert points == {"2": 3, "4": 3}, rows


def test_units_of_the_catalog_are_found_first() -> None:
    assert unit_named("argmax") is entry_named("argmax")
    with pytest.raises(UserError, match=r"TOP must be one of the \d+ known, not 'argmaxx'"):
        unit_named("argmaxx")


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("greedy", "greedy = 1", "must be a systola.units.PackagedUnit, not 1"),
        ("greedy", "raise OSError('no disk')", "must be importable: OSError: no disk"),
        ("other", None, "must have the name of the unit's module, 'greedy'"),
        ("argmax", None, "two packages must not define the same unit 'argmax'"),
        ("greedy", ("bench=", "bench='no.such' or "), "testbench that exists, not 'no.such'"),
        ("greedy", ("presets=", "presets={} and "), "must have a preset, not none"),
        ("greedy", ("unit=", "unit=int or "), "must have a subclass of hdl.unit.Unit, not <class"),
    ],
)
def test_bad_entries_are_one_sentence(
    package: Path, name: str, source: str | tuple[str, str] | None, message: str
) -> None:
    units = package / "project_units.py"
    if isinstance(source, tuple):
        text = units.read_text()
        assert text.count(source[0]) == 1
        units.write_text(text.replace(*source))
    elif source is not None:
        units.write_text(source)
    if name != "greedy":
        install(package, name, "project_units:greedy")
    result = run("verilog", "--top", name)
    if name == "argmax":
        result = run("list")
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())

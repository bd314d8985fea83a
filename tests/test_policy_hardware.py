"""`POLICY=` in the verbs of units: the unit that implements a policy, and the refusals."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hdl.catalog import entry_named
from systola.cli import main
from testbenches.mutation import MutationResult
from tests.test_packaged_units import install

OWN = """
from golden.policies.protocol import Hardware
from golden.policies.scores import H2O


class Own(H2O):
    hardware = Hardware(unit="{unit}", settings={{"lanes": 8}})


policy = Own()
"""
UNITS = '''
from hdl.catalog import entry_named
from hdl.nonlinear.argmax import Argmax
from systola.units import PackagedUnit


class Least(Argmax):
    """A unit of another package, which computes an argmax."""


least = PackagedUnit(
    summary="selects the token to evict",
    source="none",
    unit=Least,
    presets=entry_named("argmax").presets,
    bench="testbenches.nonlinear.tb_argmax",
)
'''


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Return the units and the dimensions that the verb simulates; nothing is compiled."""
    found: list[tuple[Any, Any]] = []

    def simulate(entry: Any, dimensions: Any, request: Any) -> Any:
        found.append((entry, entry.named(dimensions)[1]))
        return SimpleNamespace(
            passed=True, tensors="none", tests=1, failures=0, values_checked=1, mismatches=0,
            utilization=None, facts={}, seconds=1, sim_cycles_per_second=1, simulator="verilator",
            seed=1, outputs=[],
        )  # fmt: skip

    monkeypatch.setattr("testbenches.runner.simulate", simulate)
    return found


def sim(*options: str) -> Result:
    return CliRunner().invoke(main, ["sim", *options])


@pytest.mark.parametrize(
    ("policy", "preset", "top", "changed"),
    [
        ("voting", "tiny", "voting_engine", {}),
        ("voting_without_fallback", "smollm2", "voting_engine", {"threshold.fallback": False}),
        ("aerp_integers", "smollm2", "eviction_controller", {}),
        ("aerp_centred", "tiny", "eviction_controller", {"centred": True}),
        ("aerp_integers", "tiny_before", "eviction_controller", {"evict_before": False}),
    ],
)
def test_policy_selects_unit_and_rule(
    simulated: list[tuple[Any, Any]], policy: str, preset: str, top: str, changed: dict[str, Any]
) -> None:
    result = sim("--policy", policy, "--preset", preset)
    assert result.exit_code == 0, result.output
    assert re.search(rf"policy +│ {policy} ", result.output)
    ((entry, parameters),) = simulated
    assert entry is entry_named(top)
    assert parameters == entry.named(entry.dimensions(preset, changed))[1]


@pytest.mark.parametrize(
    ("policy", "options", "changes"),
    [
        ("voting", [], {}),
        ("voting_without_fallback", [], {"threshold.fallback": False}),
        (
            "voting_without_fallback",
            ["--set", "count_bits=9"],
            {"threshold.fallback": False, "count_bits": 9},
        ),
    ],
)
def test_mutants_are_of_the_policys_rule(
    policy: str, options: list[str], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At preset `tiny`, as for a unit; nothing is compiled."""
    found: list[Any] = []

    def mutate(entry: Any, dimensions: Any, **_given: Any) -> MutationResult:
        found.append((entry, entry.named(dimensions)))
        return MutationResult(top=entry.top, preset="", seed=1, verilog_digest="", mutants=())

    monkeypatch.setattr("testbenches.mutation.mutate", mutate)
    result = CliRunner().invoke(main, ["mutate", "--policy", policy, "--seed", "1", *options])
    assert result.exit_code == 0, result.output
    assert f"policy {policy}\n" in result.output
    entry = entry_named("voting_engine")
    assert found == [(entry, entry.named(entry.dimensions("tiny", changes)))]


def test_other_parameters_are_set_as_for_a_unit(simulated: list[tuple[Any, Any]]) -> None:
    result = sim("--policy", "voting_without_fallback", "--preset", "tiny", "--set", "count_bits=9")
    assert result.exit_code == 0, result.output
    ((_entry, parameters),) = simulated
    assert parameters.count_bits == 9 and not parameters.threshold.fallback


def test_top_selects_a_unit_without_a_policy(simulated: list[tuple[Any, Any]]) -> None:
    result = sim("--top", "voting_engine", "--preset", "tiny")
    assert result.exit_code == 0, result.output
    assert "policy" not in result.output


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package with a unit, as an installer does."""
    (tmp_path / "least.py").write_text(UNITS)
    install(tmp_path, "least", "least:least")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "least", raising=False)
    return tmp_path


def test_policy_of_a_file_names_a_unit_of_a_package(
    package: Path, simulated: list[tuple[Any, Any]]
) -> None:
    (package / "own.py").write_text(OWN.format(unit="least"))
    result = sim("--policy", str(package / "own.py"), "--preset", "tiny")
    assert result.exit_code == 0, result.output
    ((entry, parameters),) = simulated
    assert (entry.top, entry.paper, parameters.lanes) == ("least", "least", 8)


def test_unit_that_does_not_exist_is_refused(package: Path) -> None:
    (package / "own.py").write_text(OWN.format(unit="lest"))
    result = sim("--policy", str(package / "own.py"))
    assert result.exit_code == 2
    words = " ".join(result.output.split())
    assert "the hardware of POLICY" in words and "did you mean 'least'" in words


@pytest.mark.parametrize("verb", ["sim", "mutate"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "one of TOP and POLICY must be given, not none"),
        (["--top", "voting_engine", "--policy", "voting"], "must be given, not both"),
        (
            ["--policy", "h2o"],
            "POLICY must be one that a unit implements, such as aerp_integers, aerp_centred, v",
        ),
        (["--policy", "h20"], "did you mean 'h2o'"),
        (["--policy", "voting", "--preset", "tinny"], "did you mean 'tiny'"),
        (
            ["--policy", "voting", "--set", "threshold.fallback=false"],
            "threshold.fallback must not be set, because POLICY voting determines it",
        ),
    ],
)
def test_bad_input_is_one_sentence(verb: str, options: list[str], message: str) -> None:
    result = CliRunner().invoke(main, [verb, *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_area_of_a_policy_is_that_of_its_unit(tmp_path: Path) -> None:
    """The Verilog of the rule, which all verbs of units share."""
    options = ["--policy", "voting_without_fallback", "--preset", "tiny"]
    result = CliRunner().invoke(main, ["verilog", *options, "--out", str(tmp_path / "rtl")])
    assert result.exit_code == 0, result.output
    engine = entry_named("voting_engine")
    dimensions = engine.dimensions("tiny", {"threshold.fallback": False})
    assert engine.named(dimensions)[0] in result.output


@pytest.mark.full
def test_mutants_are_of_the_rule_that_the_policy_selects(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN.format(unit="argmax"))
    options = ["--policy", str(tmp_path / "own.py"), "--count", "4", "--seed", "1"]
    result = CliRunner().invoke(main, ["mutate", *options])
    assert result.exit_code == 0, result.output
    assert "policy own" in result.output


@pytest.mark.full
def test_policy_without_fallback_is_simulated() -> None:
    result = sim("--policy", "voting_without_fallback", "--preset", "tiny", "--seed", "1")
    assert result.exit_code == 0, result.output
    assert re.search(r"fallbacks +│ 0 ", result.output)

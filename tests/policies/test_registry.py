"""Policies by name, from files and from packages, and the refusal of everything else."""

import sys
from pathlib import Path

import pytest

from golden.policies.protocol import CachePolicy, Unit
from golden.policies.registry import BUILT_IN, all_policies, checked, policy_named
from hdl.errors import UserError

MINE = """
from dataclasses import dataclass

from golden.policies.protocol import Policy


@dataclass(frozen=True, kw_only=True)
class Mine(Policy):
    def score(self, importance, query):
        return query.prob.sum(2).double()


policy = Mine()
"""


DECORATED = "@dataclass(frozen=True, kw_only=True)\nclass Mine(Policy)"


def write(folder: Path, *changes: tuple[str, str], text: str = MINE) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = folder / "mine.py"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_policies_pass_the_check_of_others(name: str) -> None:
    found = policy_named(name)
    assert isinstance(found.policy, CachePolicy)
    assert checked(found.policy, name) is found.policy


def test_file_defines_a_policy(tmp_path: Path) -> None:
    found = policy_named(write(tmp_path))
    assert found.name == "mine"
    assert found.adjusted(48, None).policy.budget == 48
    before = found.identity()
    # The source is part of what decides a result, comments included.
    assert policy_named(write(tmp_path, ("policy =", "# changed\npolicy ="))).identity() != before
    assert policy_named(write(tmp_path)).identity() == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("policy = Mine()", "", "must define one policy object, such as .*, not none"),
        ("policy = Mine()", "a = Mine()\nb = Mine()", "one policy object, .*, not 2: a, b"),
        (
            "importance, query",
            "importance",
            r"score must have the parameters \(importance, query\)",
        ),
        (".sum(2)", "", r"score must return a tensor of shape \(2, 3, 129\), not \(2, 3, 2, 129\)"),
        (".prob", ".chance", "score fails: AttributeError: 'Query' object has no attribute"),
        (".double()", ".double() / 0", "score must return finite numbers"),
        ("return query", "retrun query", "must run without errors: SyntaxError"),
        ("policy = Mine()", "policy = Mine(budget=0)", "must run without errors: ValueError"),
        (
            "@dataclass(frozen=True, kw_only=True)\nclass Mine(Policy)",
            "class Mine",
            "of a dataclass",
        ),
        ("class Mine(Policy)", "class Mine", "must have the member budget"),
        (
            "return query.prob.sum(2).double()",
            "return importance\n\n    def protect(self, query):\n        return query.positions",
            "protect must return torch.bool, not torch.int64",
        ),
        (
            "return query.prob.sum(2).double()",
            "return importance\n\n    hardware = 'voting_engine'",
            "hardware must be a golden.policies.protocol.Hardware, not 'voting_engine'",
        ),
        (
            "return query.prob.sum(2).double()",
            "return importance\n    def evict(self, importance, protected):\n        return query",
            "evict fails: NameError",
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        policy_named(write(tmp_path, (old, new)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h20", "POLICY must be one of full_cache, .*, not 'h20'; did you mean 'h2o'"),
        ("none.py", "POLICY must be a file that exists, not 'none.py'"),
    ],
)
def test_unknown_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        policy_named(name)


def test_fields_that_a_policy_lacks_are_refused() -> None:
    with pytest.raises(UserError, match="RESERVED is not for h2o"):
        policy_named("h2o").adjusted(None, 4)
    with pytest.raises(UserError, match="BUDGET is not for full_cache, which keeps every token"):
        policy_named("full_cache").adjusted(64, None)
    assert policy_named("voting").adjusted(64, 4).policy.reserved == 4


def test_fields_are_set_by_texts() -> None:
    changed = policy_named("voting").changed({"budget": "64", "b": "0.1", "fallback": "no"}).policy
    assert (changed.budget, changed.b, changed.fallback) == (64, 0.1, False)
    assert policy_named("h2o").changed({"unit": "layer"}).policy.unit is Unit.LAYER


@pytest.mark.parametrize(
    ("name", "field", "value", "message"),
    [
        ("h2o", "budgets", "8", "a field of h2o must be one of .*; did you mean 'budget'"),
        ("h2o", "budget", "many", "budget must be an integer, not 'many'"),
        ("h2o", "unit", "head", "unit must be one of query_head, kv_head, layer, not 'head'"),
        ("voting", "fallback", "perhaps", "fallback must be one of true, .*, not 'perhaps'"),
        ("full_cache", "budget", "8", "BUDGET is not for full_cache, which keeps every token"),
    ],
)
def test_fields_and_values_that_do_not_exist_are_refused(
    name: str, field: str, value: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        policy_named(name).changed({field: value})


def install(folder: Path, entry: str) -> None:
    """Write a package's module and metadata as an installer does."""
    (folder / "other_policies.py").write_text(MINE)
    info = folder / "other_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other_policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[systola.policies]\n{entry}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other_policies", raising=False)
    return tmp_path


def test_package_adds_a_policy(site: Path) -> None:
    install(site, "theirs = other_policies:policy")
    found = policy_named("theirs")
    assert type(found.policy).__module__ == "other_policies"
    assert "Mine" in found.identity()
    assert [own.name for own in all_policies()] == [*BUILT_IN, "theirs"]


@pytest.mark.parametrize(
    ("entry", "name", "message"),
    [
        ("theirs = other_policies:Mine", "theirs", "must be an object of a dataclass"),
        ("theirs = other_policies:nothing", "theirs", "must be importable: AttributeError"),
        ("h2o = other_policies:policy", "theirs", "must not define the same POLICY 'h2o'"),
    ],
)
def test_wrong_entry_points_are_refused(site: Path, entry: str, name: str, message: str) -> None:
    install(site, entry)
    with pytest.raises(UserError, match=message):
        policy_named(name)

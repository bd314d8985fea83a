"""The digest of what a test of one unit depends on changes with that, and with nothing else."""

import shutil
import subprocess
import sys
from pathlib import Path

from hdl.catalog import entry_named
from hdl.paths import ROOT
from testbenches.faults import read_faults
from tests.dependencies import test_sources as sources
from tests.long_half import SOURCES

UNITS = ("softmax", "voting_engine")
SCRIPT = """
from hdl.catalog import entry_named
from hdl.paths import ROOT
from tests.dependencies import test_sources
for top in {units}:
    print(test_sources([entry_named(top)], ROOT / "tests" / "test_drawn_parameters.py"))
"""

FILE = ROOT / "tests" / "test_drawn_parameters.py"


def digests(checkout: Path) -> dict[str, str]:
    """Return the digest of each unit's tests in a copy of the checkout."""
    script = SCRIPT.format(units=UNITS)
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=checkout, capture_output=True, text=True, check=True
    )
    return dict(zip(UNITS, run.stdout.split(), strict=True))


CHANGES: dict[str, set[str]] = {
    "hdl/lad/lad.py": set(),
    "tests/lad/lad_faults.toml": set(),
    "hdl/veda/voting/vote_counter.py": {"voting_engine"},
    "testbenches/nonlinear/tb_softmax.py": {"softmax"},
    "testbenches/runner.py": set(UNITS),
    "tests/cases.py": set(),
    "systola/requirements/sim.lock": set(UNITS),
    "systola/requirements/docs.lock": set(),
    "synth/layout/tools.py": set(),
    "testbenches/harness_rows.h": set(),
}
"""By a changed file, the units whose tests depend on it."""


def test_digest_follows_the_files_of_the_unit(tmp_path: Path) -> None:
    for name in (*SOURCES, "README.md"):
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    before = digests(tmp_path)
    for file, changed in CHANGES.items():
        with (tmp_path / file).open("a") as text:
            text.write("\nCHANGED = True\n" if file.endswith(".py") else "\n# A comment.\n")
        after = digests(tmp_path)
        assert {top for top in UNITS if before[top] != after[top]} == changed, file
        before = after


def test_tests_of_one_unit_in_two_files_have_two_digests() -> None:
    entry = entry_named("softmax")
    other = FILE.with_name("test_simulation.py")
    assert sources([entry], FILE) != sources([entry], other)
    assert sources([entry, 3], FILE) == sources([entry, 4], FILE)


def test_fault_depends_on_the_units_that_find_it() -> None:
    fault = read_faults(ROOT / "tests" / "nonlinear" / "nonlinear_faults.toml")[0]
    assert sources([fault], FILE) not in (None, sources([entry_named("softmax")], FILE))


def test_fault_depends_on_the_files_of_tests_that_find_it() -> None:
    faults = read_faults(ROOT / "tests" / "p3llm" / "p3llm_faults.toml")
    by_file = [fault for fault in faults if all(name.endswith(".py") for name in fault.found_by)]
    digests = {sources([fault], FILE) for fault in by_file}
    assert len(by_file) > 1
    assert None not in digests
    assert len(digests) == len(by_file)


def test_parameters_without_a_unit_have_no_digest() -> None:
    assert sources([], FILE) is None
    assert sources([1, "softmax"], FILE) is None


def test_marked_test_has_the_digest_of_its_units() -> None:
    softmax = sources([entry_named("softmax")], FILE)
    assert sources([], FILE, ["softmax"]) == softmax
    assert sources([], FILE, []) not in (None, softmax)
    assert sources([], FILE, []) != sources([], FILE.with_name("test_simulation.py"), [])

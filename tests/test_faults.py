"""Each fault put into the hardware on purpose is found by what its list names."""

from pathlib import Path

import pytest

from hdl.paths import ROOT
from testbenches.faults import Fault, faulty_copy, finds, read_faults, requested

FAULTS = [
    pytest.param(fault, id=f"{file.stem.removesuffix('_faults')}: {fault.meaning}")
    for file in sorted((ROOT / "tests").rglob("*_faults.toml"))
    for fault in read_faults(file)
]


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_changes_its_place_and_has_checks(fault: Fault) -> None:
    fault.edit.check(ROOT)
    assert fault.found_by
    for finder in fault.found_by:
        if finder.endswith(".py"):
            assert (ROOT / finder).is_file(), finder
        else:
            requested(finder)


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    copy = faulty_copy(fault, tmp_path)
    for finder in fault.found_by:
        assert finds(copy, finder), finder

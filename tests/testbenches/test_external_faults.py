"""Each fault planted in the model of the external memory is found by the model's tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hdl.paths import ROOT
from tests.testbenches.test_external_memory import SOURCES

MODEL = ROOT / "testbenches" / "harness_external.h"
TESTS = "tests/testbenches/test_external_memory.py"

FAULTS = {
    "no tFAW": ("now < activations[oldest] + t.faw", "false"),
    "no tRRD_L": ("now < group_activate[access->group]", "false"),
    "no tRRD_S": ("activate = now + t.rrd_s;", "activate = now;"),
    "no tRTP": ("bank.precharge = std::max(bank.precharge, now + t.rtp);", ""),
    "no tWR": ("now + t.write + t.transfer + t.wr)", "now)"),
    "no tWTR": ("read_free = now + t.write + t.transfer + t.wtr;", "read_free = now;"),
    "no turnaround": ("now + t.read + t.transfer + t.turnaround - t.write;", "now;"),
    "no tCCD_L": ("group_column[access.group] = now + t.ccd_l;", ""),
    "no tCCD_S": ("column = now + std::max(t.ccd_s, t.transfer);", "column = now + t.clock;"),
    "no tRP": ("bank.activate = now + t.rp;\n            return;", "return;"),
    "no tRAS": ("now + t.ras, now + t.rcd}", "now, now + t.rcd}"),
    "no tRCD": ("now + t.ras, now + t.rcd}", "now + t.ras, now}"),
    "no tRFC": (": now + t.rfc;", ": now;"),
    "no tRP before a refresh": ("(bank.open ? now + t.rp : bank.activate)", "bank.activate"),
    "refresh in open rows' tRAS": (
        "ready = ready && now >= (bank.open ? bank.precharge : bank.activate);",
        "",
    ),
    "half of the refreshes": ("refresh_due += t.refi;", "refresh_due += 2 * t.refi;"),
    "rows closed before their columns": ("if (hits & mask || now", "if (now"),
    "old accesses starve": ("return queued.front()->passed > 4 * t.depth;", "return false;"),
    "writes wait for the last read": ("writes.size() >= t.depth - t.depth / 4", "false"),
    "one bank group": ("made.group = granule % t.groups;", "made.group = 0;"),
    "rows in one bank": ("made.row = granule / t.banks;", "made.row = granule;"),
    "no limit of the link": ("if (t.link) link.free", "if (false) link.free"),
    "no latency of the controller": (
        "t.transfer + memory.t.controller;\n    while",
        "t.transfer;\n    while",
    ),
    "no bursts held": ("if (known != held.end()) {", "if (false) {"),
    "writes not combined": ("if (granule != combined) flush();", "flush();"),
    "incomplete bursts never written": ("memory.cycle > latest + IDLE", "false"),
    "no waiting for the queue": ("parts[QUEUE] = std::min", "parts[LATENCY] = std::min"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_changes_one_place(name: str) -> None:
    right, _wrong = FAULTS[name]
    assert MODEL.read_text().count(right) == 1


@pytest.mark.full
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found(name: str, tmp_path: Path) -> None:
    for file in [*MODEL.parent.glob("harness*.h"), *MODEL.parent.glob("external_trial.cpp")]:
        shutil.copy(file, tmp_path)
    (tmp_path / MODEL.name).write_text(MODEL.read_text().replace(*FAULTS[name]))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", TESTS]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {SOURCES: str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout

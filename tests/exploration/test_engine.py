"""Jobs on workers: those that end, fail, lose their worker, or lose their scheduler."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hdl.errors import UserError
from hdl.paths import ROOT
from systola.exploration import engine
from systola.exploration.checkout import Checkout, this_checkout
from systola.exploration.engine import check_workers, cluster, run_jobs
from systola.exploration.regression import GroupResult, closing_line, group


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Any]:
    with cluster(None, workers=2) as client:
        yield client


def outcomes(client: Any, work: Any, jobs: list[Any]) -> dict[int, Any]:
    names = [f"{work.__name__}-{time.monotonic_ns()}-{index}" for index in range(len(jobs))]
    return dict(run_jobs(client, work, jobs, names, [1.0] * len(jobs)))


def test_every_job_has_one_result(two_workers: Any) -> None:
    def square(job: int) -> int:
        return job * job

    assert outcomes(two_workers, square, list(range(40))) == {n: n * n for n in range(40)}


def test_a_job_that_fails_ends_no_other(two_workers: Any) -> None:
    def inverse(job: int) -> float:
        return 1 / job

    found = outcomes(two_workers, inverse, [1, 0, 2])
    assert isinstance(found.pop(1), ZeroDivisionError)
    assert found == {0: 1.0, 2: 0.5}


def test_a_lost_worker_s_jobs_run_again(tmp_path: Path) -> None:
    """The first job of one worker kills it; every job still has its one result."""
    mark = tmp_path / "killed"

    def fragile(job: int) -> int:
        if job == 3:
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                return job
            os.kill(os.getpid(), signal.SIGKILL)
        return job

    with cluster(None, workers=2) as client:
        assert outcomes(client, fragile, list(range(12))) == {n: n for n in range(12)}
    assert mark.exists()


def test_a_worker_of_another_checkout_is_named(two_workers: Any) -> None:
    other = replace(this_checkout(), sources="0123456789ab")
    with pytest.raises(
        UserError, match=r"must have this checkout, but tcp://.* has .*; the scheduler has"
    ):
        check_workers(two_workers, other)


def test_difference_is_described() -> None:
    here = Checkout(sources="aa", packages="bb", commit="c1")
    assert not here.difference(here)
    message = here.difference(Checkout(sources="ab", packages="bc", commit="c2"))
    assert "sources ab at c2, not c1" in message
    assert "other versions of packages" in message


def test_an_address_without_a_scheduler_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ANSWER_SECONDS", 1)
    for address in ("tcp://127.0.0.1:9", "nowhere"):
        with pytest.raises(UserError, match="SCHEDULER must be"), cluster(address):
            pass


def test_finished_jobs_remain_if_the_scheduler_ends(tmp_path: Path) -> None:
    """A real scheduler and worker; the scheduler is ended after the third result."""
    address = tmp_path / "scheduler.json"
    python = [sys.executable, "-m"]
    here = os.environ | {"PYTHONPATH": str(ROOT)}
    scheduler = subprocess.Popen(
        [*python, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
         "--no-dashboard", "--scheduler-file", str(address)],
        cwd=tmp_path, env=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    worker = subprocess.Popen(
        [*python, "distributed.cli.dask_worker", "--scheduler-file", str(address), "--nthreads",
         "1", "--nworkers", "1", "--no-dashboard", "--host", "127.0.0.1"],
        cwd=tmp_path, env=here,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def slow(job: int) -> int:
        time.sleep(0.2)
        return job

    try:
        where = wait_for_address(address)
        finished = []
        with (
            pytest.raises(UserError, match="the scheduler must remain available"),
            cluster(where) as client,
        ):
            for index, outcome in run_jobs(
                client, slow, list(range(30)), [f"slow-{n}" for n in range(30)], [1.0] * 30
            ):
                finished.append((index, outcome))
                if len(finished) == 3:
                    scheduler.kill()
        assert len(finished) >= 3
        assert all(index == outcome for index, outcome in finished)
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


def wait_for_address(file: Path) -> str:
    """Return the address that a scheduler writes into its file, after its worker has joined."""
    import json

    for _ in range(600):
        if file.exists():
            return json.loads(file.read_text())["address"]
        time.sleep(0.1)
    raise AssertionError("the scheduler did not start")


def test_tests_are_grouped_by_file_or_unit_and_preset() -> None:
    names = [
        "tests/a.py::one",
        "tests/a.py::two[x-1]",
        "tests/b.py::sim[softmax-tiny-3]",
        "tests/b.py::again[softmax-tiny]",
        "tests/b.py::sim[softmax-paper]",
    ]
    groups = {each.name: each.tests for each in group(names, {"softmax"})}
    assert groups == {
        "tests/a.py": tuple(names[:2]),
        "tests/b.py softmax tiny": tuple(names[2:4]),
        "tests/b.py softmax paper": (names[4],),
    }


def test_the_closing_line_counts_what_ran_where() -> None:
    results = [
        GroupResult(name="a", worker="one", passed=3, failed=0, skipped=1, seconds=1),
        GroupResult(name="b", worker="two", passed=1, failed=2, skipped=0, seconds=1),
    ]
    assert closing_line(results) == "4 passed, 2 failed, 1 skipped (4 on one, 3 on two)"

"""The journal and the tables: no lost or duplicate results, and errors of writing are reported."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hdl.errors import UserError
from synth.gallery import explored
from synth.results import collect_sweeps
from systola.exploration.cost_model import larger, schedule
from systola.exploration.job import Job, Result
from systola.exploration.output import write_front
from systola.exploration.pictures import AREA, CYCLES, DELAY, front, measured, pareto_plot
from systola.exploration.results import Journal, Row, read_table, rows, write_table

JOB = Job(top="softmax", point="tiny", parameters="", verb="sim", sources="abc", seed=3)


def result(job: Job, failure: str = "") -> Result:
    return Result(
        key=job.key, failure=failure, seconds=1.5, worker="here", values={"top": "softmax"}
    )


def test_key_covers_all_inputs_of_a_result() -> None:
    others = [
        replace(JOB, top="sfu"),
        replace(JOB, parameters="lanes = 2\n"),
        replace(JOB, verb="synth"),
        replace(JOB, sources="abd"),
        replace(JOB, seed=4),
        replace(JOB, liberty_digest="1"),
    ]
    assert len({JOB.key, *(other.key for other in others)}) == 7
    assert replace(JOB, liberty="/elsewhere/cells.lib").key == JOB.key


def test_what_is_kept_is_there_in_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    other = replace(JOB, seed=4)
    journal = Journal(file)
    journal.add(result(JOB))
    journal.add(result(other, failure="no library"))
    again = Journal(file)
    assert again.done(JOB) == result(JOB)
    assert again.done(other) is None
    assert again.done(replace(JOB, seed=5)) is None


def test_half_a_line_costs_that_line_alone(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    other = replace(JOB, seed=4)
    Journal(file).add(result(JOB))
    with file.open("a") as half:
        half.write('{"key": "1')
    Journal(file).add(result(other))
    again = Journal(file)
    assert again.done(JOB)
    assert again.done(other)


def test_a_disk_that_takes_nothing_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="results cannot be stored in"):
        Journal(tmp_path / "file" / "results.jsonl").add(result(JOB))
    with pytest.raises(UserError, match="the table cannot be written to"):
        write_table([{"a": 1}], tmp_path / "file" / "results")
    full = Journal(tmp_path / "results.jsonl")
    # A read of this device would return zeros without end.
    full.file = Path("/dev/full")
    with pytest.raises(UserError, match="No space left on device"):
        full.add(result(JOB))


def test_a_synthesis_has_a_line_a_netlist() -> None:
    points = [{"recipe": "area", "area_um2": 5.0}, {"recipe": "speed", "area_um2": 7.0}]
    values = {
        "liberty": "cells",
        "tools": {"yosys": "0.7"},
        "points": points,
        "verilog_digest": "d",
    }
    job = replace(JOB, verb="synth", seed=None)
    lines = rows(job, replace(result(job), values=values), {"lanes": 4})
    assert [line["netlist"] for line in lines] == ["area-optimised", "delay-optimised"]
    assert [line["area_um2"] for line in lines] == [5.0, 7.0]
    assert all(line["parameter.lanes"] == 4 and line["tools"] == "yosys 0.7" for line in lines)


def test_a_table_reads_as_it_was_written(tmp_path: Path) -> None:
    table: list[Row] = [{"a": 1, "b": "x"}, {"a": None, "c": 2.5, "b": 3}]
    parquet, text = write_table(table, tmp_path / "results")
    assert read_table(parquet) == [{"a": 1, "b": "x", "c": None}, {"a": None, "b": "3", "c": 2.5}]
    with text.open() as lines:
        assert [line["b"] for line in csv.DictReader(lines)] == ["x", "3"]


def synthesised(point: str, lanes: int, area: float, delay: float) -> Row:
    return {
        "point": point, "verb": "synth", "netlist": "area-optimised", "library": "cells",
        "parameter.lanes": lanes, "area_um2": area, "critical_path_ps": delay,
        "power_mw": 2.0, "fmax_mhz": 500.0,
    }  # fmt: skip


def simulated(point: str, lanes: int, cycles: int) -> Row:
    return {"point": point, "verb": "sim", "parameter.lanes": lanes, "cycles": cycles}


def test_a_front_has_what_nothing_beats() -> None:
    table = [synthesised(str(n), n, area, delay) for n, (area, delay) in enumerate(
        [(10, 90), (20, 50), (20, 40), (25, 45), (30, 40), (40, 10)]
    )]  # fmt: skip
    assert [row["parameter.lanes"] for row in front(table, AREA, DELAY)] == [0, 2, 5]


def test_cycles_are_means_over_seeds_and_energy_is_theirs() -> None:
    table = [synthesised("a", 1, 10, 5), simulated("a", 1, 100), simulated("a", 1, 300)]
    (line,) = measured(table)
    assert line["cycles"] == 200
    # 2 mW at 500 MHz are 4 pJ a cycle.
    assert line["energy_nj"] == pytest.approx(200 * 0.004)


def test_pictures_have_every_point_of_the_front_labelled(tmp_path: Path) -> None:
    table = [row for n in range(1, 9) for row in (
        synthesised(f"p{n}", n, 10.0 * n, 900 / n), simulated(f"p{n}", n, 1000 // n)
    )]  # fmt: skip
    written = list(write_front(table, tmp_path, "lanes"))
    assert len(written) == 2
    for _title, lines, (picture, sheet) in written:
        assert [line["point"] for line in lines] == [f"lanes={n}" for n in range(1, 9)]
        drawing = picture.read_text()
        assert all(f">{n}<" in drawing for n in range(1, 9))
        assert len(sheet.read_text().splitlines()) == 9


def test_the_report_shows_every_front(tmp_path: Path) -> None:
    """Two sweeps of the same figures share no name that a drawing refers to."""
    for sweep, least in (("arrays", 10.0), ("norms", 30.0)):
        home = tmp_path / "explore" / sweep
        home.mkdir(parents=True)
        table = [synthesised(f"p{n}", n, least + n, 900 / n) for n in range(1, 4)]
        fronts = {title: files[0].stem for title, _, files in write_front(table, home, sweep)}
        (home / "explore.json").write_text(json.dumps({"sweep": sweep, "fronts": fronts}))
    gallery = explored(collect_sweeps(tmp_path), tmp_path / "report")
    assert [picture.title.partition(":")[0] for picture in gallery.pictures] == ["arrays", "norms"]
    names = [set(re.findall(r' id="(\w+)"', picture.svg)) for picture in gallery.pictures]
    assert names[0] and names[1] and not names[0] & names[1]
    assert gallery.table is not None
    assert [row[3].text for row in gallery.table.rows] == ["11", "12", "13", "31", "32", "33"]
    assert gallery.table.rows[0][3].link == "../explore/arrays/pareto-area_um2-critical_path_ps.csv"


def test_ten_thousand_results_are_read_and_plotted(tmp_path: Path) -> None:
    """The sizes hold; how long it takes is on the page of exploration."""
    file = tmp_path / "results.jsonl"
    with file.open("w") as lines:
        for seed in range(10_000):
            job = replace(JOB, seed=seed)
            lines.write(json.dumps(vars(result(job))) + "\n")
    assert len(Journal(file).results) == 10_000
    table = [synthesised(f"p{n}", n, 10 + n % 97, 900 - n % 89) for n in range(10_000)]
    assert read_table(write_table(table, tmp_path / "all")[0])[9_999]["parameter.lanes"] == 9_999
    assert pareto_plot(table, AREA, DELAY).axes


def test_a_figure_that_a_table_lacks_has_no_picture(tmp_path: Path) -> None:
    assert not front([simulated("a", 1, 3)], AREA, CYCLES)
    assert not list(write_front([simulated("a", 1, 3)], tmp_path, "lanes"))


@pytest.mark.parametrize(
    ("seconds", "workers", "wall"),
    [([3, 3, 2, 2, 2], 2, 7), ([5, 1, 1, 1], 2, 5), ([4], 10, 4), ([1] * 9, 3, 3)],
)
def test_the_longest_job_first(seconds: list[float], workers: int, wall: float) -> None:
    assert schedule(seconds, workers).wall == wall
    assert schedule(seconds, workers, overhead=0.5).wall > wall


def test_a_larger_sweep_has_only_measured_times() -> None:
    assert set(larger([1.0, 4.0], 100)) == {1.0, 4.0}
    assert schedule(larger([1.0, 4.0], 100), 1).wall == sum(larger([1.0, 4.0], 100))

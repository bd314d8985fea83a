"""Storage of measurements: a journal that all sweeps share, and a table for each sweep.

The journal contains one line of JSON per finished job, and is on the disk before the next result is
awaited. A partial line from an interrupted run is ignored. Tables are derived from the journal.
"""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hdl.errors import UserError
from hdl.paths import replace_bytes
from systola.exploration.job import Job, Result

Row = dict[str, Any]
"""A line of a table: values by columns' names."""

_SYNTH = (
    "area_um2", "sequential_um2", "critical_path_ps", "fmax_mhz", "power_mw", "memory_bits",
    "cells", "flops",
)  # fmt: skip
_SIM = ("cycles", "ideal_cycles", "utilization", "tests", "values_checked", "mismatches")
_FPGA = ("lut", "ff", "dsp", "bram", "fmax_mhz")
NETLISTS = {"area": "area-optimised", "speed": "delay-optimised", "period": "for the period"}
"""Names of the netlists of one synthesis, by recipe."""


class Journal:
    """The results of finished jobs, by their keys.

    Parameters
    ----------
    file : Path
        The file that stores the results.

    Raises
    ------
    UserError
        If the file cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.results: dict[str, Result] = {}
        try:
            lines = file.read_text().splitlines() if file.exists() else []
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from error
        for line in lines:
            try:
                result = Result(**json.loads(line))
            except (json.JSONDecodeError, TypeError):
                continue
            self.results[result.key] = result

    def add(self, result: Result) -> None:
        """Store a result; it is on the disk when the call returns.

        Raises
        ------
        UserError
            If the file cannot be written, for example on a full disk.
        """
        line = json.dumps(asdict(result)) + "\n"
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a+b") as file:
                # End a partial line of an interrupted run, which would otherwise corrupt this one.
                if file.tell() and not self._ends_a_line():
                    file.write(b"\n")
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UserError(f"results cannot be stored in {self.file}: {error.strerror}") from error
        self.results[result.key] = result

    def done(self, job: Job) -> Result | None:
        """Return the result of a job that succeeded; None for one that must run (again)."""
        result = self.results.get(job.key)
        return result if result and not result.failure else None

    def _ends_a_line(self) -> bool:
        with self.file.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def rows(job: Job, result: Result, parameters: Mapping[str, Any]) -> list[Row]:
    """Return a job's lines of the table: one, or one per netlist or device.

    Parameters
    ----------
    parameters : Mapping[str, Any]
        The point's parameter values by path.
    """
    values = result.values
    common: Row = {
        "top": job.top,
        "point": job.point,
        **{f"parameter.{name}": value for name, value in parameters.items()},
        "verb": job.verb,
        "seed": job.seed,
        "verilog_digest": values.get("verilog_digest"),
        "seconds": result.seconds,
        "worker": result.worker,
        "key": job.key,
        "sources": job.sources,
    }
    if job.verb == "synth":
        kept = common | {"library": values["liberty"], "tools": _tools(values)}
        return [
            kept
            | {"netlist": NETLISTS.get(point["recipe"], point["recipe"])}
            | {name: point.get(name) for name in _SYNTH}
            for point in values["points"]
        ]
    if job.verb == "fpga":
        devices = values["devices"].items()
        return [
            common | {"library": name, "tools": _tools(device)} | {k: device[k] for k in _FPGA}
            for name, device in devices
        ]
    facts = {k: v for k, v in values["facts"].items() if isinstance(v, int | float)}
    return [common | {name: values[name] for name in _SIM} | facts]


def write_table(table: Sequence[Row], stem: Path) -> list[Path]:
    """Write a table as Parquet and as CSV, with the union of all lines' columns.

    Raises
    ------
    UserError
        If a file cannot be written.
    """
    columns = list(dict.fromkeys(name for row in table for name in row))
    filled = {name: _alike([row.get(name) for row in table]) for name in columns}
    parquet, text = io.BytesIO(), io.StringIO()
    pq.write_table(pa.table(filled), parquet)
    lines = csv.DictWriter(text, columns, lineterminator="\n")
    lines.writeheader()
    lines.writerows(table)
    files = {".parquet": parquet.getvalue(), ".csv": text.getvalue().encode()}
    try:
        for suffix, data in files.items():
            replace_bytes(stem.with_suffix(suffix), data)
    except OSError as error:
        raise UserError(f"the table cannot be written to {stem}: {error.strerror}") from error
    return [stem.with_suffix(suffix) for suffix in files]


def read_table(file: Path) -> list[Row]:
    """Read a Parquet table that `write_table` wrote."""
    return pq.read_table(file).to_pylist()


def _tools(measured: Mapping[str, Any]) -> str:
    return " ".join(f"{name} {version}" for name, version in measured["tools"].items())


def _alike(values: Iterable[Any]) -> list[Any]:
    """Return a column's values, all converted to text if one of them is text."""
    column = list(values)
    mixed = any(isinstance(value, str) for value in column)
    return [value if value is None or not mixed else str(value) for value in column]

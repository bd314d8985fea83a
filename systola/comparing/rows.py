"""The rows of ``compare``: each value by the page's formula, with the marks of its figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synth.comparison import (
    FIGURE_NAMES,
    System,
    Value,
    Watched,
    at_bank_clock,
    bank_bytes,
    clock,
    energy,
    figure,
    off_chip_bytes,
)
from synth.digests import MARK
from synth.normalised import (
    area_mm2,
    dram_mj,
    energy_mj,
    limit,
    markdown,
    memory_mm2,
    on_chip_mj,
    speed_per_area,
    tokens_per_second,
)
from systola.comparing.design import Design
from systola.comparing.figures import Figures

MISSING = "missing"
KEPT, BEYOND = "‡", "§"
LEGEND = {
    MARK: "a figure of earlier Verilog, or of an earlier golden model, decides this value",
    KEPT: "a figure of docs/comparison.json decides this value",
    BEYOND: "extrapolated by the cost of a cached token from fewer or more cached tokens",
}
"""The marks of a value."""

UNUSABLE = "cannot use it"
"""What a row shows for a system that cannot use the external memory."""

LOWER, HIGHER = "lower", "higher"
"""Which values of a row are better."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row.

    Parameters
    ----------
    label : str
        The row's name with its unit, and what it excludes.
    of : Callable[[System], Value]
        The value of a system.
    shown : str
        Format of a number.
    better : str
        `LOWER` or `HIGHER`; empty for a row that has no direction.
    of_policies : bool
        Whether a cache policy has the value without an accelerator.
    """

    label: str
    of: Callable[[System], Value]
    shown: str = "{:,.0f}"
    better: str = ""
    of_policies: bool = False


def rows_with(memory: str) -> tuple[Row, ...]:
    """Return the rows of runs in Verilog with an external memory."""

    def of(value: Callable[[System], Value]) -> Callable[[System], Value]:
        return lambda system: value(system) if system["timed_mhz"] else UNUSABLE

    return (
        Row(
            label=f"run with {memory}: cycles/token",
            of=of(lambda system: figure(system, "memory_cycles")),
            better=LOWER,
        ),
        Row(
            label=f"run with {memory}: tokens/s",
            of=of(lambda system: system["timed_mhz"] * 1e6 / system["figures"]["memory_cycles"]),
            shown="{:,.1f}",
            better=HIGHER,
        ),
        Row(
            label=f"run with {memory}: clock, MHz",
            of=of(lambda system: system["timed_mhz"]),
            shown="{:,.0f}",
        ),
        Row(
            label=f"run with {memory}: cycles/token in which a port waits",
            of=of(lambda system: figure(system, "memory_waiting")),
            better=LOWER,
        ),
        Row(
            label=f"run with {memory}: bandwidth in use",
            of=of(lambda system: figure(system, "memory_utilization")),
            shown="{:.1%}",
            better=HIGHER,
        ),
        Row(
            label=f"run with {memory}: bytes/token of all bursts",
            of=of(lambda system: figure(system, "memory_bytes")),
            better=LOWER,
        ),
    )


def rows_at(bandwidth: float | None) -> tuple[Row, ...]:
    """Return the rows at a bandwidth in GB/s, or at that of the papers' memories."""
    memory = "the paper's memory" if bandwidth is None else f"{bandwidth:g} GB/s"

    def limited(system: System) -> Value:
        # The limit is defined where the speed is.
        speed = tokens_per_second(system, None, bandwidth)
        return limit(system, bandwidth) if isinstance(speed, int | float) else speed

    return (
        Row(
            label="tokens that a layer caches, at most",
            of=lambda system: system["cached"] or "all",
            of_policies=True,
        ),
        Row(
            label="perplexity, 8 windows of 256 tokens",
            of=lambda system: figure(system, "perplexity"),
            shown="{:.2f}",
            better=LOWER,
            of_policies=True,
        ),
        Row(
            label="cycles/token",
            of=lambda system: figure(system, "cycles"),
            better=LOWER,
        ),
        Row(
            label="off-chip bytes/token",
            of=off_chip_bytes,
            better=LOWER,
        ),
        Row(
            label="bytes/token at the DRAM banks (not off-chip)",
            of=bank_bytes,
            better=LOWER,
        ),
        Row(
            label="area-optimised logic, um2 (memories, wires excluded)",
            of=lambda system: figure(system, "area_um2"),
            better=LOWER,
        ),
        Row(
            label="clock of the area-optimised logic, MHz (default wire load)",
            of=lambda system: clock(system, "clock_mhz"),
            better=HIGHER,
        ),
        Row(
            label="delay-optimised logic, um2 (memories, wires excluded)",
            of=lambda system: figure(system, "fastest_um2"),
            better=LOWER,
        ),
        Row(
            label="own clock: of the delay-optimised logic, MHz (default wire load)",
            of=lambda system: clock(system, "fastest_mhz"),
            better=HIGHER,
        ),
        Row(label="on-chip memories, mm2, modelled", of=memory_mm2, shown="{:.2f}", better=LOWER),
        Row(
            label="delay-optimised logic and memories, mm2, modelled",
            of=area_mm2,
            shown="{:.2f}",
            better=LOWER,
        ),
        Row(
            label=f"tokens/s, at most: own clock, {memory}",
            of=lambda system: tokens_per_second(system, None, bandwidth),
            shown="{:,.1f}",
            better=HIGHER,
        ),
        Row(label=f"limited by: own clock, {memory}", of=limited),
        Row(
            label=f"tokens/s per mm2, at most: own clock, {memory}",
            of=lambda system: speed_per_area(system, bandwidth),
            shown="{:.1f}",
            better=HIGHER,
        ),
        Row(
            label="energy of the logic only, mJ/token",
            of=energy,
            shown="{:.2f}",
            better=LOWER,
        ),
        Row(label="DRAM energy, mJ/token, modelled", of=dram_mj, shown="{:.2f}", better=LOWER),
        Row(
            label="on-chip memory energy, mJ/token, estimated",
            of=on_chip_mj,
            shown="{:.2f}",
            better=LOWER,
        ),
        Row(
            label="energy of logic, memories and DRAM, mJ/token",
            of=energy_mj,
            shown="{:.2f}",
            better=LOWER,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The value of a row in a column, with the marks of the figures that decide it."""

    value: Value
    text: str
    marks: tuple[str, ...]


def cell(row: Row, design: Design, figures: Figures) -> Cell:
    """Return a row's cell for a design: the formula's value of the design's own figures."""
    watched = Watched({name: own.value for name, own in figures.items()})
    conditions = {"cached": design.cached, "timed_mhz": None}
    if design.timed:
        conditions["timed_mhz"] = design.timed.system.external.clock_mhz
    system = at_bank_clock(design.kept, design.system.p)
    return cell_of(row, {**system, "figures": watched, **conditions}, figures)


def cell_of(row: Row, system: System, figures: Figures) -> Cell:
    """Return a row's cell for a system, whose figures record which of them the row reads."""
    watched: Watched = system["figures"]
    try:
        value = row.of(system)
    except KeyError as error:
        if error.args[0] not in FIGURE_NAMES:
            raise
        value = None
    if not isinstance(value, int | float):
        return Cell(value=value, text=value or MISSING, marks=())
    deciding = [figures[name] for name in watched.read if name in figures]
    marks = {
        MARK: any(own.stale for own in deciding),
        KEPT: any(own.kept for own in deciding),
        BEYOND: any(own.extrapolated for own in deciding),
    }
    present = tuple(mark for mark, given in marks.items() if given)
    return Cell(value=value, text=" ".join((row.shown.format(value), *present)), marks=present)


def difference(row: Row, before: Cell, after: Cell) -> tuple[str, str]:
    """Return the change of a value in words, and whether it is better."""
    first, second = before.value, after.value
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        return "", ""
    change = second - first
    text = row.shown.replace(":", ":+", 1).format(change)
    text += f" ({change / first:+.1%})" if first else ""
    if not change or not row.better:
        return text, "equal" if not change else ""
    return text, "better" if (change > 0) == (row.better == HIGHER) else "worse"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All cells of a comparison.

    Parameters
    ----------
    columns : Sequence[str]
        Name of each design.
    cells : Mapping[Row, Sequence[Cell]]
        One cell per design.
    differs : bool
        Whether two parameter sets of one system are compared, the first one with the second.
    """

    columns: Sequence[str]
    cells: Mapping[Row, Sequence[Cell]]
    differs: bool

    def lines(self) -> list[list[str]]:
        """Return the table, whose first line is its head."""
        head = ["", *self.columns]
        lines = [head + ["difference", "verdict", "better is"] * self.differs]
        for row, cells in self.cells.items():
            line = [row.label, *(own.text for own in cells)]
            if self.differs:
                line += [*difference(row, *cells), row.better]
            lines.append(line)
        return lines

    def legend(self) -> list[str]:
        """Return the meaning of each mark in the table."""
        used = {mark for cells in self.cells.values() for own in cells for mark in own.marks}
        return [f"{mark} {words}" for mark, words in LEGEND.items() if mark in used]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows for the JSON file."""
        rows = []
        for row, cells in self.cells.items():
            values = [{"value": own.value, "marks": list(own.marks)} for own in cells]
            rows.append({"row": row.label, "better": row.better, "cells": values})
            if self.differs:
                change, verdict = difference(row, *cells)
                rows[-1] |= {"difference": change, "verdict": verdict}
        return rows

    def markdown(self) -> str:
        """Return the table and its legend as Markdown."""
        return "\n\n".join([markdown(self.lines()), *self.legend()])

"""The plot of LAD's schedule (Figure 6): projections and (batch, head) pairs over cycles.

``make sim TOP=lad PRESET=tiny_turns SEED=1 TARGET=fpga`` measures it at the hardware's ports;
``python -m synth.schedule`` copies the result to `docs/lad/schedule.json` and plots it.
"""

import json
from typing import Any

from matplotlib.figure import Figure

from hdl.paths import BUILD, ROOT
from synth.svg import INK, LINES, MUTED, OURS, THEIRS, svg

DATA = ROOT / "docs" / "lad" / "schedule.json"
PLOT = DATA.with_suffix(".svg")
KEPT, WAITS = "#d69a8c", LINES
TITLE = "cycles of three heads of four samples in two tiles"


def drawing(data: dict[str, Any]) -> str:
    """Return the plot with one row per (batch, head) pair below its tile.

    Parameters
    ----------
    data : dict
        `batch`, `projections` and `steps` from `testbenches.lad.schedule`.
    """
    tiles = 1 + max(step[0] for step in data["steps"])
    rows = [
        (tile, [number for number, step in enumerate(data["steps"]) if step[0] == tile])
        for tile in range(tiles)
    ]
    figure = Figure(figsize=(9.2, 0.9 + 0.24 * (len(data["steps"]) + 2 * tiles)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    names: list[str] = []
    for tile, steps in rows:
        row = len(names)
        names.append(f"tile {tile}: linear")
        for first, last in data["projections"]:
            axes.barh(row, last - first + 1, left=first, height=0.8, color=THEIRS)
        for number in steps:
            row = len(names)
            head, sample = divmod(number, data["batch"])
            names.append(f"head {head}, sample {sample}")
            begin, scored, first, _last, end = data["steps"][number][1:]
            parts = ((begin, scored, KEPT), (scored, first, WAITS), (first, end, OURS))
            for left, right, color in parts:
                axes.barh(row, right - left, left=left, height=0.6, color=color)
    axes.set_yticks(range(len(names)), names, fontsize=8, color=INK)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(
        "cycles from the first weights; blue: weights; pale: stages 1 and 2; grey: "
        "stages 3 and 4; red: stages 5, 6, write-back",
        fontsize=8,
        color=MUTED,
    )
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return svg(figure, TITLE) + "\n"


def main() -> None:
    """Copy the measured schedule, and write its plot."""
    run = BUILD / "lad" / "tiny_turns" / "fpga_sim.json"
    schedule = json.loads(run.read_text())["facts"]["schedule"]
    DATA.write_text(json.dumps(schedule, indent=1) + "\n")
    PLOT.write_text(drawing(schedule))


if __name__ == "__main__":
    main()

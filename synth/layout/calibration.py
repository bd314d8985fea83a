"""Calibration of the wire load model on layouts.

The model of `synth.wires` has one number, the length of wire per load in cell pitches. Each layout
stores the model's longest path for several lengths. The calibrated length is the one with the
smallest maximum error of the clock. The error of a layout is that of the length which the other
layouts give, so that no layout calibrates the model against itself.

    python -m synth.layout.calibration build/*/*/layout/layout.json
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hdl.errors import UserError
from synth.mapped_design import Netlist
from synth.timing import analyse
from synth.wires import placed_wire_load

LENGTHS = (0.0, 1.5, 3.0, 4.5, 6.0)
"""Lengths per load in cell pitches for which a layout stores the model's longest path."""

STEP = 0.05
"""Step of the search for the calibrated length, in cell pitches."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A layout: its name, its longest path with wires, and the model's for `LENGTHS`, in ps."""

    name: str
    wired_ps: float
    model_ps: tuple[float, ...]

    def error(self, pitches: float) -> float:
        """Return the relative error of the model's clock for a length per load in pitches."""
        for (low, high), (first, last) in zip(
            pairwise(LENGTHS), pairwise(self.model_ps), strict=True
        ):
            if low <= pitches <= high:
                path = first + (last - first) * (pitches - low) / (high - low)
                return self.wired_ps / path - 1
        raise ValueError(f"pitches must be between {LENGTHS[0]} and {LENGTHS[-1]}, not {pitches}")


def model_clock(netlist: Netlist) -> dict[str, Any] | None:
    """Return the entry of ``layout.json``: the model's longest path for each of `LENGTHS`.

    The result is None without OpenSTA, or if the netlist has no path.
    """
    paths: list[float] = []
    for pitches in LENGTHS:
        timing = analyse(netlist, wires=placed_wire_load(netlist, pitches=pitches))
        if not timing or not timing.critical:
            return None
        paths.append(round(timing.critical.length_ps, 1))
    return {"pitches_per_load": LENGTHS, "critical_ps": paths}


def calibrate(samples: Sequence[Sample]) -> float:
    """Return the length in cell pitches whose largest error is the smallest."""
    steps = round(LENGTHS[-1] / STEP)
    return min(
        (round(step * STEP, 2) for step in range(steps + 1)),
        key=lambda pitches: max(abs(sample.error(pitches)) for sample in samples),
    )


def held_out(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """Return the length that the other layouts give, and the error with it, by layout.

    Raises
    ------
    UserError
        If there are fewer than two layouts.
    """
    if len(samples) < 2:
        raise UserError(f"a calibration needs at least two layouts, not {len(samples)}")
    found: dict[str, tuple[float, float]] = {}
    for sample in samples:
        pitches = calibrate([other for other in samples if other is not sample])
        found[sample.name] = pitches, sample.error(pitches)
    return found


def sample_of(figures: dict[str, Any]) -> Sample | None:
    """Return the sample of the contents of a ``layout.json``, or None if it has no timing."""
    wired, model = figures["wired"], figures.get("model")
    if not wired or not model or tuple(model["pitches_per_load"]) != LENGTHS:
        return None
    return Sample(
        name=f"{figures['top']} / {figures['preset']}",
        wired_ps=max(wired["setup_ps"].values()),
        model_ps=tuple(model["critical_ps"]),
    )


def main(paths: Sequence[str]) -> None:
    """Print the calibrated length, and the error of each layout that did not calibrate it."""
    contents = [json.loads(Path(path).read_text()) for path in paths]
    samples = [sample for figures in contents if (sample := sample_of(figures))]
    for name, (pitches, error) in held_out(samples).items():
        print(f"{name:40} {pitches:5.2f} pitches from the others, error {error:+.1%}")
    pitches = calibrate(samples)
    largest = max(abs(sample.error(pitches)) for sample in samples)
    print(f"all {len(samples)} layouts: {pitches:.2f} pitches, largest error {largest:.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])

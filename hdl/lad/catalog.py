"""The units of LAD, with the dimensions at which each is built."""

from hdl.entry import Entry
from hdl.lad.piecewise_linear_exp import PiecewiseLinearExp, PiecewiseLinearExpParameters

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="finds the interval of a score, and the line that stands for exp in it",
        source="Section III-A, IV-B (3) and (4)",
        latency="1 cycle",
        throughput="lanes scores a cycle",
        unit=PiecewiseLinearExp,
        presets={
            "tiny": PiecewiseLinearExpParameters(intervals=5, lanes=1),
            "smollm2": PiecewiseLinearExpParameters(intervals=12, lanes=2),
            "paper": PiecewiseLinearExpParameters(intervals=5, lanes=12),
        },
    ),
)
"""Every unit of the paper."""

"""Cycles and bytes of a token by the number of cached tokens: tables of `docs/comparison.md`.

The list `contexts` of a system in `docs/comparison.json` has the tokens that were run in Verilog
with ideal ports, by ``python -m systola.comparing.contexts``; an entry with `calculated` follows
from parts that were run, as the page describes. A value between two of them is on the line through
both; one beyond is on the line through the two nearest, since the cost of a token grows where
attention no longer overlaps other work.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from synth.comparison import BANKS, NOT_OFF_CHIP, System, Value, checked
from synth.digests import MARK
from synth.normalised import accelerators, limit, markdown, speed_or_banks

CONTEXTS = (128, 1024, 2048)
"""Numbers of cached tokens of the table."""

GB_S = 64.0
"""Bandwidth of the table's speeds in GB/s."""


def on_lines(cached: Sequence[int], values: Sequence[float], tokens: int) -> tuple[float, str]:
    """Return the value at a number of cached tokens, on the line through the two nearest runs.

    The second result is the measured range in words if the number is outside it, else empty.

    Parameters
    ----------
    cached, values : Sequence
        At least two increasing numbers of cached tokens, and their values.
    tokens : int
        Number of cached tokens.
    """
    last = min(max(1, sum(own < tokens for own in cached)), len(cached) - 1)
    (x0, x1), (y0, y1) = (own[last - 1 : last + 1] for own in (cached, values))
    inside = cached[0] <= tokens <= cached[-1]
    value = y0 + (y1 - y0) / (x1 - x0) * (tokens - x0)
    return float(value), "" if inside else f"{x0:,} and {x1:,} cached tokens"


def at(system: System, tokens: int) -> tuple[System, str]:
    """Return a system with the cycles and bytes of a number of cached tokens, and their origin."""
    runs, most = system["contexts"], system.get("cached_at_most", tokens)
    cached = [run["cached"] for run in runs]
    kept = min(tokens, most)
    values = {"cycles": "cycles", "bytes_per_token": "bytes"}
    if kept in cached:
        (run,) = (run for run in runs if run["cached"] == kept)
        found = {name: run[own] for name, own in values.items()}
        origin = "calculated" if run.get("calculated") else "measured"
    else:
        lines = {
            name: on_lines(cached, [run[own] for run in runs], kept) for name, own in values.items()
        }
        found = {name: value for name, (value, _) in lines.items()}
        beyond = lines["cycles"][1]
        origin = f"extrapolated from {beyond}" if beyond else "interpolated"
    if kept < tokens:
        origin += f" with {kept} tokens cached, as others are evicted"
    return {**system, "figures": {**system["figures"], **found}}, origin


def tables(data: dict[str, Any]) -> dict[str, str]:
    """Return the page's tables of cached tokens by their names."""
    systems = [own for own in accelerators(checked(data)).values() if "contexts" in own]
    return {
        "contexts": markdown([_HEAD, *(_line(own, n) for own in systems for n in CONTEXTS)]),
        "context costs": markdown([_COSTS, *map(_cost, systems)]),
    }


_HEAD = [
    "system",
    "cached tokens",
    "cycles/token",
    "off-chip bytes/token",
    f"tokens/s, at most: own clock, {GB_S:g} GB/s",
    "limited by",
    "figures",
]

_COSTS = [
    "system",
    "tokens: cached, cycles",
    "cycles per cached token",
    "bytes per cached token",
]


def _name(system: System) -> str:
    """Return the system's name, with a mark if a run is of earlier Verilog."""
    old = any(run.get("old") for run in system["contexts"])
    return f"{system['name']} {MARK}" if old else system["name"]


def _line(system: System, tokens: int) -> list[str]:
    """Return the cells of a system and a number of cached tokens."""
    here, origin = at(system, tokens)
    # The bytes across the channel are known for one number of cached tokens only.
    banks = system["memory"]["where"] == BANKS
    moved: Value = NOT_OFF_CHIP if banks else here["figures"]["bytes_per_token"]
    return [
        _name(system),
        f"{tokens:,}",
        f"{here['figures']['cycles']:,.0f}",
        f"{moved:,.0f}" if isinstance(moved, int | float) else str(moved),
        f"{speed_or_banks(here, GB_S):,.1f}",
        str(limit(here, GB_S)),
        origin,
    ]


def _cost(system: System) -> list[str]:
    """Return the cells of a system's costs per cached token: those of each line."""
    runs = system["contexts"]
    pairs = list(pairwise(runs))

    def slopes(name: str) -> str:
        found = ((b[name] - a[name]) / (b["cached"] - a["cached"]) for a, b in pairs)
        return "; ".join(f"{slope:,.1f}" for slope in found)

    return [
        _name(system),
        "; ".join(f"{run['cached']:,}: {run['cycles']:,}" for run in runs),
        slopes("cycles"),
        slopes("bytes"),
    ]

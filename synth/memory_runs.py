"""Runs of whole systems in Verilog with an external memory, as tables of `docs/comparison.md`.

Each run is in the list `with_memory` of its system in `docs/comparison.json`: means per generated
token, in the names of a record of ``make generate``. A run with `old` is of earlier Verilog.
"""

from typing import Any

from synth.comparison import OFF_CHIP, checked
from synth.digests import MARK
from synth.normalised import accelerators, markdown, tokens_per_second

SPEEDS = (
    "system",
    "memory",
    "GB/s",
    "clock, MHz",
    "cycles/token, ideal ports",
    "cycles/token",
    "tokens/s",
    "tokens/s, at most",
)
WAITS = (
    "system",
    "memory",
    "cycles in which a port waits",
    "causes",
    "bandwidth in use",
    "bytes/token of all bursts",
)
"""The heads of both tables."""


def tables(data: dict[str, Any]) -> dict[str, str]:
    """Return the page's tables of runs by their names: speeds, and waiting for the memory."""
    systems = accelerators(checked(data)).values()
    runs = [(system, run) for system in systems for run in system.get("with_memory", ())]
    return {
        "memory runs": markdown([list(SPEEDS), *(_speed(*own) for own in runs)]),
        "memory waits": markdown([list(WAITS), *(_waits(*own) for own in runs)]),
    }


def _bound(system: Any, run: dict[str, Any]) -> float:
    """Return the bound of the normalised rows at the run's clock and bandwidth."""
    # The cycles of compute units at DRAM banks contain the times of the banks.
    gb_s = run["gb_s"] if system["memory"]["where"] == OFF_CHIP else None
    found = tokens_per_second(system, run["clock_mhz"], gb_s)
    assert isinstance(found, int | float)
    return found


def _named(system: Any, run: dict[str, Any]) -> list[str]:
    """Return the first cells of a run: system and memory."""
    return [
        f"{system['name']} {MARK}" if run.get("old") else system["name"],
        f"`{run['memory']}`" + (" (the paper's)" if run["paper"] else ""),
    ]


def _speed(system: Any, run: dict[str, Any]) -> list[str]:
    """Return the cells of a run's speed."""
    return [
        *_named(system, run),
        f"{run['gb_s']:,.1f}",
        f"{run['clock_mhz']:,.0f}",
        f"{system['figures']['cycles']:,.0f}",
        f"{run['cycles']:,.0f}",
        f"{run['clock_mhz'] * 1e6 / run['cycles']:,.1f}",
        f"{_bound(system, run):,.1f}",
    ]


def _waits(system: Any, run: dict[str, Any]) -> list[str]:
    """Return the cells of a run's waiting for the memory."""
    causes = run["port_cycles"]
    total = sum(causes.values()) or 1
    shares = [
        f"{name} {count / total:.0%}" for name, count in causes.items() if count / total > 0.005
    ]
    return [
        *_named(system, run),
        f"{run['waiting'] / run['cycles']:.1%}",
        ", ".join(shares),
        f"{run['utilization']:.1%}",
        f"{run['bytes']:,.0f}",
    ]

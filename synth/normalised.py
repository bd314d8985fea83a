"""Normalised rows of the comparison: speed at one memory, utilisation, memory area, energy.

Each `Row` has its formula and its source, and the page prints them. All rows are computed from
`docs/comparison.json` and from the published constants of this module. Speeds are upper bounds;
`synth.memory_runs` has runs with one memory model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from synth.comparison import (
    BANKS,
    ITS_BANKS,
    LEGEND,
    NO_LEGAL_CLOCK,
    OFF_CHIP,
    System,
    Value,
    cell,
    checked,
    clock,
    energy,
    off_chip_bytes,
)

BANDWIDTHS = (25.6, 64.0, 256.0)
"""Common bandwidths in GB/s: LPDDR4-3200 with 64 bits, Kelle's memory, VEDA's memory."""

GHZ = 1000.0
"""The common clock in MHz."""

SRAM_MACRO_UM2, SRAM_MACRO_BITS = 206.910 * 219.800, 2048 * 39
"""Size and bits of `fakeram45_2048x39`, the largest SRAM macro that OpenROAD-flow-scripts has for
NanGate45."""
SRAM_UM2_PER_BIT = SRAM_MACRO_UM2 / SRAM_MACRO_BITS

SRAM_OVER_EDRAM = 7.3 / 3.2
"""Area of 4 MB of SRAM relative to 4 MB of eDRAM (Kelle, Table 1, both in 65 nm)."""
EDRAM_UM2_PER_BIT = SRAM_UM2_PER_BIT / SRAM_OVER_EDRAM

SRAM_PJ_PER_BIT = 20 / 64
"""20 pJ per access of 64 bits, 32 KB, 45 nm (Horowitz, ISSCC 2014, Figure 1.1.9)."""

BANK_ROW_BITS = 8 * 1024
DRAM_PJ_PER_BIT: Mapping[str, float] = {
    "HBM2": 3.9,
    "LPDDR4": 11.74e3 / (64 * 8),
    "DDR4": 1300 / 64,
    "in-bank": 909 / BANK_ROW_BITS + 1.51,
}
"""Energy of a bit by kind of memory; `DRAM_SOURCES` has the sources."""

DRAM_SOURCES: Mapping[str, str] = {
    "HBM2": "LAD's Section V, from O'Connor et al., Fine-Grained DRAM, MICRO-50, 2017",
    "LPDDR4": "Kelle's Section 8: 11.74 W at 64 GB/s, by CACTI 7",
    "DDR4": "no DDR4 source was found; Horowitz, ISSCC 2014, Figure 1.1.9: 1.3 to 2.6 nJ per 64 "
    "bits of DRAM, of which the lower end is used",
    "in-bank": "O'Connor et al., Table 3: 909 pJ per activation of 1 KB, all of it used, and "
    "1.51 pJ/bit to the bank's edge",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A normalised row.

    Parameters
    ----------
    label : str
        The row's name with its unit.
    of : Callable[[System, int], Value]
        The value of a system, from the system and the weights of the language model.
    shown : str
        Format of a number.
    formula, source : str
        Definition of the row, and the source of what is not measured here.
    """

    label: str
    of: Callable[[System, int], Value]
    shown: str
    formula: str
    source: str = "measured"


def paper_gb_s(system: System) -> float | None:
    """Return the bandwidth of the paper's memory in GB/s, if the system has off-chip memory."""
    memory = system["memory"]
    if memory["where"] != OFF_CHIP:
        return None
    return memory["paper_bytes_per_cycle"] * memory["paper_clock_mhz"] / 1e3


def seconds_per_token(cycles: float, mhz: float, bytes_: float, gb_s: float) -> float:
    """Return the time below which a token cannot be computed and transferred.

    Computation and transfer overlap completely; the longer one is the bound.

    Parameters
    ----------
    cycles, bytes_ : float
        Measured cycles and off-chip bytes of a token.
    mhz, gb_s : float
        Clock in MHz and bandwidth in GB/s.
    """
    return max(computation_and_transfer(cycles, mhz, bytes_, gb_s))


def computation_and_transfer(
    cycles: float, mhz: float, bytes_: float, gb_s: float
) -> tuple[float, float]:
    """Return the two times of a token in seconds; parameters as in `seconds_per_token`."""
    return cycles / (mhz * 1e6), bytes_ / (gb_s * 1e9)


def tokens_per_second(system: System, mhz: float | None, gb_s: float | None) -> Value:
    """Return the upper bound of tokens/s.

    Parameters
    ----------
    mhz : float, optional
        Clock in MHz; the legal clock of the delay-optimised netlist if None.
    gb_s : float, optional
        Bandwidth in GB/s; that of the paper's memory if None.
    """
    only = system["memory"].get("clock_mhz")
    if mhz is not None and only is not None and mhz != only:
        return NO_LEGAL_CLOCK
    used = clock(system, "fastest_mhz") if mhz is None else mhz
    if not isinstance(used, int | float):
        return used
    cycles, moved = system["figures"]["cycles"], off_chip_bytes(system)
    if system["memory"]["where"] == BANKS and gb_s is None:
        # The measured cycles contain the times of the banks, which are the paper's memory.
        return used * 1e6 / cycles
    if not isinstance(moved, int | float):
        return moved
    bandwidth = paper_gb_s(system) if gb_s is None else gb_s
    assert bandwidth is not None
    return 1 / seconds_per_token(cycles, used, moved, bandwidth)


def speed_or_banks(system: System, gb_s: float) -> float:
    """Return tokens/s at most, at the own clock and a bandwidth; of P3-LLM at that of its banks."""
    value = tokens_per_second(system, None, gb_s)
    if not isinstance(value, int | float):
        value = tokens_per_second(system, None, None)
    assert isinstance(value, int | float)
    return value


def limit(system: System, gb_s: float | None) -> Value:
    """Return what bounds the speed at the own clock and a bandwidth, None for the paper's."""
    cycles = "cycles with bank times" if system["memory"]["where"] == BANKS else "cycles"
    mhz, bandwidth = clock(system, "fastest_mhz"), paper_gb_s(system) if gb_s is None else gb_s
    moved = off_chip_bytes(system)
    if bandwidth is None:
        return cycles
    if not isinstance(moved, int | float):
        return moved
    assert isinstance(mhz, int | float)
    computation, transfer = computation_and_transfer(
        system["figures"]["cycles"], mhz, moved, bandwidth
    )
    return "memory" if transfer > computation else cycles


def bandwidth_share(system: System) -> Value:
    """Return the share of the paper's bandwidth in use at the own clock."""
    speed, gb_s = tokens_per_second(system, None, None), paper_gb_s(system)
    if gb_s is None or not isinstance(speed, int | float):
        return ITS_BANKS
    return speed * system["figures"]["bytes_per_token"] / (gb_s * 1e9)


def multiplier_share(system: System, weights: int) -> float:
    """Return the share of the multipliers' cycles that products of weights take.

    Products of queries, keys, values and scores are excluded: with ten cached tokens they are below
    one percent.
    """
    figures = system["figures"]
    products = weights * figures["multipliers_per_product"]
    return products / (figures["multipliers"] * figures["cycles"])


def memory_mm2(system: System) -> float:
    """Return the area of the on-chip SRAM and eDRAM; registers are part of the logic."""
    figures = system["figures"]
    embedded = figures.get("edram_bits", 0)
    sram = (figures["memory_bits"] - embedded) * SRAM_UM2_PER_BIT
    return (sram + embedded * EDRAM_UM2_PER_BIT) / 1e6


def area_mm2(system: System) -> float:
    """Return the area of the delay-optimised logic and of the on-chip memories."""
    return system["figures"]["fastest_um2"] / 1e6 + memory_mm2(system)


def speed_per_area(system: System, gb_s: float | None) -> Value:
    """Return tokens/s per mm2 of logic and memories; own clock, None for the paper's memory."""
    speed = tokens_per_second(system, None, gb_s)
    return speed / area_mm2(system) if isinstance(speed, int | float) else speed


def on_chip_mj(system: System) -> Value:
    """Return the energy of one write and one read of each off-chip byte in on-chip memory."""
    moved = off_chip_bytes(system)
    return moved * 8 * 2 * SRAM_PJ_PER_BIT / 1e9 if isinstance(moved, int | float) else moved


def dram_mj(system: System) -> float:
    """Return the energy of the token's bytes in the DRAM, and on the channel of its banks."""
    memory, figures = system["memory"], system["figures"]
    pj = figures["bytes_per_token"] * 8 * DRAM_PJ_PER_BIT[memory["kind"]]
    if memory["where"] == BANKS:
        pj += figures.get("channel_bytes", 0) * 8 * DRAM_PJ_PER_BIT["HBM2"]
    return pj / 1e9


def energy_mj(system: System) -> Value:
    """Return the sum of logic, on-chip memory and DRAM; the part that is missing, if one is."""
    parts = energy(system), on_chip_mj(system), dram_mj(system)
    missing = [part for part in parts if not isinstance(part, int | float)]
    return missing[0] if missing else sum(part for part in parts if isinstance(part, int | float))


def _speed(name: str, mhz: float | None, gb_s: float | None) -> Row:
    """Return the row of tokens/s at a clock and a bandwidth; None is the system's own."""
    clock_ = "f: own clock" if mhz is None else f"f: {mhz:.0f} MHz, which no netlist here reaches"
    memory = "B: the paper's memory" if gb_s is None else f"B: {gb_s:g} GB/s"
    return Row(
        label=f"tokens/s, at most: {name}",
        of=lambda system, _: tokens_per_second(system, mhz, gb_s),
        shown="{:,.1f}",
        formula=f"1 / max(cycles/token / f, bytes/token / B); {clock_}; {memory}",
        source="measured cycles and bytes; bandwidths of the papers"
        if gb_s is None
        else "measured",
    )


def _limit(name: str, gb_s: float | None) -> Row:
    """Return the row of what limits the speed at the own clock and a bandwidth."""
    return Row(
        label=f"limited by: own clock, {name}",
        of=lambda system, _: limit(system, gb_s),
        shown="{}",
        formula="the larger one of cycles/token / f and bytes/token / B of the row above",
        source="as the row above",
    )


ROWS: tuple[Row, ...] = (
    Row(
        label="GB/s of the paper's memory",
        of=lambda system, _: paper_gb_s(system) or ITS_BANKS,
        shown="{:,.1f}",
        formula="bytes/cycle of the paper's memory x the paper's clock",
        source="the papers",
    ),
    _speed("own clock, the paper's memory", None, None),
    _limit("the paper's memory", None),
    *(
        row
        for gb_s in BANDWIDTHS
        for row in (
            _speed(f"own clock, {gb_s:g} GB/s", None, gb_s),
            _limit(f"{gb_s:g} GB/s", gb_s),
        )
    ),
    _speed("1 GHz, the paper's memory", GHZ, None),
    *(_speed(f"1 GHz, {gb_s:g} GB/s", GHZ, gb_s) for gb_s in BANDWIDTHS),
    Row(
        label="utilisation of the paper's bandwidth, own clock",
        of=lambda system, _: bandwidth_share(system),
        shown="{:.1%}",
        formula="tokens/s x bytes/token / B, at most 100 %; B: the paper's memory",
        source="measured bytes; bandwidths of the papers",
    ),
    Row(
        label="utilisation of the multipliers, the run's ports",
        of=multiplier_share,
        shown="{:.1%}",
        formula="weights x multipliers per product / (multipliers x cycles/token); products of "
        "the attention are excluded",
    ),
    Row(
        label="on-chip memories, mm2, modelled",
        of=lambda system, _: memory_mm2(system),
        shown="{:.2f}",
        formula=f"SRAM bits x {SRAM_UM2_PER_BIT:.4f} um2 + eDRAM bits x {EDRAM_UM2_PER_BIT:.4f} "
        "um2",
        source="the macro `fakeram45_2048x39` of OpenROAD-flow-scripts, 206.91 um x 219.80 um; "
        "eDRAM: Kelle's Table 1",
    ),
    Row(
        label="delay-optimised logic and memories, mm2, modelled",
        of=lambda system, _: area_mm2(system),
        shown="{:.2f}",
        formula="delay-optimised logic + on-chip memories; registers are logic",
        source="measured logic, modelled memories",
    ),
    Row(
        label="tokens/s per mm2, at most: own clock, 64 GB/s",
        of=lambda system, _: speed_per_area(system, 64.0),
        shown="{:.1f}",
        formula="tokens/s at 64 GB/s / the area of the row above",
        source="as both rows",
    ),
    Row(
        label="DRAM energy, mJ/token, modelled",
        of=lambda system, _: dram_mj(system),
        shown="{:.2f}",
        formula="bytes/token x 8 x pJ/bit of the kind of memory; P3-LLM: bytes at the banks, and "
        "off-chip bytes at HBM2's pJ/bit",
        source="pJ/bit: see the table of memories",
    ),
    Row(
        label="on-chip memory energy, mJ/token, estimated",
        of=lambda system, _: on_chip_mj(system),
        shown="{:.2f}",
        formula=f"bytes/token x 8 x 2 x {SRAM_PJ_PER_BIT:g} pJ: each off-chip byte is written and "
        "read once; intermediate values, leakage and refresh are excluded",
        source="Horowitz, ISSCC 2014, Figure 1.1.9: 20 pJ per 64 bits, 32 KB, 45 nm",
    ),
    Row(
        label="energy of logic, memories and DRAM, mJ/token",
        of=lambda system, _: energy_mj(system),
        shown="{:.2f}",
        formula="smallest logic with a clock, at its clock (measured) + on-chip memory + DRAM",
        source="as the three rows",
    ),
)
"""The rows, in the order of the page."""


def accelerators(data: dict[str, Any]) -> dict[str, System]:
    """Return the systems that have a memory: all but the reference."""
    return {key: one for key, one in checked(data)["systems"].items() if "memory" in one}


def tables(data: dict[str, Any]) -> dict[str, str]:
    """Return the page's tables of normalised rows, their formulas, and the memories."""
    systems, weights = accelerators(data), data["weights"]
    lines = [["", *(system["name"] for system in systems.values())]]
    for row in ROWS:
        of = partial(_value, row, weights)
        lines.append([row.label, *(cell(system, of, row.shown) for system in systems.values())])
    formulas = [["row", "formula", "source"], *([r.label, r.formula, r.source] for r in ROWS)]
    memories = [["memory", "used by", "pJ/bit", "source"]]
    for kind, per_bit in DRAM_PJ_PER_BIT.items():
        users = [one["name"] for one in systems.values() if one["memory"]["kind"] == kind]
        memories.append([kind, ", ".join(users), f"{per_bit:.2f}", DRAM_SOURCES[kind]])
    named = {"normalised": lines, "formulas": formulas, "memories": memories}
    texts = {name: markdown(table) for name, table in named.items()}
    return {**texts, "normalised": texts["normalised"] + LEGEND}


def _value(row: Row, weights: int, system: System) -> Value:
    """Return a row's value of a system."""
    return row.of(system, weights)


def markdown(lines: list[list[str]]) -> str:
    """Return a Markdown table whose first line is its head."""
    head, *body = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body])

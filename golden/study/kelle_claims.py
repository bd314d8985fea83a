"""Kelle's claims that arithmetic can check: refresh, lifetimes, recomputation, whole systems."""

from golden.study.kelle_cost import (
    ACCOUNTINGS,
    ADAPTIVE_MS,
    ASSUMPTIONS,
    ORIGINAL_SRAM,
    RETENTION_MS,
    SYSTEMS,
    TASKS,
    decode_cost,
    factors,
    lifetimes,
    overlapped_us,
)
from golden.study.outcome import Claim, Table
from hdl.kelle.edram.refresh_intervals import TABLE_4

EXACT, COARSE = 0.01, 0.1
STEPS = (
    ("Original+eDRAM", "Original+SRAM", 1.32, 0.61),
    ("AEP+SRAM", "Original+SRAM", 2.39, 2.41),
    ("AERP+SRAM", "AEP+SRAM", 1.19, 1.27),
    ("Kelle+eDRAM", "AERP+SRAM", 1.29, 1.45),
    ("Kelle+eDRAM", "Original+SRAM", 3.94, 4.46),
)
"""System, reference system, and the paper's speedup and energy factor (Section 8.1)."""
RATIOS = (0.1, 0.5, 1.0, 2.0)


def arithmetic() -> tuple[list[Table], list[Claim]]:
    """Return the tables of the cost model, and the claims that it checks."""
    claims = [
        _figure(
            f"four intervals refresh as often as {uniform} us",
            uniform,
            intervals.mean_us,
            EXACT,
            "us",
        )
        for uniform, intervals in TABLE_4.items()
    ]
    claims += [
        _figure("by the paper's 1.1 and 3.2 us three loads hide one recomputation: saved", 25,
                100 * (1 - overlapped_us(4, 1) / overlapped_us(4, 0)), EXACT, "%"),
        _figure("loading a key and a value of LLaMA2-7B", 1.1, 2 * 4096 * 2 / 64e3, COARSE, "us"),
        _figure("recomputing them", 3.2, 2 * 4096**2 / 1024e3, COARSE, "us"),
        _figure("throughput, TOPS", 4.13, 4 * 1024 / 1000, EXACT, ""),
    ]  # fmt: skip
    lifetime = Table(
        title="Lifetime of transient data (Equations 7 and 8)",
        columns=("T_eDRAM / T_SRAM", "baseline / Kelle"),
        rows=[(f"{ratio:g}", f"{_lifetime_gain(ratio):.2f}") for ratio in RATIOS],
        note=(
            f"The four intervals take {ADAPTIVE_MS / RETENTION_MS:.1f} times fewer refresh "
            f"operations than {RETENTION_MS * 1000:.0f} us for all."
        ),
    )
    rows = []
    for better, worse, speed, energy in STEPS:
        ours = factors(SYSTEMS[better], SYSTEMS[worse])
        name = f"{better} over {worse}"
        claims += [
            _figure(f"speedup of {name}", speed, ours[0], COARSE, "x"),
            _figure(f"energy factor of {name}", energy, ours[1], COARSE, "x"),
        ]
        rows.append((name, f"{speed:.2f}x", f"{ours[0]:.2f}x", f"{energy:.2f}x", f"{ours[1]:.2f}x"))
    systems = Table(
        title="Speedup and energy of the systems of Section 8.1",
        columns=("systems", "speedup, paper", "here", "energy, paper", "here"),
        rows=rows,
        note="Averages over four tasks. Assumptions: " + "; ".join(ASSUMPTIONS) + ".",
    )
    seconds = Table(
        title="Decoding one batch, seconds and kilojoules",
        columns=("system", *TASKS),
        rows=[
            (
                system,
                *(
                    f"{cost.seconds:.0f} s, {cost.joules / 1e3:.1f} kJ"
                    for cost in (decode_cost(SYSTEMS[system], task) for task in TASKS.values())
                ),
            )
            for system in SYSTEMS
        ],
    )
    accountings = Table(
        title="Kelle+eDRAM over Original+SRAM, by accounting",
        columns=("accounting", "speedup", "energy factor"),
        rows=[
            (name, *(f"{factor:.2f}x" for factor in factors(system, ORIGINAL_SRAM)))
            for name, system in ACCOUNTINGS.items()
        ],
        note="The paper's 3.94x and 4.46x; energy without the array's for what does not count.",
    )
    return [lifetime, systems, seconds, accountings], claims


def _lifetime_gain(ratio: float) -> float:
    """Return the baseline's lifetime over Kelle's, for a ratio T_eDRAM / T_SRAM."""
    both = lifetimes(1.0, 2.0 * ratio)
    return both.baseline / both.kelle


def _figure(what: str, paper: float, ours: float, tolerance: float, unit: str) -> Claim:
    """Compare a figure with the paper's; the claim holds within a relative `tolerance`."""
    return Claim(
        what=what,
        paper=f"{paper:.4g} {unit}".strip(),
        ours=f"{ours:.4g} {unit}".strip(),
        holds="yes" if abs(ours / paper - 1) <= tolerance else "no",
    )

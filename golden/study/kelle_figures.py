"""Kelle's Figures 3, 4, 14, 15 and 16 and Table 7, by the calculators of this study.

`python -m golden.study.kelle_figures` prints the tables of `docs/kelle/study.md`. The paper plots
the figures without numbers; those that its text states are next to the calculated ones.
"""

from dataclasses import replace

from golden.kelle.edram.retention_times import PAPER_TIMES
from golden.study.kelle_cost import (
    ADAPTIVE_MS,
    DRAM_GB_S,
    GIGA,
    KELLE,
    LLAMA2_7B,
    LLAMA2_13B,
    LLAMA32_3B,
    ORIGINAL_SRAM,
    SYSTEMS,
    TASKS,
    Model,
    System,
    Task,
    decode_cost,
    prefill_cost,
    step_of,
)
from golden.study.outcome import Table

MB = 1 << 20
PG19 = TASKS["PG19"]
BUDGETS = {
    "LLaMA3.2-3B": (LLAMA32_3B, {2048: 8.07, 3500: 6.89, 5250: 5.77, 7000: 5.13, 8750: 4.55}),
    "LLaMA2-13B": (LLAMA2_13B, {2048: 5.06, 3500: 4.62, 5250: 4.02, 7000: 3.46, 8750: 3.11}),
}
"""Models of Table 7, and the paper's energy factors over Original+SRAM by budget."""
REFRESHES = {"Org, 45 us": 0.045, "Uni, 0.36 ms": 0.36, "2D": ADAPTIVE_MS}
"""Refresh intervals of Figure 15 (b) in ms."""
LENGTHS = ((16384, 128), (16384, 2048), (2048, 2048), (2048, 8192), (8192, 8192))
"""Tokens of inputs and outputs of Figure 16 (b); the paper's text names the first input only."""
ARRAY_KELLE = replace(KELLE, multiplies=True)
"""Kelle with the time and energy of recomputation, which the Verilog has too."""


def larger_memory(task: Task, model: Model = LLAMA2_7B) -> float:
    """Return the speedup of 8 MB over 4 MB, all for cached vectors (Figure 3 a)."""
    seconds = []
    for capacity in (4 * MB, 8 * MB):
        total = 0.0
        for number in range(task.decoded):
            step = step_of(ORIGINAL_SRAM, task.context + number, model)
            moved = model.weights + max(step.cached - capacity, 0)
            total += max(step.products / (32**2 * GIGA), moved / (DRAM_GB_S * GIGA))
        seconds.append(total)
    return seconds[0] / seconds[1]


def refresh_share(task: Task, model: Model = LLAMA2_7B) -> float:
    """Return the share of refresh in the energy with 8 MB of embedded DRAM (Figure 3 c)."""
    cost = decode_cost(replace(SYSTEMS["Original+eDRAM"], embedded_mb=8), task, model)
    return cost.parts["refresh"] / cost.joules


def energy_factor(system: System, budget: int, model: Model) -> float:
    """Return how much less energy than Original+SRAM a system with a budget takes (Table 7)."""
    task = replace(PG19, budget=budget)
    return decode_cost(ORIGINAL_SRAM, task, model).joules / decode_cost(system, task, model).joules


def figure_3() -> Table:
    """Return what more memory gains, and what refresh costs."""
    rows = [
        (name, f"{larger_memory(task):.4f}", f"{refresh_share(task):.0%}")
        for name, task in TASKS.items()
    ]
    return Table(
        title="Figure 3: 8 MB on chip, LLaMA2-7B, 16 sequences",
        columns=("task", "(a) speedup of 8 over 4 MB of SRAM", "(c) refresh, share of energy"),
        rows=rows,
        note="The text states a mean speedup of 1.27 and a share of up to 46 %.",
    )


def figure_4() -> Table:
    """Return the share of lost bits by refresh interval."""
    intervals = (45, 100, 360, 1000, 1440, 5400, 7200, 20000)
    return Table(
        title="Figure 4: share of lost bits by refresh interval",
        columns=("interval, us", "lost bits"),
        rows=[(f"{interval:,}", f"{PAPER_TIMES.lost(interval):.1e}") for interval in intervals],
        note="The lognormal distribution through the paper's two facts.",
    )


def figure_14() -> Table:
    """Return Kelle over a machine with the cache of COMET: all tokens, in 4 bits."""
    comet = replace(ORIGINAL_SRAM, cached_bits=4)
    rows = []
    for name, task in TASKS.items():
        theirs = decode_cost(comet, task)
        ours = [decode_cost(system, task) for system in (KELLE, replace(KELLE, fills=True))]
        rows.append(
            (
                name,
                *(f"{theirs.seconds / own.seconds:.2f}" for own in ours),
                *(f"{theirs.joules / own.joules:.2f}" for own in ours),
            )
        )
    return Table(
        title="Figure 14: Kelle over Original+SRAM with the cache in 4 bits, as COMET has it",
        columns=("task", "speedup", "with RTL's recomputation", "energy factor", "with RTL's"),
        rows=rows,
        note="The other machines of the figure are not modelled.",
    )


def figure_15() -> list[Table]:
    """Return the energy of recomputation, and that of the refresh policies."""
    variants = {
        "nothing is recomputed": replace(KELLE, recomputed=0.0),
        "one in four, in no time": KELLE,
        "one in four, as in RTL": ARRAY_KELLE,
        "as many as the array has time for": replace(KELLE, fills=True),
    }
    costs = {name: decode_cost(system, PG19) for name, system in variants.items()}
    parts = next(iter(costs.values())).parts
    recomputation = Table(
        title="Figure 15 (a): energy of PG19 in kJ by part, LLaMA2-7B, 16 sequences",
        columns=("system", "hours", *parts, "sum"),
        rows=[
            (
                name,
                f"{cost.seconds / 3600:.2f}",
                *(f"{cost.parts[part] / 1e3:.2f}" for part in parts),
                f"{cost.joules / 1e3:.1f}",
            )
            for name, cost in costs.items()
        ],
        note="",
    )
    refreshed = {
        name: decode_cost(replace(KELLE, refresh_ms=interval), PG19)
        for name, interval in REFRESHES.items()
    }
    refresh = Table(
        title="Figure 15 (b): energy of PG19 in kJ by refresh policy",
        columns=("policy", "refresh", "sum"),
        rows=[
            (name, f"{cost.parts['refresh'] / 1e3:.2f}", f"{cost.joules / 1e3:.1f}")
            for name, cost in refreshed.items()
        ],
        note="The scheduler (2K) shortens lifetimes of activations, which are not refreshed here.",
    )
    return [recomputation, refresh]


def figure_16() -> Table:
    """Return the roofline of a step with a full cache, by the share that is recomputed."""
    rows = []
    for share in (0.0, 0.002, 0.007, 0.05, 0.25):
        system = replace(ARRAY_KELLE, recomputed=share)
        step = step_of(system, PG19.budget, LLAMA2_7B)
        moved = LLAMA2_7B.weights + step.cached
        array, memory = step.products / (32**2 * GIGA), moved / (DRAM_GB_S * GIGA)
        # Products that the step needs anyway, over its time: what recomputation should raise.
        needed = step_of(replace(KELLE, recomputed=0.0), PG19.budget, LLAMA2_7B).products
        rows.append(
            (
                f"{share:.1%}",
                f"{step.products / moved:.1f}",
                f"{memory * 1e3:.0f}",
                f"{array * 1e3:.0f}",
                "memory" if memory >= array else "array",
                f"{needed / max(array, memory) / 1e12:.3f}",
            )
        )
    return Table(
        title="Figure 16 (a): a step of LLaMA2-7B, 16 sequences of 2,048 cached tokens",
        columns=(
            "recomputed",
            "products/byte",
            "memory, ms",
            "array, ms",
            "bound",
            "useful products/ps",
        ),
        rows=rows,
        note="The array multiplies 1.024 products of 16 by 8 bits per ps at most.",
    )


def long_inputs() -> Table:
    """Return the energy factors by length of input and output (Figure 16 b)."""
    rows = []
    for context, decoded in LENGTHS:
        task = Task(context=context, decoded=decoded, budget=PG19.budget)
        prefills, costs = {}, {}
        for name in ("Original+SRAM", "AERP+SRAM", "Kelle+eDRAM"):
            system = SYSTEMS[name]
            prefills[name] = prefill_cost(system, task)
            costs[name] = prefills[name] + decode_cost(system, task)
        kelle, prefill = costs["Kelle+eDRAM"], prefills["Kelle+eDRAM"]
        rows.append(
            (
                f"{context:,}-{decoded:,}",
                f"{prefill.joules / kelle.joules:.0%}",
                f"{costs['Original+SRAM'].joules / kelle.joules:.2f}",
                f"{costs['AERP+SRAM'].joules / kelle.joules:.2f}",
            )
        )
    return Table(
        title="Figure 16 (b): long inputs, LLaMA2-7B, 16 sequences, N' = 2,048",
        columns=(
            "input-output",
            "prefill, of Kelle's energy",
            "Original+SRAM over Kelle",
            "AERP+SRAM over Kelle",
        ),
        rows=rows,
        note="The text states 2.1 for long inputs with short outputs, and 5.6 and 1.8 otherwise.",
    )


def table_7() -> Table:
    """Return the energy factors by budget."""
    systems = {"here": KELLE, "with RTL's recomputation": replace(KELLE, fills=True)}
    return Table(
        title="Table 7: energy of Original+SRAM over that of Kelle, PG19, 16 sequences",
        columns=("model", "budget N'", "paper", *systems),
        rows=[
            (
                name,
                f"{budget:,}",
                f"{paper:.2f}",
                *(f"{energy_factor(system, budget, model):.2f}" for system in systems.values()),
            )
            for name, (model, factors) in BUDGETS.items()
            for budget, paper in factors.items()
        ],
        note="",
    )


def tables() -> list[Table]:
    """Return all tables."""
    return [
        figure_3(),
        figure_4(),
        figure_14(),
        *figure_15(),
        figure_16(),
        long_inputs(),
        table_7(),
    ]


def main() -> None:
    """Print all tables."""
    for table in tables():
        print(f"**{table.title}.**\n{table.note}\n")
        print("| " + " | ".join(table.columns) + " |")
        print("|" + "---|" * len(table.columns))
        for row in table.rows:
            print("| " + " | ".join(row) + " |")
        print()


if __name__ == "__main__":
    main()

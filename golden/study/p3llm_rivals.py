"""P3-LLM against Ecco and Pimba (Figures 11 and 12), and energy (Figure 10), by a model.

Both rivals have the NPU and the memory of P3-LLM, as in the paper. Energies of the memory are those
of Pimba's published simulator, which P3-LLM's does not state; those of a multiply-add are measured.
"""

from collections.abc import Callable
from dataclasses import dataclass

from golden.study.outcome import Claim, Plot, Table
from golden.study.p3llm_speed import (
    BASELINES,
    BATCHES,
    MOST_IN_MEMORY,
    SHAPES,
    LayerWork,
    Shape,
    Work,
    ecco_layer,
    mean_speedup,
    p3llm_layer,
    pimba_layer,
)

ROW_PJ, COLUMN_PJ, UNIT_COLUMN_PJ = 901.12, 919.04, 478.72
"""pJ to open a row of 1 KB, to transfer a column of 32 bytes over the external bus, and to read one
for the units in the memory: the constants of Pimba's simulator for HBM (`systems/pim.yaml`)."""
COLUMN_BYTES, ROW_BYTES = 32, 1024
FEW = (2, 4)
"""Batches of Figures 11 and 13."""
MANY = (2, 4, 8, 16, 32, 64)
"""Batches of Figure 12."""
NEAR = 0.1
"""Largest relative difference from the paper's figure at which a claim holds."""


@dataclass(frozen=True, kw_only=True)
class Elements:
    """Energy of a multiply-add in pJ: in FP16, and of P3-LLM's element."""

    name: str
    half: float
    mixed: float


MEASURED = Elements(name="measured, 45 nm", half=11.94, mixed=2.56)
"""`python -m testbenches.multiply_energy`, 1 GHz (docs/p3llm/pim/pim_processing_element.md)."""
PUBLISHED = Elements(name="Table VIII, 28 nm", half=0.69, mixed=0.18)


def memory_pj(work: Work) -> float:
    """Return the energy of the memory in pJ; every byte of an opened row is read once."""
    row = ROW_PJ / ROW_BYTES
    external = work.external * (COLUMN_PJ / COLUMN_BYTES + row)
    return external + work.internal * (UNIT_COLUMN_PJ / COLUMN_BYTES + row)


def energy_pj(work: Work, elements: Elements, *, mixed: bool = False) -> float:
    """Return the energy of memory and multiply-adds in pJ.

    Parameters
    ----------
    work : Work
        Traffic and multiply-adds.
    elements : Elements
        Energies of multiply-adds; the NPU's are in FP16.
    mixed : bool
        Whether the units in the memory have P3-LLM's elements; otherwise FP16 ones.
    """
    inner = elements.mixed if mixed else elements.half
    return memory_pj(work) + work.outer * elements.half + work.inner * inner


def energy_gain(baseline: str, elements: Elements) -> float:
    """Return the mean ratio of a baseline's energy to P3-LLM's, over models and batches."""
    ratios = [
        energy_pj(BASELINES[baseline](shape, batch).total, elements)
        / energy_pj(p3llm_layer(shape, batch).total, elements, mixed=True)
        for shape in SHAPES
        for batch in BATCHES
    ]
    return sum(ratios) / len(ratios)


def mean_ratio(slow: Callable[[Shape, int], float], fast: Callable[[Shape, int], float]) -> float:
    """Return the mean ratio of two times over models and the batches of Figure 11."""
    ratios = [slow(shape, batch) / fast(shape, batch) for shape in SHAPES for batch in FEW]
    return sum(ratios) / len(ratios)


def _original(shape: Shape, batch: int) -> float:
    return pimba_layer(shape, batch, enhanced=False).ns


def _enhanced(shape: Shape, batch: int) -> float:
    return pimba_layer(shape, batch, enhanced=True).ns


def _whole(shape: Shape, batch: int) -> float:
    return p3llm_layer(shape, batch).ns


def _drained(shape: Shape, batch: int) -> float:
    return p3llm_layer(shape, batch, drains=True).ns


def served(shape: Shape, batch: int) -> tuple[LayerWork, LayerWork]:
    """Return Ecco's and P3-LLM's work at a batch of Figure 12."""
    return ecco_layer(shape, batch), p3llm_layer(shape, batch)


LARGE = [shape for shape in SHAPES if shape.name.startswith("Llama-3")]
"""The models of Figure 12."""


def tables() -> list[Table]:
    """Return Figures 10, 11 and 12 as tables."""
    return [_energies(), _pimba(), _large_batches()]


def _energies() -> Table:
    rows = []
    for batch in BATCHES:
        for name in BASELINES:
            parts = []
            for elements in (MEASURED, PUBLISHED):
                ratios = [
                    (
                        energy_pj(BASELINES[name](shape, batch).linear, elements),
                        energy_pj(BASELINES[name](shape, batch).attention, elements),
                        energy_pj(p3llm_layer(shape, batch).total, elements, mixed=True),
                    )
                    for shape in SHAPES
                ]
                for part in (0, 1):
                    parts.append(sum(one[part] / one[2] for one in ratios) / len(ratios))
            rows.append((name, str(batch), *(f"{part:.2f}" for part in parts)))
    return Table(
        title="Energy of a layer relative to P3-LLM's (Figure 10)",
        columns=(
            "system",
            "batch",
            *(
                f"{part}, {elements.name}"
                for elements in (MEASURED, PUBLISHED)
                for part in ("linear", "attention")
            ),
        ),
        rows=rows,
        note=(
            "Mean over the five models, context 4,096. Linear and attention layers add up to the "
            "system's energy over P3-LLM's. Memory: the energies of a row and of a column of "
            "Pimba's simulator. Multiply-adds: of one flow each, as named. Without on-chip memory, "
            "background power and reads of sums."
        ),
    )


def _pimba() -> Table:
    return Table(
        title="Speed over Pimba (Figure 11)",
        columns=("model", "batch", "Pimba", "Pimba, 8-bit weights", "the same, drains"),
        rows=[
            (
                shape.name,
                str(batch),
                f"{_original(shape, batch) / _whole(shape, batch):.2f}",
                f"{_enhanced(shape, batch) / _whole(shape, batch):.2f}",
                f"{_enhanced(shape, batch) / _drained(shape, batch):.2f}",
            )
            for shape in SHAPES
            for batch in FEW
        ],
        note="P3-LLM's speed relative to each; drains as in the tables above.",
    )


def _large_batches() -> Table:
    rows = []
    for shape in LARGE:
        base = served(shape, MANY[0])[1].ns
        for batch in MANY:
            works = served(shape, batch)
            parts = [time / base for one in works for time in (one.linear.ns, one.attention.ns)]
            rows.append(
                (
                    shape.name,
                    str(batch),
                    *(f"{part:.2f}" for part in parts),
                    f"{works[0].ns / works[1].ns:.2f}",
                )
            )
    return Table(
        title="Latency of Ecco and P3-LLM at larger batches (Figure 12)",
        columns=(
            "model",
            "batch",
            *(f"{name}, {part}" for name in ("Ecco", "P3-LLM") for part in ("linear", "attention")),
            "Ecco over P3-LLM",
        ),
        rows=rows,
        note=(
            f"Relative to P3-LLM's layer at a batch of {MANY[0]}, without drains. Above a batch of "
            f"{MOST_IN_MEMORY} P3-LLM multiplies linear layers on the NPU, as the paper does; the "
            "hardware of this project refuses such a batch."
        ),
    )


def claims() -> list[Claim]:
    """Compare with the paper's means, and with its statements on Figure 12."""

    def near(what: str, paper: float, ours: float, rest: str = "") -> Claim:
        holds = "yes" if abs(ours / paper - 1) <= NEAR else "no"
        return Claim(what=what, paper=f"{paper:g}", ours=f"{ours:.2f}{rest}", holds=holds)

    found = [
        near(
            "mean speedup over Ecco",
            2.0,
            mean_speedup("Ecco", drains=True),
            f"; without drains {mean_speedup('Ecco'):.2f}",
        ),
        near("Pimba with 8-bit weights over Pimba", 2.1, mean_ratio(_original, _enhanced)),
        near(
            "mean speedup over Pimba with 8-bit weights, batch 2 and 4",
            3.4,
            mean_ratio(_enhanced, _drained),
            f"; without drains {mean_ratio(_enhanced, _whole):.2f}",
        ),
    ]
    for baseline, paper in (("NPU", 6.3), ("HBM-PIM", 3.5), ("Ecco", 2.1)):
        rest = f"; with Table VIII's elements {energy_gain(baseline, PUBLISHED):.2f}"
        ours = energy_gain(baseline, MEASURED)
        found.append(near(f"mean energy of {baseline} over P3-LLM's", paper, ours, rest))
    gains = {
        shape.name: [one.ns / other.ns for one, other in (served(shape, n) for n in MANY)]
        for shape in LARGE
    }
    beyond = MANY.index(MOST_IN_MEMORY)
    grows = all(
        gain[beyond:] == sorted(gain[beyond:]) and gain[beyond] > 1 for gain in gains.values()
    )
    shown = "; ".join(f"{gain[beyond]:.2f} to {gain[-1]:.2f}" for gain in gains.values())
    found.append(
        Claim(
            what="advantage over Ecco grows again with the batch, 8 to 64",
            paper="regained by attention (Figure 12)",
            ours=shown,
            holds="yes" if grows else "no",
        )
    )
    return found


def plot() -> Plot:
    """Return the plot of Figure 12."""
    return Plot(
        stem="batches",
        title="Latency of Ecco over P3-LLM's",
        x="batch",
        y="ratio",
        curves={
            shape.name: (
                MANY,
                [one.ns / other.ns for one, other in (served(shape, n) for n in MANY)],
            )
            for shape in LARGE
        },
        logarithmic=True,
    )

"""Area of the compute units on an HBM die (Table VII), from this project's netlists.

The netlists are logic in NanGate 45 nm. The paper scales its own, TSMC 28 nm, to HBM-PIM's 20 nm,
and multiplies the area by ten for the DRAM process; the same rules are applied here.
"""

from dataclasses import dataclass

from golden.study.outcome import Claim, Table

DIE_MM2 = 84.0
"""Area of the die in mm2: both rows of Table VII imply 83.9 to 84.2 within their rounding."""
OTHER_MM2 = 6.2
"""The second area of Table VII in mm2, equal in both of its rows; not computed here."""
UNITS = 32
"""Units of a die of HBM-PIM."""
LIMIT = 0.25
"""The largest share of logic that the paper accepts."""
OWN_NM, DIE_NM = 45, 20
DENSITY = 10
"""Area in a DRAM process over that in a logic process of the same feature size (Section VI-A)."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A row of Table VII: mm2 of the units of a die, and their share of the die, with the rest."""

    mm2: float
    share: float


HBM_PIM = Published(mm2=7.7, share=0.164)
P3LLM = Published(mm2=8.4, share=0.175)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A compute unit, in um2 of one flow."""

    name: str
    um2: float

    @property
    def mm2(self) -> float:
        """Area of the units of a die, in mm2."""
        return self.um2 * (DIE_NM / OWN_NM) ** 2 * DENSITY * UNITS / 1e6

    @property
    def share(self) -> float:
        """Share of the die, with the paper's other logic."""
        return share(self.mm2)

    def relative_share(self, half: "Unit") -> float:
        """Return the share if HBM-PIM's units have the paper's area, and these are in proportion.

        Parameters
        ----------
        half : Unit
            The FP16 unit of the same flow.
        """
        return share(HBM_PIM.mm2 * self.um2 / half.um2)


HALF = Unit(name="FP16 unit like HBM-PIM's", um2=77_717)
OWN = Unit(name="P3-LLM's unit, without scaling of groups", um2=78_729)
SCALING = 1.27
"""Ratio of the areas of the delay-optimised units with and without scaling of groups."""
SCALED = Unit(name="P3-LLM's unit, scaling groups", um2=OWN.um2 * SCALING)
"""Areas with all registers as flip-flops, sized for the clocks of HBM2: the row "sized" of
docs/p3llm/pim/pim_compute_unit.md, which also has `SCALING`."""


def share(mm2: float) -> float:
    """Return the share of the die of units of an area, with the paper's other logic."""
    return (mm2 + OTHER_MM2) / DIE_MM2


def table() -> Table:
    """Return Table VII."""
    there = {HALF.name: HBM_PIM, OWN.name: P3LLM}
    rows = []
    for unit in (HALF, OWN, SCALED):
        own = there.get(unit.name)
        rows.append(
            (
                unit.name,
                f"{unit.um2:,.0f}",
                f"{unit.mm2:.2f}",
                f"{own.mm2:.1f}" if own else "-",
                f"{unit.share:.1%}",
                f"{unit.relative_share(HALF):.1%}",
                f"{own.share:.1%}" if own else "-",
            )
        )
    return Table(
        title="Compute units on the die (Table VII)",
        columns=(
            "unit",
            "um2, 45 nm",
            "mm2 of a die",
            "paper",
            "share of the die",
            "share, in proportion to HBM-PIM's",
            "paper",
        ),
        rows=rows,
        note=(
            f"{UNITS} units per die, scaled by ({DIE_NM} / {OWN_NM})^2 and by {DENSITY} for the "
            f"DRAM process, plus the paper's other {OTHER_MM2} mm2, of {DIE_MM2:.0f} mm2. In "
            f"proportion: HBM-PIM's units have the paper's {HBM_PIM.mm2} mm2, and the other units "
            "the ratio of the netlists. The last row's netlist is calculated from the ratio of "
            "the delay-optimised units."
        ),
    )


def claims() -> list[Claim]:
    """Return the ratio of both units, the increase in points of the die, and the limit."""
    points = 100 * (P3LLM.share - HBM_PIM.share)
    ours = 100 * (OWN.relative_share(HALF) - HALF.relative_share(HALF))
    whole = 100 * (SCALED.relative_share(HALF) - HALF.relative_share(HALF))
    worst = SCALED.relative_share(HALF)
    ratio, paper_ratio = OWN.um2 / HALF.um2, P3LLM.mm2 / HBM_PIM.mm2
    return [
        Claim(
            what="area of the unit over HBM-PIM's",
            paper=f"{paper_ratio:.2f}",
            ours=f"{ratio:.2f}; scaling groups {SCALED.um2 / HALF.um2:.2f}",
            holds=_held(ratio <= paper_ratio, SCALED.um2 / HALF.um2 <= paper_ratio),
        ),
        Claim(
            what="more of the die than HBM-PIM, points",
            paper=f"{points:.1f}",
            ours=f"{ours:.1f}; scaling groups {whole:.1f}",
            holds=_held(ours <= points, whole <= points),
        ),
        Claim(
            what="logic below a quarter of the die",
            paper=f"{P3LLM.share:.1%}",
            ours=f"{OWN.relative_share(HALF):.1%}; scaling groups {worst:.1%}",
            holds=_held(OWN.relative_share(HALF) < LIMIT, worst < LIMIT),
        ),
    ]


def _held(alone: bool, scaling: bool) -> str:
    """Return the verdict for units without scaling of groups, as in the paper, and with it."""
    return {2: "yes", 1: "partly", 0: "no"}[alone + scaling]

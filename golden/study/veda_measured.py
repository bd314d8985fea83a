"""Cycles per attention head, measured by simulations of VEDA's RTL."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from golden.study.veda_cycles import AttentionCycles
from hdl.catalog import entry_named

PRESETS = ("smollm2", "paper")
ARRAY, ACCELERATOR = "flexible_pe_array", "veda"
COMMANDS = (
    f"make sim TOP={ARRAY} PRESET=paper FULL=1",
    f"make sim TOP={ACCELERATOR} PRESET=smollm2 FULL=1",
)
"""Commands that generate the result files."""


@dataclass(frozen=True, kw_only=True)
class MeasuredHead:
    """The mean cycles of one head over consecutive heads.

    Parameters
    ----------
    top, preset : str
        The simulated unit and preset.
    length : int
        Tokens attended to.
    width : int
        Multipliers for the head, equal to its number of elements.
    cycles : float
        Cycles from the head's first cycle to the next head's; in the accelerator, the head's share
        of the cycles from a layer's instruction to its last output.
    """

    top: str
    preset: str
    length: int
    width: int
    cycles: float

    @property
    def model(self) -> AttentionCycles:
        """The cycle model of a head for the same number of multipliers."""
        return AttentionCycles(width=self.width, head_size=self.width)

    @property
    def products(self) -> int:
        """Cycles of the two products."""
        return 2 * self.length

    @property
    def overhead(self) -> float:
        """Cycles in addition to the products."""
        return self.cycles - self.products


def measured_heads(build: Path) -> list[MeasuredHead]:
    """Return the results of passed simulations in `build`; skip missing and failed ones."""
    heads = []
    for top, read in ((ARRAY, _of_the_array), (ACCELERATOR, _of_the_accelerator)):
        for preset in PRESETS:
            file = build / top / preset / "sim.json"
            if file.is_file():
                result = json.loads(file.read_text(encoding="utf-8"))
                if result["passed"]:
                    heads += read(preset, result["facts"])
    return sorted(heads, key=lambda head: (head.top, head.preset, head.length))


def _of_the_array(preset: str, facts: dict[str, float]) -> Iterator[MeasuredHead]:
    array = entry_named(ARRAY).parameters(preset)
    for name, utilisation in facts.items():
        if found := re.fullmatch(r"utilisation_(\d+)(_split)?", name):
            length = int(found[1])
            yield MeasuredHead(
                top=ARRAY,
                preset=preset,
                length=length,
                width=array.plane_width if found[2] else array.width,
                cycles=2 * length / utilisation,
            )


def _of_the_accelerator(preset: str, facts: dict[str, float]) -> Iterator[MeasuredHead]:
    accelerator = entry_named(ACCELERATOR).parameters(preset)
    for name, cycles in facts.items():
        if found := re.fullmatch(r"cycles_(\d+)", name):
            yield MeasuredHead(
                top=ACCELERATOR,
                preset=preset,
                length=int(found[1]),
                width=accelerator.head_size,
                cycles=cycles / accelerator.rounds,
            )

"""The list of units: what the command line, the tests, the documentation and emission run over.

To add a unit, add an entry here and its four files: ``hdl/<paper>/<top>.py``,
``golden/<paper>/<top>.py``, ``testbenches/<paper>/tb_<top>.py``, ``tests/<paper>/test_<top>.py``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from hdl.errors import UserError
from hdl.kelle.systolic_evictor import (
    OnSaturation,
    ScoreSource,
    SystolicEvictor,
    SystolicEvictorParameters,
)
from hdl.unit import Unit


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One unit.

    Parameters
    ----------
    top : str
        Name of the unit, of its files, and of its Verilog module.
    paper : str
        The room: ``kelle``, ``veda``, ``lad``, ``p3llm``, ``meadow``, ``arith``.
    summary : str
        What it does, in one line.
    source : str
        The paper's section, figure or equation.
    latency, throughput : str
        In cycles, in words.
    unit : Callable[..., Unit]
        Component class; takes the keyword argument `parameters`.
    presets : Mapping[str, Any]
        Parameter objects by name.
    """

    top: str
    paper: str
    summary: str
    source: str
    latency: str
    throughput: str
    unit: Callable[..., Unit]
    presets: Mapping[str, Any]

    @property
    def testbench(self) -> str:
        """Module name of the testbench."""
        return f"testbenches.{self.paper}.tb_{self.top}"

    def parameters(self, preset: str) -> Any:
        """Return the parameter object of a preset.

        Raises
        ------
        UserError
            If there is none of that name.
        """
        if preset not in self.presets:
            raise UserError(_unknown(f"PRESET of {self.top}", preset, self.presets))
        return self.presets[preset]

    def build(self, preset: str) -> Unit:
        """Build the unit at a preset's dimensions."""
        return self.unit(parameters=self.parameters(preset))


CATALOG: tuple[Entry, ...] = (
    Entry(
        top="systolic_evictor",
        paper="kelle",
        summary="finds the least important cached token while its scores are computed",
        source="Section 5.3, Figure 11 (c, d)",
        latency="rows cycles from a wave's header, 1 from its last score",
        throughput="one score a row and cycle",
        unit=SystolicEvictor,
        presets={
            "tiny": SystolicEvictorParameters(
                rows=4, slots=8, index_width=3, input_width=6, score_width=4, shift=2, victims=2
            ),
            "tiny_halve": SystolicEvictorParameters(
                rows=4,
                slots=16,
                index_width=4,
                input_width=16,
                score_width=4,
                shift=12,
                on_saturation=OnSaturation.HALVE,
                victims=1,
            ),
            "smollm2": SystolicEvictorParameters(slots=128, index_width=7),
            "smollm2_prob": SystolicEvictorParameters(
                slots=128, index_width=7, shift=4, source=ScoreSource.PROB
            ),
            "paper": SystolicEvictorParameters(),
        },
    ),
)
"""Every unit."""


def entry_named(top: str) -> Entry:
    """Return the entry of a unit.

    Raises
    ------
    UserError
        If there is none of that name; the message suggests the nearest.
    """
    for entry in CATALOG:
        if entry.top == top:
            return entry
    raise UserError(_unknown("TOP", top, [entry.top for entry in CATALOG]))


def _unknown(what: str, name: str, known: Mapping[str, Any] | list[str]) -> str:
    """Word the error for an unknown name."""
    nearest = get_close_matches(name, list(known), n=1, cutoff=0.4)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"{what} must be one of {', '.join(known)}, not {name!r}{hint}"

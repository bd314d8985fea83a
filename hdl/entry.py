"""An entry of the catalog: a unit's description, presets and files."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from hdl.errors import UserError, unknown
from hdl.settings import with_settings
from hdl.unit import Unit


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One unit; the path of its class determines its name, its paper and its files in all trees.

    Parameters
    ----------
    summary : str
        Function of the unit, in one line.
    source : str
        The paper's section, figure or equation.
    unit : type[Unit]
        Component class; takes the keyword argument `parameters`.
    presets : Mapping[str, Any]
        Parameter objects by name.
    long : Collection[str]
        Presets whose simulation takes minutes or repeats another; only the full suite runs them.
    emitted : Collection[str]
        Presets that are too large to simulate: they are only emitted and linted.
    """

    summary: str
    source: str
    unit: type[Unit]
    presets: Mapping[str, Any]
    long: Collection[str] = ()
    emitted: Collection[str] = ()

    @property
    def top(self) -> str:
        """Name of the unit, of its files, and of its Verilog module."""
        return self._module.name

    @property
    def latency(self) -> str:
        """First clause of **Latency** in the unit's docstring."""
        return _clause(self.unit, "Latency")

    @property
    def throughput(self) -> str:
        """First clause of **Throughput** in the unit's docstring."""
        return _clause(self.unit, "Throughput")

    @property
    def folder(self) -> PurePosixPath:
        """The folder that contains the unit, relative to any tree: ``kelle/array``."""
        return self._module.parent

    @property
    def paper(self) -> str:
        """The first folder of the path: a paper's name or a common folder such as `nonlinear`."""
        return self.folder.parts[0]

    @property
    def testbench(self) -> str:
        """Module name of the testbench."""
        return ".".join(("testbenches", *self.folder.parts, f"tb_{self.top}"))

    @property
    def files(self) -> dict[str, PurePosixPath]:
        """The unit's file in each tree, relative to the checkout."""
        return {
            "hdl": "hdl" / self.folder / f"{self.top}.py",
            "golden": "golden" / self.folder / f"{self.top}.py",
            "testbenches": "testbenches" / self.folder / f"tb_{self.top}.py",
            "tests": "tests" / self.folder / f"test_{self.top}.py",
            "docs": "docs" / self.folder / f"{self.top}.md",
        }

    @property
    def _module(self) -> PurePosixPath:
        return PurePosixPath(*self.unit.__module__.split(".")[1:])

    def parameters(self, preset: str) -> Any:
        """Return the parameter object of a preset.

        Raises
        ------
        UserError
            If no preset has this name.
        """
        if preset not in self.presets:
            raise UserError(unknown(f"PRESET of {self.top}", preset, self.presets))
        return self.presets[preset]

    @property
    def default(self) -> str:
        """Name of the preset that a verb uses if the user selects none."""
        return "smollm2" if "smollm2" in self.presets else next(iter(self.presets))

    def dimensions(self, preset: str | None, settings: Mapping[str, Any]) -> str | Any:
        """Return a preset's name, or a parameter object if settings change the preset.

        Parameters
        ----------
        preset : str, optional
            The preset that the settings modify; `default` if it is not given.
        settings : Mapping[str, Any]
            Values by the parameters' names, see `hdl.settings`.

        Raises
        ------
        UserError
            If the preset or a parameter does not exist, or a value has the wrong type.
        ValueError
            If the values are not legal.
        """
        name = preset or self.default
        parameters = self.parameters(name)
        changed = with_settings(self.top, parameters, settings)
        return name if changed == parameters else changed

    def named(self, dimensions: str | Any) -> tuple[str, Any]:
        """Return a name and the parameter object, from a preset's name or a parameter object.

        The name for a parameter object is that of its Verilog module.

        Raises
        ------
        UserError
            If no preset has this name.
        """
        if isinstance(dimensions, str):
            return dimensions, self.parameters(dimensions)
        return self.unit.named(parameters=dimensions), dimensions

    def build(self, preset: str) -> Unit:
        """Build the unit with a preset's parameters."""
        return self.unit(parameters=self.parameters(preset))


def _clause(unit: type[Unit], name: str) -> str:
    """Return a section of a docstring up to its first semicolon or the end of its first sentence.

    Empty if the docstring has no such section.
    """
    pattern = rf"\*\*{name}\*\*\s+(.*?)(?:;|\.?\Z|\.\s|\n\s*\n)"
    section = re.search(pattern, unit.__doc__ or "", re.S)
    return " ".join(section[1].split()) if section else ""

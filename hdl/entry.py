"""What the catalog says of a unit."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from hdl.errors import UserError, unknown
from hdl.settings import with_settings
from hdl.unit import Unit


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One unit; where its class stands says its name, its paper and where its other files are.

    Parameters
    ----------
    summary : str
        What it does, in one line.
    source : str
        The paper's section, figure or equation.
    latency, throughput : str
        In cycles, in words.
    unit : type[Unit]
        Component class; takes the keyword argument `parameters`.
    presets : Mapping[str, Any]
        Parameter objects by name.
    long : Collection[str]
        Presets whose simulation takes minutes or repeats another; only the full suite runs them.
    """

    summary: str
    source: str
    latency: str
    throughput: str
    unit: type[Unit]
    presets: Mapping[str, Any]
    long: Collection[str] = ()

    @property
    def top(self) -> str:
        """Name of the unit, of its files, and of its Verilog module."""
        return self._module.name

    @property
    def room(self) -> PurePosixPath:
        """The folder that it stands in, the same in every tree: ``kelle/array``."""
        return self._module.parent

    @property
    def paper(self) -> str:
        """Whose it is: a paper's name, or that of the common floor."""
        return self.room.parts[0]

    @property
    def testbench(self) -> str:
        """Module name of the testbench."""
        return ".".join(("testbenches", *self.room.parts, f"tb_{self.top}"))

    @property
    def files(self) -> dict[str, PurePosixPath]:
        """Its file in each tree, relative to the checkout."""
        return {
            "hdl": "hdl" / self.room / f"{self.top}.py",
            "golden": "golden" / self.room / f"{self.top}.py",
            "testbenches": "testbenches" / self.room / f"tb_{self.top}.py",
            "tests": "tests" / self.room / f"test_{self.top}.py",
            "docs": "docs" / self.room / f"{self.top}.md",
        }

    @property
    def _module(self) -> PurePosixPath:
        return PurePosixPath(*self.unit.__module__.split(".")[1:])

    def parameters(self, preset: str) -> Any:
        """Return the parameter object of a preset.

        Raises
        ------
        UserError
            If there is none of that name.
        """
        if preset not in self.presets:
            raise UserError(unknown(f"PRESET of {self.top}", preset, self.presets))
        return self.presets[preset]

    @property
    def default(self) -> str:
        """Name of the preset that is taken where none is named."""
        return "smollm2" if "smollm2" in self.presets else next(iter(self.presets))

    def dimensions(self, preset: str | None, settings: Mapping[str, Any]) -> str | Any:
        """Return a preset's name, or the parameter object that settings make of it.

        Parameters
        ----------
        preset : str, optional
            Where to start; `default` if it is not given.
        settings : Mapping[str, Any]
            Values by the parameters' names, see `hdl.settings`.

        Raises
        ------
        UserError
            If there is no such preset or parameter, or a value has the wrong type.
        ValueError
            If the values are not legal.
        """
        name = preset or self.default
        parameters = self.parameters(name)
        changed = with_settings(self.top, parameters, settings)
        return name if changed == parameters else changed

    def named(self, dimensions: str | Any) -> tuple[str, Any]:
        """Return the name and the parameter object of a preset's name, or of a parameter object.

        A parameter object is named as its Verilog module is.

        Raises
        ------
        UserError
            If there is no preset of that name.
        """
        if isinstance(dimensions, str):
            return dimensions, self.parameters(dimensions)
        return self.unit.named(parameters=dimensions), dimensions

    def build(self, preset: str) -> Unit:
        """Build the unit at a preset's dimensions."""
        return self.unit(parameters=self.parameters(preset))

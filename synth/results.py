"""Reader of the JSON files that verbs write into the build directory."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Record:
    """One JSON file and its contents; empty if the file does not exist.

    `kept` marks figures of `synth.figures` instead of this build.
    """

    file: Path
    values: dict[str, Any] = field(default_factory=dict)
    kept: bool = False

    @classmethod
    def read(cls, file: Path) -> "Record":
        """Read a file if it exists."""
        return cls(file=file, values=json.loads(file.read_text()) if file.is_file() else {})


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The results of one unit at one preset.

    Parameters
    ----------
    sim, netlist_sim, fpga, mutants : Record
        Simulation of the RTL and of a netlist; FPGA devices; detection of mutants.
    synth : tuple[Record, ...]
        One record per library, sorted by name.
    """

    top: str
    preset: str
    sim: Record
    netlist_sim: Record
    fpga: Record
    mutants: Record
    synth: tuple[Record, ...]

    @property
    def name(self) -> str:
        """The unit and its preset."""
        return f"{self.top} / {self.preset}"


def collect(build: Path) -> list[Measured]:
    """Read all results below ``build/<top>/<preset>/``, sorted by name."""
    kinds = ("sim", "netlist_sim", "fpga", "mutate")
    homes = {path.parent for kind in kinds for path in build.glob(f"*/*/{kind}.json")}
    homes |= {path.parents[2] for path in build.glob("*/*/synth/*/synth.json")}
    return [
        Measured(
            top=home.parent.name,
            preset=home.name,
            sim=Record.read(home / "sim.json"),
            netlist_sim=Record.read(home / "netlist_sim.json"),
            fpga=Record.read(home / "fpga.json"),
            mutants=Record.read(home / "mutate.json"),
            synth=tuple(Record.read(path) for path in sorted(home.glob("synth/*/synth.json"))),
        )
        for home in sorted(homes)
    ]


def collect_studies(build: Path) -> dict[str, Record]:
    """Read the papers' studies below ``build/study``, by the papers' names."""
    return {file.stem: Record.read(file) for file in sorted((build / "study").glob("*.json"))}


def collect_sweeps(build: Path) -> list[Record]:
    """Read the results of `make explore` below ``build/explore``, sorted by the sweeps' names."""
    return [Record.read(file) for file in sorted((build / "explore").glob("*/explore.json"))]

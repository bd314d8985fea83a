"""The Verilog of a unit in the build directory, through the one function that all verbs use."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdl.digest import verilog_digest
from hdl.emit import Emission, EmittedModule, Port, Storage, write_verilog
from hdl.entry import Entry
from hdl.paths import BUILD
from hdl.target import Target
from hdl.verilog_names import require_module_name


@dataclass(frozen=True, kw_only=True)
class EmittedFiles:
    """A unit's Verilog on disk.

    Parameters
    ----------
    modules : tuple[EmittedModule, ...]
        What was emitted, each module before those that use it; the top is last.
    verilog : tuple[Path, ...]
        A file for each of them.
    file_list : Path
        The file that names these.
    """

    modules: tuple[EmittedModule, ...]
    verilog: tuple[Path, ...]
    file_list: Path

    @property
    def ports(self) -> tuple[Port, ...]:
        """The top module's ports."""
        return self.modules[-1].ports

    @property
    def memories(self) -> tuple[Storage, ...]:
        """The memories of all modules; a module that is used twice has them twice."""
        return tuple(memory for module in self.modules for memory in module.memories)

    @property
    def digest(self) -> str:
        """What the files describe, see `hdl.digest.verilog_digest`."""
        return verilog_digest(self.verilog)


def emit_unit(
    entry: Entry,
    dimensions: str | Any,
    target: Target = Target.ASIC,
    *,
    sources: bool = False,
    directory: Path | None = None,
    name: str | None = None,
) -> EmittedFiles:
    """Write a unit's Verilog into a folder that one process at a time writes.

    Files that say the same already are left as they are, so nobody who reads them is disturbed.

    Parameters
    ----------
    entry : Entry
        The unit.
    dimensions : str or parameter object
        A preset's name, or a parameter object of the unit; see `Entry.named`.
    target : Target
        What the Verilog is for.
    sources : bool
        Whether it names the lines of Python that it comes from.
    directory : Path, optional
        Where to; by default ``build/<top>/<preset>/rtl``, with ``_fpga``, ``_sources`` and the name
        appended where these are asked for.
    name : str, optional
        Name of the top module; the unit's by default.

    Raises
    ------
    UserError
        If there is no such preset.
    ValueError
        If the name is none in Verilog, or that of another module of the design.
    """
    name = entry.top if name is None else name
    require_module_name(name)
    ending = "" if name == entry.top else f"_{name}"
    folder = f"{target.folder}{'_sources' * sources}{ending}"
    preset, parameters = entry.named(dimensions)
    directory = directory or BUILD / entry.top / preset / folder
    unit = entry.unit(parameters=parameters)
    emission = Emission(top=unit, name=name, target=target, sources=sources)
    *verilog, file_list = write_verilog(emission, directory)
    return EmittedFiles(
        modules=tuple(emission.modules), verilog=tuple(verilog), file_list=file_list
    )

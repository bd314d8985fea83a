"""The function with which every verb writes a unit's Verilog into the build directory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdl.digest import verilog_digest
from hdl.emit import Emission, EmittedModule, Port, Storage, write_verilog
from hdl.entry import Entry
from hdl.manifest import manifest, write_documents
from hdl.paths import BUILD
from hdl.target import Target
from hdl.verilog_names import require_module_name


@dataclass(frozen=True, kw_only=True)
class EmittedFiles:
    """A unit's Verilog on disk.

    Parameters
    ----------
    modules : tuple[EmittedModule, ...]
        The emitted modules, each before those that instantiate it; the top is last.
    verilog : tuple[Path, ...]
        The Verilog file of each module, in the same order.
    file_list : Path
        The file that lists the Verilog files.
    documents : tuple[Path, ...]
        The manifest ``<top>.json``, the C header and the SystemVerilog package.
    """

    modules: tuple[EmittedModule, ...]
    verilog: tuple[Path, ...]
    file_list: Path
    documents: tuple[Path, ...]

    @property
    def ports(self) -> tuple[Port, ...]:
        """The top module's ports."""
        return self.modules[-1].ports

    @property
    def memories(self) -> tuple[Storage, ...]:
        """The memories of all modules; a module with two instances contributes its own once."""
        return tuple(memory for module in self.modules for memory in module.memories)

    @property
    def digest(self) -> str:
        """The digest of the files' structure, see `hdl.digest.verilog_digest`."""
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
    """Write a unit's Verilog and manifest into a folder, under a lock that excludes other writers.

    Files whose content does not change keep their time stamps, so concurrent readers and
    incremental builds are not affected.

    Parameters
    ----------
    entry : Entry
        The unit.
    dimensions : str or parameter object
        A preset's name, or a parameter object of the unit; see `Entry.named`.
    target : Target
        The technology that the Verilog is optimised for.
    sources : bool
        Whether `src` attributes in the Verilog refer to the lines of Python that generate it.
    directory : Path, optional
        Output folder; by default ``build/<top>/<preset>/rtl``, to which ``_fpga``, ``_sources`` and
        the name are appended if they are selected.
    name : str, optional
        Name of the top module; the unit's by default.

    Raises
    ------
    UserError
        If the preset does not exist.
    ValueError
        If the name is not legal in Verilog, or another module of the design has it.
    """
    name = entry.top if name is None else name
    require_module_name(name)
    ending = "" if name == entry.top else f"_{name}"
    folder = f"{target.folder}{'_sources' * sources}{ending}"
    preset, parameters = entry.named(dimensions)
    directory = directory or BUILD / entry.top / preset / folder
    unit = entry.unit(parameters=parameters)
    emission = Emission(top=unit, name=name, target=target, sources=sources)
    written: dict[str, str] = {}

    def documents(files: Sequence[Path]) -> Mapping[str, str]:
        values = manifest(
            entry=entry,
            preset=dimensions if isinstance(dimensions, str) else None,
            parameters=parameters,
            target=target,
            modules=emission.modules,
            verilog=files,
        )
        written.update(write_documents(values, emission.modules[-1].interface))
        return written

    *verilog, file_list = write_verilog(emission, directory, documents)
    return EmittedFiles(
        modules=tuple(emission.modules),
        verilog=tuple(verilog),
        file_list=file_list,
        documents=tuple(directory / name for name in written),
    )

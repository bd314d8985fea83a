"""A mapped design: its memories, and the costs of its modules."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synth.liberty import Library


@dataclass(frozen=True, kw_only=True)
class Memory:
    """One memory, which is not mapped to cells and can be replaced by an SRAM macro.

    Parameters
    ----------
    name : str
        The memory's path below the module.
    module : str
        Verilog module of the netlist that contains only this memory.
    words, width : int
        Number of words, and bits per word.
    read_ports, write_ports : int
        Number of ports.
    synchronous : bool
        Whether every read is clocked.
    instances : int
        Number of instances in the design.
    """

    name: str
    module: str
    words: int
    width: int
    read_ports: int
    write_ports: int
    synchronous: bool
    instances: int = 1

    @property
    def bits(self) -> int:
        """Bits of one instance."""
        return self.words * self.width


@dataclass(frozen=True, kw_only=True)
class ModuleArea:
    """The costs of one module, without its submodules.

    `below` contains the number of submodules in one instance, by name.
    """

    name: str
    instances: int
    area_um2: float
    sequential_um2: float
    cells: int
    flops: int
    memory_bits: int
    below: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Netlist:
    """A mapped design.

    Parameters
    ----------
    top : str
        The top module.
    library : Library
        The cells.
    recipe : str
        The recipe of the mapping.
    target_ps : float or None
        The target delay of sizing.
    directory : Path
        Folder of the files.
    stem : str
        Stem of its files: ``.v`` netlist, ``.sta.v`` the same without memories, ``.json`` the
        netlist with its attributes, ``.log``.
    modules : tuple[ModuleArea, ...]
        Costs, the top first; one module if the design was flattened.
    memories : tuple[Memory, ...]
        The memories, which the areas exclude.
    abc_delay_ps : float
        Longest combinational path inside one module, by ABC; 0 if there is no logic.
    """

    top: str
    library: Library
    recipe: str
    target_ps: float | None
    directory: Path
    stem: str
    modules: tuple[ModuleArea, ...]
    memories: tuple[Memory, ...]
    abc_delay_ps: float
    cell_counts: dict[str, int] = field(repr=False)

    @property
    def verilog(self) -> Path:
        """The netlist, with memories as behavioural modules."""
        return self.directory / f"{self.stem}.v"

    @property
    def area_um2(self) -> float:
        """Area of all cells; logic only, SRAM excluded."""
        return sum(module.area_um2 * module.instances for module in self.modules)

    @property
    def sequential_um2(self) -> float:
        """Area of the flip-flops."""
        return sum(module.sequential_um2 * module.instances for module in self.modules)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return sum(module.cells * module.instances for module in self.modules)

    @property
    def flops(self) -> int:
        """Number of flip-flops."""
        return sum(module.flops * module.instances for module in self.modules)

    @property
    def memory_bits(self) -> int:
        """Bits in memories."""
        return sum(memory.bits * memory.instances for memory in self.memories)


def count_cells(
    statistics: dict[str, Any], top: str, library: Library, memories: tuple[Memory, ...]
) -> tuple[tuple[ModuleArea, ...], tuple[Memory, ...], dict[str, int]]:
    """Convert Yosys's statistics to costs per module, and count instances from the top down."""
    cells = {
        name.removeprefix("\\"): content["num_cells_by_type"]
        for name, content in statistics["modules"].items()
    }
    instances: dict[str, int] = {}

    def count(module: str, times: int) -> None:
        instances[module] = instances.get(module, 0) + times
        for cell, number in cells[module].items():
            if cell in cells:
                count(cell, times * number)

    count(top, 1)
    by_module = {memory.module: memory for memory in memories}
    kept = tuple(
        Memory(**{**vars(memory), "instances": instances.get(memory.module, 0)})
        for memory in memories
    )
    modules, total = [], {}
    for module, times in instances.items():
        if module in by_module:
            continue
        used = {name: number for name, number in cells[module].items() if name in library.cells}
        flops = {name: number for name, number in used.items() if library.cells[name].state}
        for name, number in used.items():
            total[name] = total.get(name, 0) + number * times
        modules.append(
            ModuleArea(
                name=module,
                instances=times,
                area_um2=sum(library.cells[name].area * n for name, n in used.items()),
                sequential_um2=sum(library.cells[name].area * n for name, n in flops.items()),
                cells=sum(used.values()),
                flops=sum(flops.values()),
                memory_bits=sum(
                    by_module[cell].bits * number
                    for cell, number in cells[module].items()
                    if cell in by_module
                ),
                below={
                    cell: number
                    for cell, number in cells[module].items()
                    if cell in cells and cell not in by_module
                },
            )
        )
    return tuple(modules), kept, total

"""Proof that a mutant of a flat design is equivalent to the original at the ports.

Equivalent means that no sequence of inputs from a zeroed state causes a difference at the ports; a
payload counts only while it is valid. Most equivalent mutants compute the same next state from the
same state, which combinational equivalence checking proves within 1 s. The rest is given to
induction and property-directed reachability.

These methods are first applied to the mutated module alone, with arbitrary inputs: it is small. If
an input causes a difference, the enclosing module may never apply that input, so it is tried next.
Each module is tried with its other submodules removed: if nothing that is sent to a submodule ever
differs, then the submodule's outputs do not differ either. Small submodules may ignore some of
their inputs, so a second try keeps them. Results are cached, because an improved testbench is run
with the same mutants again.
"""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path

from hdl.emit import Port
from hdl.paths import BUILD, replace_text
from hdl.yosys import abc, run_yosys

PROOF_SECONDS = 20
"""Processor time limit of each step, in seconds."""

SMALL = 100
"""Maximum number of cells of a submodule that the second try keeps."""

LARGEST = 700_000
"""Maximum number of gates of a design to compare: with more, no step finishes in time."""


def lower(
    top: str,
    ports: Sequence[Port],
    design: Path,
    folder: Path,
    *commands: str,
    streams: bool = True,
) -> None:
    """Write a design as gates and registers.

    Parameters
    ----------
    top : str
        Name of the top module.
    ports : Sequence[Port]
        Its ports.
    design : Path
        File of the flat design.
    folder : Path
        Directory of the output, ``gates.aig``.
    *commands : str
        Yosys commands to apply to the design first, such as a mutation.
    streams : bool
        Let a payload count only while it is valid, as at the ports of the whole design.
    """
    names = [port.name for port in ports]
    outputs = {port.name: port.width for port in ports if port.direction == "output"}
    # A payload without `valid` is don't-care.
    valid = {name: f"{name.removesuffix('_payload')}_valid" for name in outputs}
    shown = {
        name: f"{valid[name]} ? {name} : 0" if streams and valid[name] in names else _escaped(name)
        for name in outputs
    }
    ends = [*names, *(f"{name}_shown" for name in shown)]
    lines = [f"module observed({', '.join(map(_escaped, ends))});"]
    lines += [f"  {port.direction} [{port.width - 1}:0] {_escaped(port.name)};" for port in ports]
    for name, value in shown.items():
        lines.append(f"  output [{outputs[name] - 1}:0] {_escaped(f'{name}_shown')};")
        lines.append(f"  assign {_escaped(f'{name}_shown')} = {value};")
    connections = (f".{_escaped(name)}({_escaped(name)})" for name in names)
    lines += [f"  {top} core({', '.join(connections)});", "endmodule"]
    (folder / "observed.v").write_text("\n".join(lines) + "\n")
    run_yosys(
        [
            f"read_rtlil {design.resolve()}",
            *commands,
            "read_verilog observed.v",
            *(f"delete -port observed/{name}" for name in shown),
            "hierarchy -top observed",
            "proc",
            "flatten",
            "memory_map",
            "async2sync",
            "techmap",
            "opt_expr",
            "setundef -zero -undriven -init",
            "dffunmap",
            "simplemap",
            "aigmap",
            "opt_clean",
            "write_aiger -zinit gates.aig",
        ],
        directory=folder,
        log=folder / "gates.log",
    )


def _escaped(name: str) -> str:
    """Return a name as an escaped Verilog identifier."""
    return f"\\{name} "


def compare(
    top: str, ports: Sequence[Port], command: str, directory: Path, number: int
) -> tuple[bool, str]:
    """Try to prove that a mutant of the flat design is equivalent to it at the ports.

    Parameters
    ----------
    top : str
        Name of the top module.
    ports : Sequence[Port]
        Its ports.
    command : str
        Yosys command that mutates the design.
    directory : Path
        Directory of ``flat.il``, the hierarchical ``design.il``, and ``gates.aig``.
    number : int
        Number of the mutant.

    Returns
    -------
    tuple[bool, str]
        Whether it is proven equivalent, and a description of the result.
    """
    # The cache key covers the design, the mutation and this file, but no source line numbers.
    design = re.sub(r"attribute .src .*\n", "", (directory / "flat.il").read_text())
    mutation = re.sub(r" -src \S+", "", command)
    texts = json.dumps([design, str(ports), mutation, Path(__file__).read_text()])
    known = BUILD / "proofs" / f"{hashlib.sha256(texts.encode()).hexdigest()}.json"
    if known.exists():
        equal, words = json.loads(known.read_text())
        return equal, words
    folder = directory / f"proof_{number}"
    folder.mkdir()
    try:
        equal, words = _module_proof(top, command, directory, folder)
        if not equal and _size(directory / "gates.aig")[1] <= LARGEST:
            lower(top, ports, directory / "flat.il", folder, command)
            equal, words = _proof(folder, directory / "gates.aig")
    finally:
        shutil.rmtree(folder)
    result = equal, words or "too large to compare"
    replace_text(known, json.dumps(result))
    return result


@dataclass(frozen=True)
class Around:
    """A module that encloses a mutated cell.

    Members
    -------
    module : str
        Name of the module.
    change : str
        Yosys command that mutates it after its submodules are flattened.
    inside : tuple[str, ...]
        Modules inside this one that also enclose the cell.
    """

    module: str
    change: str
    inside: tuple[str, ...]


def modules_around(top: str, command: str, design: Path) -> list[Around]:
    """Return the modules that enclose a mutated cell, innermost first.

    Parameters
    ----------
    top : str
        Name of the top module.
    command : str
        Yosys command that mutates the flat design.
    design : Path
        File of the hierarchical design.
    """
    # The wire names are informative only, and refer to the flat design.
    command = re.sub(r" -(wire|wirebit|src) \S+", "", command)
    place = re.search(r"-cell \$flatten\\(\S+)\.(\$\S+)", command)
    if not place:
        return [Around(top, command, ())]
    text = "\n" + design.read_text()
    instances = place[1].split(".\\")
    modules = [top]
    for instance in instances:
        inside = text.index(f"\nmodule \\{modules[-1]}\n")
        found = re.compile(rf"^  cell \\(\S+) \\{re.escape(instance)}$", re.M).search(text, inside)
        assert found
        modules.append(found[1])
    around = []
    for depth in range(len(instances), -1, -1):
        names = [f"\\{instance}" for instance in instances[depth:]]
        cell = ".".join([f"$flatten{names[0]}", *names[1:], place[2]]) if names else place[2]
        change = command.replace(f"-module {top} ", f"-module {modules[depth]} ")
        change = re.sub(r"-cell \S+", lambda _, cell=cell: f"-cell {cell}", change)
        around.append(Around(modules[depth], change, tuple(modules[depth + 1 :])))
    return around


def write_module(
    top: str, module: str, design: Path, folder: Path, inside: Sequence[str] | None = None
) -> None:
    """Write a module of a design with its submodules, flattened, as ``module.il``.

    With `inside`, submodules that are not named there are removed: signals to them become outputs,
    and signals from them become inputs.
    """
    # Process the whole design first, so that cells have the names that the mutation uses.
    commands = [f"read_rtlil {design.resolve()}", f"hierarchy -top {top}", "proc", "memory_collect"]
    if inside is not None:
        commands.append("setattr -mod -set keep_hierarchy 1 *")
        commands += [f"setattr -mod -unset keep_hierarchy {one}" for one in (module, *inside)]
    commands += [f"hierarchy -top {module}", "flatten"]
    if inside is not None:
        commands += [f"expose -evert {module}/c:*", f"hierarchy -top {module}"]
    run_yosys([*commands, "opt_clean", "write_rtlil module.il"], directory=folder)


def _module_proof(top: str, command: str, directory: Path, folder: Path) -> tuple[bool, str]:
    """Compare the modules that enclose the mutated cell, innermost first, with arbitrary inputs.

    If none is small enough, the description is empty.
    """
    design = directory / "design.il"
    around = modules_around(top, command, design)
    for kept in ((), _small_parts(design)):
        for one in around:
            equal, words = _one_module(top, one, design, folder, kept)
            if equal:
                return True, words
    equal, words = False, ""
    for one in around[:-1]:
        equal, result = _one_module(top, one, design, folder, None)
        words = result or words
        if equal or not result.startswith("some"):
            # If a module is inconclusive, its enclosing modules are even larger.
            break
    return equal, words


def _small_parts(design: Path) -> tuple[str, ...]:
    """Return the modules with few cells, counted with their submodules, and without memories."""
    modules = dict(re.findall(r"^module \\(\S+)\n(.*?)^end$", design.read_text(), re.M | re.S))

    @cache
    def cells(module: str) -> float:
        text = modules[module]
        inside = re.findall(r"^  cell \\(\S+) ", text, re.M)
        if "cell $mem" in text:
            return inf
        return len(re.findall(r"^  cell \$", text, re.M)) + sum(map(cells, inside))

    return tuple(module for module in modules if cells(module) <= SMALL)


def _one_module(
    top: str, around: Around, design: Path, folder: Path, kept: Sequence[str] | None
) -> tuple[bool, str]:
    """Compare a module of a design with its mutated version.

    With `kept`, all submodules but these are removed.
    """
    module, change = around.module, around.change
    inside = None if kept is None else (*around.inside, *kept)
    write_module(top, module, design, folder, inside)
    wire = re.compile(r"^  wire (?:width (\d+) )?(input|output) \d+ \\(\S+)$", re.M)
    ports = [
        Port((name,), direction, int(width or 1))
        for width, direction, name in wire.findall((folder / "module.il").read_text())
    ]
    # Inside a design, a module may read a payload that is not valid.
    lower(module, ports, folder / "module.il", folder, streams=False)
    original = (folder / "gates.aig").rename(folder / "module.aig")
    if _size(original)[1] > LARGEST:
        return False, ""
    lower(module, ports, folder / "module.il", folder, change, streams=False)
    equal, words = _proof(folder, original)
    return equal, words.replace("no input ever", "no input of a module around it ever")


def _size(design: Path) -> tuple[int, int]:
    """Return the numbers of latches and gates of an AIGER file: ``aig M I L O A`` is its header."""
    with design.open("rb") as file:
        _aig, _m, _i, latches, _o, gates, *_more = file.readline().split()
    return int(latches), int(gates)


def _proof(folder: Path, original: Path) -> tuple[bool, str]:
    """Compare the gates in a folder with the original's, with the fastest method first."""
    shutil.copy(original, folder / "original.aig")
    # Both sides have their registers in the same order: each becomes an input and an output.
    read = "read {0}.aig; comb; write_aiger {0}_next.aig"
    both = "; ".join(read.format(side) for side in ("original", "gates"))
    if "are equivalent" in _abc(f"{both}; cec original_next.aig gates_next.aig", folder):
        return True, "no input ever shows a difference"
    # Induction merges most signals of the two sides; the remaining miter is small.
    _abc("miter original.aig gates.aig; write_aiger miter.aig", folder)
    _abc("read miter.aig; scorr; write_aiger merged.aig", folder)
    merged = "merged.aig" if (folder / "merged.aig").exists() else "miter.aig"
    # Without a latch (L), a SAT problem remains.
    latches, _gates = _size(folder / merged)
    proof = _abc(f"read {merged}; {'pdr' if latches else 'sat'}", folder)
    if re.search(r"Property proved|UNSATISFIABLE", proof):
        return True, "no input ever shows a difference"
    if "SATISFIABLE" in proof:
        return False, "some input shows a difference at once"
    if seen := re.search(r"asserted in frame (\d+)", proof):
        return False, f"some input shows a difference after {seen[1]} cycles"
    return False, f"neither a proof nor a difference in {PROOF_SECONDS} s of a processor"


def _abc(commands: str, folder: Path) -> str:
    """Run ABC and return its output; terminate it after `PROOF_SECONDS`."""
    # Limit the processor time, which does not depend on the load of the machine.
    limited = f'ulimit -t {PROOF_SECONDS}; exec "$0" -c "$1"'
    run = subprocess.run(
        ["sh", "-c", limited, str(abc()), commands],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout

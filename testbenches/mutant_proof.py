"""Whether a mutant of a flat design is equal to it at the ports.

Equal means that no sequence of inputs from a zeroed state ever shows a difference at the ports,
where a payload counts while it is valid. Most equal mutants compute the same next state from the
same state, which combinational equivalence proves in a second; what is left goes to induction and
property-directed reachability. These are tried with the mutated module by itself first, for which
all inputs are possible: it is small. Where an input shows a difference, the module around it may
never give that input, and is tried next. All that is beside the mutated module is cut out before it
is tried as it is: if nothing that goes to a part ever differs, whatever comes from it, nothing does
with the part. Small parts may look at less than they are given: in a second try they stay. A
testbench that is made sharper is tried with the same mutants again: what is known of them is kept.
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
"""Of a processor, for each step."""

SMALL = 100
"""Cells of a part that stays beside a mutant, in the design with modules."""

LARGEST = 700_000
"""Gates of a design that is compared: with more, no step ends in its time."""


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
        The unit.
    ports : Sequence[Port]
        Its ports.
    design : Path
        The design without modules.
    folder : Path
        Where ``gates.aig`` goes.
    *commands : str
        What is done to the design before, such as a mutation.
    streams : bool
        Whether a payload counts while it is valid only, as at the ports of the whole.
    """
    names = [port.name for port in ports]
    outputs = {port.name: port.width for port in ports if port.direction == "output"}
    # What a payload says while it is not valid is nobody's business.
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
    """Return a name that Verilog takes, whatever is in it."""
    return f"\\{name} "


def compare(
    top: str, ports: Sequence[Port], command: str, directory: Path, number: int
) -> tuple[bool, str]:
    """Try to prove that one mutant of the flat design equals it at the ports.

    Parameters
    ----------
    top : str
        The unit.
    ports : Sequence[Port]
        Its ports.
    command : str
        Mutates the design.
    directory : Path
        Where ``flat.il``, the modules' ``design.il`` and ``gates.aig`` are.
    number : int
        The mutant's.

    Returns
    -------
    tuple[bool, str]
        Whether it is proven equal, and what is known.
    """
    # What is proven depends on the design, the mutation, and how it is tried; on no line of Python.
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
    """A module around a mutated cell.

    Members
    -------
    module : str
        Its name.
    change : str
        Mutates it when the modules inside are part of it.
    inside : tuple[str, ...]
        Modules around the cell that are in this one.
    """

    module: str
    change: str
    inside: tuple[str, ...]


def modules_around(top: str, command: str, design: Path) -> list[Around]:
    """Return the modules around a mutated cell, innermost first.

    Parameters
    ----------
    top : str
        The unit.
    command : str
        Mutates the design without modules.
    design : Path
        The design with modules.
    """
    # It names a wire of the whole, for those who read it.
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
    """Write a module of a design, and all that is in it, as ``module.il``.

    With `inside` the modules that are not named there are cut out: what goes to them goes out, and
    what comes from them comes from outside.
    """
    # The whole is processed first, so that cells have the names that the mutation knows.
    commands = [f"read_rtlil {design.resolve()}", f"hierarchy -top {top}", "proc", "memory_collect"]
    if inside is not None:
        commands.append("setattr -mod -set keep_hierarchy 1 *")
        commands += [f"setattr -mod -unset keep_hierarchy {one}" for one in (module, *inside)]
    commands += [f"hierarchy -top {module}", "flatten"]
    if inside is not None:
        commands += [f"expose -evert {module}/c:*", f"hierarchy -top {module}"]
    run_yosys([*commands, "opt_clean", "write_rtlil module.il"], directory=folder)


def _module_proof(top: str, command: str, directory: Path, folder: Path) -> tuple[bool, str]:
    """Compare the modules around the mutated cell, innermost first, whatever they are given.

    Where none is small enough, nothing is said.
    """
    design = directory / "design.il"
    around = modules_around(top, command, design)
    for beside in ((), _small_parts(design)):
        for one in around:
            equal, words = _one_module(top, one, design, folder, beside)
            if equal:
                return True, words
    equal, words = False, ""
    for one in around[:-1]:
        equal, told = _one_module(top, one, design, folder, None)
        words = told or words
        if equal or not told.startswith("some"):
            # What is around a module of which nothing can be said is larger still.
            break
    return equal, words


def _small_parts(design: Path) -> tuple[str, ...]:
    """Return the modules of few cells, with those of all that is in them, and without memories."""
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
    top: str, around: Around, design: Path, folder: Path, beside: Sequence[str] | None
) -> tuple[bool, str]:
    """Compare a module of a design with what a command makes of it.

    With `beside` all parts but these are cut out.
    """
    module, change = around.module, around.change
    inside = None if beside is None else (*around.inside, *beside)
    write_module(top, module, design, folder, inside)
    wire = re.compile(r"^  wire (?:width (\d+) )?(input|output) \d+ \\(\S+)$", re.M)
    ports = [
        Port((name,), direction, int(width or 1))
        for width, direction, name in wire.findall((folder / "module.il").read_text())
    ]
    # Who is inside may look at a payload that is not valid.
    lower(module, ports, folder / "module.il", folder, streams=False)
    original = (folder / "gates.aig").rename(folder / "module.aig")
    if _size(original)[1] > LARGEST:
        return False, ""
    lower(module, ports, folder / "module.il", folder, change, streams=False)
    equal, words = _proof(folder, original)
    return equal, words.replace("no input ever", "no input of a module around it ever")


def _size(design: Path) -> tuple[int, int]:
    """Return the latches and gates of an AIGER file: ``aig M I L O A`` is its first line."""
    with design.open("rb") as file:
        _aig, _m, _i, latches, _o, gates, *_more = file.readline().split()
    return int(latches), int(gates)


def _proof(folder: Path, original: Path) -> tuple[bool, str]:
    """Compare the gates in a folder with the original's, by the cheapest means first."""
    shutil.copy(original, folder / "original.aig")
    # Registers are in one order on both sides: each becomes an input and an output.
    read = "read {0}.aig; comb; write_aiger {0}_next.aig"
    both = "; ".join(read.format(side) for side in ("original", "gates"))
    if "are equivalent" in _abc(f"{both}; cec original_next.aig gates_next.aig", folder):
        return True, "no input ever shows a difference"
    # Most signals of the two sides are alike, by induction; what is left is small.
    _abc("miter original.aig gates.aig; write_aiger miter.aig", folder)
    _abc("read miter.aig; scorr; write_aiger merged.aig", folder)
    merged = "merged.aig" if (folder / "merged.aig").exists() else "miter.aig"
    # Without a latch (L) nothing has to be reached.
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
    """Run ABC, and return what it says; it is ended after `PROOF_SECONDS`."""
    # The processor's time, which a busy machine does not shorten.
    limited = f'ulimit -t {PROOF_SECONDS}; exec "$0" -c "$1"'
    told = subprocess.run(
        ["sh", "-c", limited, str(abc()), commands],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout

"""The digest of each unit's present Verilog, kept in `docs/digests.json`.

A figure of `docs/figures.json` carries the digest of the Verilog that it was measured on. A page
marks the figure where that is not the digest of the present Verilog. Emission of all units takes
long, so the digests are kept in a file, which ``make digests`` brings up to date.

No emission is needed to prove that the file is up to date. Each digest is kept with a key of all
that decides it: the code of the modules that the unit imports, the parameters, and the versions of
Amaranth and Yosys. An equal key proves that the digest is that of the present Verilog. Another key
proves nothing, since most changes of the sources leave a unit's Verilog as it is.
"""

import ast
import hashlib
import io
import json
import tempfile
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeGuard

from hdl.emitted import emit_unit
from hdl.entry import Entry
from hdl.paths import BUILD, ROOT, locked, replace_text
from hdl.target import Target
from synth.figures import DEVICES, LIBRARIES, NETLIST_PRESET, Figures
from synth.json_rows import json_rows

DIGESTS = ROOT / "docs" / "digests.json"

MARK = "†"
"""Mark on pages for figures that were measured on other than the present Verilog."""

TABLES = (*LIBRARIES, *DEVICES, "netlists", "mutants", "simulations")
"""Tables of `synth.figures.Figures` whose figures carry a digest."""

EMITTERS = ("hdl.emitted", "hdl.digest")
"""Modules that affect the digests of all units."""

TOOLS = ("amaranth", "pyosys")
"""Packages whose versions affect digests."""


@dataclass(frozen=True)
class Form:
    """A preset and the target of its Verilog."""

    preset: str
    target: Target

    @property
    def name(self) -> str:
        """The key in `DIGESTS`."""
        return f"{self.preset} {self.target.value}"


SMALLEST = Form(NETLIST_PRESET, Target.ASIC)
"""The form for which every unit has a digest, and which the default test suite emits."""


@dataclass(frozen=True, kw_only=True)
class Digest:
    """The digest of one form of a unit.

    Parameters
    ----------
    verilog : str
        Result of `hdl.digest.verilog_digest`.
    parameters : str
        Digest of the preset's parameters.
    sources : str
        Digest of the sources and the tools.
    """

    verilog: str
    parameters: str
    sources: str


Digests = dict[str, dict[str, Digest]]
"""Digests by unit and name of the form."""


def kept_digests(file: Path = DIGESTS) -> Digests:
    """Return the contents of `docs/digests.json`."""
    tables = json.loads(file.read_text()) if file.exists() else {}
    return {
        top: {name: Digest(**values) for name, values in forms.items()}
        for top, forms in tables.items()
    }


def form_of(table: str, figure: Mapping[str, Any]) -> Form:
    """Return the form that a figure of a table of `synth.figures.Figures` was measured on."""
    return Form(figure["preset"], Target.FPGA if table in DEVICES else Target.ASIC)


def forms_of(top: str, figures: Figures) -> list[Form]:
    """Return the forms of a unit that need a digest: `SMALLEST`, and those with figures."""
    measured = (
        form_of(table, figures[table][top]) for table in TABLES if top in figures.get(table, {})
    )
    return list(dict.fromkeys((SMALLEST, *measured)))


def is_old(top: str, form: Form, verilog: str, digests: Digests) -> bool:
    """Return whether a digest differs from that of the unit's present Verilog.

    Parameters
    ----------
    top : str
        The unit.
    form : Form
        Preset and target.
    verilog : str
        The digest of the Verilog that was measured.
    digests : Digests
        Digests of the present Verilog; a unit or form without one counts as changed.
    """
    present = digests.get(top, {}).get(form.name)
    return present is None or present.verilog != verilog


def parameters_key(entry: Entry, preset: str) -> str:
    """Return a digest of a preset's parameters."""
    return _hash([repr(entry.parameters(preset))])


def sources_key(entry: Entry, preset: str) -> str:
    """Return a digest of all sources that determine a unit's Verilog, and of tools' versions."""
    modules = {entry.unit.__module__, type(entry.parameters(preset)).__module__, *EMITTERS}
    tools = (f"{tool} {version(tool)}" for tool in TOOLS)
    return _hash([*tools, *(code for _, code in sorted(imported(modules).items()))])


def imported(modules: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """Return the modules of `hdl` that modules import, directly or indirectly, with digests.

    Parameters
    ----------
    modules : Iterable[str]
        Names of modules, which are part of the result.
    root : pathlib.Path
        The folder that contains the package `hdl`.

    Returns
    -------
    dict[str, str]
        By name the digest of the module's code, without docstrings and comments.
    """
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        file = _file(root, name)
        if name not in found and file is not None:
            found[name], imports = _read(file)
            # Python runs the package of a module first.
            waiting += [name.rpartition(".")[0], *imports]
    return found


def renew(
    entries: Iterable[Entry],
    figures: Figures,
    progress: Callable[[str], None],
    file: Path = DIGESTS,
) -> list[str]:
    """Emit each form of a unit whose key differs, and write its digest.

    The file is written after each unit, so that an interruption loses the work of one unit.

    Parameters
    ----------
    entries : Iterable[Entry]
        The units.
    figures : Figures
        The units' figures, which determine the forms that need a digest.
    progress : Callable
        Called with each unit and form that is emitted.
    file : pathlib.Path
        The file to update.

    Returns
    -------
    list[str]
        The units and forms whose digest is new or has changed.
    """
    changed = []
    for entry in entries:
        before = kept_digests(file).get(entry.top, {})
        forms = {
            form.name: renewed(entry, form, [before], progress)
            for form in forms_of(entry.top, figures)
        }
        changed += [
            f"{entry.top} / {name}"
            for name, digest in forms.items()
            if name not in before or before[name].verilog != digest.verilog
        ]
        # Another process may have written other units since the file was read.
        with locked(BUILD / "digests.lock"):
            write_digests({**kept_digests(file), entry.top: forms}, file)
    return changed


def present_digest(entry: Entry, form: Form) -> str:
    """Emit a unit and return the digest of its Verilog."""
    with tempfile.TemporaryDirectory() as folder:
        return emit_unit(entry, form.preset, form.target, directory=Path(folder)).digest


def renewed(
    entry: Entry,
    form: Form,
    known: Iterable[Mapping[str, Digest]],
    progress: Callable[[str], None],
) -> Digest:
    """Return the first known digest of a form that has the present key; emit the form without one.

    Parameters
    ----------
    entry : Entry
        The unit.
    form : Form
        The form.
    known : Iterable[Mapping[str, Digest]]
        Known digests of the unit by the form's name.
    progress : Callable
        Called with the unit and form that is emitted.
    """
    parameters, sources = parameters_key(entry, form.preset), sources_key(entry, form.preset)
    for digests in known:
        own = digests.get(form.name)
        if own is not None and (own.parameters, own.sources) == (parameters, sources):
            return own
    progress(f"{entry.top} / {form.name}")
    return Digest(verilog=present_digest(entry, form), parameters=parameters, sources=sources)


def write_digests(digests: Digests, file: Path) -> None:
    """Write one line per digest, so that two branches rarely change the same line."""
    units = {
        top: {name: vars(own) for name, own in forms.items()}
        for top, forms in sorted(digests.items())
    }
    replace_text(file, json_rows(units, 2) + "\n")


@cache
def _file(root: Path, name: str) -> Path | None:
    """Return the file of a module of `hdl`, or None of any other name."""
    if name.split(".")[0] != "hdl":
        return None
    path = root.joinpath(*name.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


@cache
def _read(file: Path) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a module's code, and the names that it may import."""
    text = file.read_text()
    tree = ast.parse(text)
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # A name imported from a package may be one of its modules; other names have no file.
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return _hash(_code(text, tree)), tuple(names)


def _code(text: str, tree: ast.Module) -> Iterator[str]:
    """Yield the lines of a module without comments, docstrings and blank lines.

    The lines are those of the file and not of `ast.dump`, whose form depends on Python's version.
    """
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(tree):
        if _is_text(node):
            for row in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[row - 1] = ""
    return (line.rstrip() for line in lines if line.strip())


def _is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Return whether a statement is only a string: a docstring of a module, unit or member."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]

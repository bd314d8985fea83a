"""The digest of the code that computes a result, for the keys of cached files.

The digest follows the import statements. A list of source files or a version number that an author
maintains by hand misses the change that the author forgets.
"""

import ast
import hashlib
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from modulefinder import Module, ModuleFinder
from pathlib import Path

from hdl.paths import ROOT

TREES = ("hdl", "golden", "testbenches", "synth", "systola")
"""The packages whose sources the digest covers; of all other packages it covers the version."""


class _Finder(ModuleFinder):
    """Finds the imports of modules of `TREES`, also those inside functions, and runs no module."""

    def __init__(self, without: tuple[str, ...]) -> None:
        super().__init__(path=[str(ROOT)])
        self._without = without

    def import_module(self, partname: str, fqname: str, parent: Module) -> Module | None:
        return None if fqname in self._without else super().import_module(partname, fqname, parent)

    def find_module(self, name: str, path: str | None, parent: Module | None = None) -> object:
        if path is None and name not in TREES:
            raise ImportError(name)
        return super().find_module(name, path, parent)


def imported_modules(*modules: str, without: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the modules that `code_digest` covers.

    Raises
    ------
    ImportError
        If `TREES` does not contain one of the modules.
    """
    return frozenset(_followed(modules, without).modules)


@cache
def code_digest(*modules: str, without: tuple[str, ...] = ()) -> str:
    """Return the SHA-256 of modules, of their imports within `TREES`, and of packages' versions.

    Comments, docstrings and the layout of lines are not part of the digest, so that a change of
    prose keeps what was computed.

    Parameters
    ----------
    modules
        Full names, such as ``"golden.veda.whole_model"``.
    without
        Modules that are not followed, because the key covers their effect in another way.

    Raises
    ------
    ImportError
        If `TREES` does not contain one of the modules.
    """
    finder = _followed(modules, without)
    digest = hashlib.sha256(sys.version.encode())
    for name, module in sorted(finder.modules.items()):
        digest.update(f"{name}\0".encode())
        if file := getattr(module, "__file__", None):
            digest.update(_syntax_digest(Path(file)))
    # A name that the finder does not find is in another package, or is a name inside a module.
    others = {name.partition(".")[0] for name in finder.badmodules} - set(TREES)
    for name in sorted(others - sys.stdlib_module_names):
        digest.update(f"{name} {_version(name)}\n".encode())
    return digest.hexdigest()


@cache
def _followed(modules: tuple[str, ...], without: tuple[str, ...]) -> _Finder:
    """Return the finder after it has followed modules."""
    finder = _Finder(without)
    for name in modules:
        finder.import_hook(name)
    return finder


@cache
def _syntax_digest(file: Path) -> bytes:
    """Return a digest of a module's syntax tree without strings that are statements."""
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [one for one in body if not _is_docstring(one)]
    return hashlib.sha256(ast.dump(tree).encode()).digest()


def _is_docstring(statement: ast.stmt) -> bool:
    """Whether a statement is a string, which documents what surrounds or precedes it."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _version(package: str) -> str:
    """Return the version of an installed package, or `none`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"

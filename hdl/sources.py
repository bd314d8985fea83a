"""The digest of the code that computes a result, for the keys of cached files.

A list of source files that is kept by hand, or a version number that is raised by hand, misses the
change that its author forgets. The digest follows the import statements instead.
"""

import hashlib
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from hdl.paths import ROOT

TREES = ("hdl", "golden", "testbenches", "synth", "systola")
"""The packages whose sources count; of all others the version counts."""


class _Finder(ModuleFinder):
    """Finds what modules of `TREES` import, inside functions too, without running any."""

    def __init__(self, without: tuple[str, ...]) -> None:
        super().__init__(path=[str(ROOT)])
        self._without = without

    def import_module(self, partname: str, fqname: str, parent: Any) -> Any:
        return None if fqname in self._without else super().import_module(partname, fqname, parent)

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        if path is None and name not in TREES:
            raise ImportError(name)
        return super().find_module(name, path, parent)


@cache
def code_digest(*modules: str, without: tuple[str, ...] = ()) -> str:
    """Return the SHA-256 of modules, of all that they import, and of the packages' versions.

    Imports are followed through the whole of `TREES`. Comments count as well: a needless new
    computation is cheaper than a stale result.

    Parameters
    ----------
    modules
        Full names, such as ``"golden.veda.whole_model"``.
    without
        Modules that are not followed, because the key covers their effect in another way.

    Raises
    ------
    ImportError
        There is no such module in `TREES`.
    """
    finder = _Finder(without)
    for name in modules:
        finder.import_hook(name)
    digest = hashlib.sha256(sys.version.encode())
    for name, module in sorted(finder.modules.items()):
        digest.update(f"{name}\0".encode())
        if file := getattr(module, "__file__", None):
            with Path(file).open("rb") as source:
                digest.update(hashlib.file_digest(source, "sha256").digest())
    # What the finder does not find belongs to other packages, or is a name inside a module.
    others = {name.partition(".")[0] for name in finder.badmodules} - set(TREES)
    for name in sorted(others - sys.stdlib_module_names):
        digest.update(f"{name} {_version(name)}\n".encode())
    return digest.hexdigest()


def _version(package: str) -> str:
    """Return the version of an installed package, or `none`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"

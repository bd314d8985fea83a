"""Edits of Python source by syntax: a place, an expression or statements in it, and a replacement.

Layout, comments and lines do not matter, and a place keeps its name when its file moves. So an edit
survives most refactorings of the code around it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One change of a source file.

    Parameters
    ----------
    place : str
        Class, function or ``Class.method`` that contains `right` exactly once. Places of one name
        are distinguished by their file: ``fifo:Fifo.elaborate``. ``fifo:`` is a whole file.
    right : str
        An expression, or one or more statements.
    wrong : str
        The replacement: an expression for an expression, statements for statements, ``pass`` for
        none. An empty text removes an expression from a list, a tuple or arguments.
    folders : tuple[str, ...]
        Folders, relative to the checkout, that may contain the place; the first that has it counts.
    """

    place: str
    right: str
    wrong: str
    folders: tuple[str, ...]

    def source(self, checkout: Path) -> Path:
        """Return the file that contains the place.

        Raises
        ------
        ValueError
            If no file or more than one file has the place.
        """
        stem, _, name = self.place.rpartition(":")
        for folder in self.folders:
            files = _files(checkout / folder)[name.partition(".")[0]]
            found = [file for file in files if stem in ("", file.stem) and _scope(file, name)]
            if len(found) > 1:
                paths = ", ".join(str(file.relative_to(checkout)) for file in found)
                raise ValueError(f"{self.place} must be in one file, not in {paths}")
            if found:
                return found[0]
        raise ValueError(f"{self.place} must be in {' or '.join(self.folders)}")

    def check(self, checkout: Path) -> None:
        """Find the place and what is replaced.

        Raises
        ------
        ValueError
            If `right` does not occur exactly once in the place, or `wrong` cannot replace it.
        """
        self._found(self.source(checkout))

    def edited(self, checkout: Path) -> ast.Module:
        """Return the file of the place with the replacement; raises as `check` does."""
        file = self.source(checkout)
        slot, new = self._found(file)
        # The tree of `_parsed` is shared. In a common copy, the slot belongs to the copied tree.
        tree, slot = deepcopy((_parsed(file), slot))
        slot.put(new)
        return ast.fix_missing_locations(tree)

    def _found(self, file: Path) -> tuple["_Slot", list[ast.AST]]:
        """Return what is replaced in the tree of a file, and the replacement."""
        name = self.place.rpartition(":")[2]
        right, wrong = ast.parse(self.right).body, ast.parse(self.wrong).body
        if (value := _expression(right)) and (not wrong or _expression(wrong)):
            own = _expressions(file, name)[type(value)]
            slots = [slot for node, slot in own if _equal(node, value)]
            new: list[ast.AST] = [node.value for node in wrong if isinstance(node, ast.Expr)]
        else:
            slots = [slot for slot in _blocks(file, name, len(right)) if _equal(slot.get(), right)]
            new = [*wrong]
        if len(slots) != 1:
            raise ValueError(f"{self.place} must have {self.right!r} once, not {len(slots)} times")
        if _equal(right, wrong):
            raise ValueError(f"{self.place}: the replacement of {self.right!r} must differ from it")
        if slots[0].part is None and not new:
            raise ValueError(f"{self.place}: {self.right!r} must be an element to be removed")
        return slots[0], new


@dataclass(frozen=True)
class _Slot:
    """Where a node has what is replaced: a field, or a part of a list in a field."""

    owner: ast.AST
    field: str
    part: slice | None = None

    def get(self) -> Any:
        """Return what is replaced."""
        value = getattr(self.owner, self.field)
        return value if self.part is None else value[self.part]

    def put(self, nodes: list[ast.AST]) -> None:
        """Write the replacement: one node, or any number in a list."""
        if self.part is not None:
            getattr(self.owner, self.field)[self.part] = nodes
        else:
            (node,) = nodes
            setattr(self.owner, self.field, node)


def _expression(body: Sequence[ast.stmt]) -> ast.expr | None:
    """Return the expression that a text is, or None."""
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None


def _equal(a: Any, b: Any) -> bool:
    """Return whether two nodes are the same text, whatever its layout and its context are."""
    if type(a) is not type(b):
        return False
    if isinstance(a, ast.AST):
        fields = (name for name in a._fields if name not in ("ctx", "kind", "type_comment"))
        return all(_equal(getattr(a, name, None), getattr(b, name, None)) for name in fields)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a == b


@cache
def _files(folder: Path) -> Mapping[str, list[Path]]:
    """Return the files of a folder by their outer classes and functions, all of them under ``""``.

    No parsing: a tree is built only of files that have a place.
    """
    files: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(folder.rglob("*.py")):
        for name in ("", *re.findall(r"^(?:class|def) (\w+)", file.read_text(), re.M)):
            files[name].append(file)
    return files


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@cache
def _scope(file: Path, name: str) -> Any:
    """Return the class or function of a dotted name, the module for no name, None if absent."""
    scope: Any = _parsed(file)
    for part in filter(None, name.split(".")):
        definitions = (ast.ClassDef, ast.FunctionDef)
        own = (node for node in scope.body if isinstance(node, definitions))
        scope = next((node for node in own if node.name == part), None)
        if scope is None:
            return None
    return scope


@cache
def _expressions(file: Path, name: str) -> Mapping[type, list[tuple[ast.expr, _Slot]]]:
    """Return all expressions of a place by their type, and where each of them is."""
    found: dict[type, list[tuple[ast.expr, _Slot]]] = defaultdict(list)
    for owner in ast.walk(_scope(file, name)):
        for field, value in ast.iter_fields(owner):
            if isinstance(value, ast.expr):
                found[type(value)].append((value, _Slot(owner, field)))
            elif isinstance(value, list):
                for number, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        slot = _Slot(owner, field, slice(number, number + 1))
                        found[type(item)].append((item, slot))
    return found


@cache
def _blocks(file: Path, name: str, length: int) -> list[_Slot]:
    """Return all sequences of a number of statements in a place."""
    return [
        _Slot(owner, field, slice(first, first + length))
        for owner in ast.walk(_scope(file, name))
        for field, value in ast.iter_fields(owner)
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt)
        for first in range(len(value) - length + 1)
    ]

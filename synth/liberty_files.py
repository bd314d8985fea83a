"""The user's liberty files, merged into one file with a plain path in the build directory.

Yosys, ABC and OpenSTA read the path from scripts with different rules for spaces and quotes, which
do not matter for the path of the copy. Several files of one library are merged into one file: the
head of the library, then the groups of all files.
"""

import gzip
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hdl.errors import UserError
from hdl.paths import BUILD, expanded, replace_bytes

SEPARATOR = ":"
"""Separator between the files of `LIBERTY`, as in `PATH`; a file name may contain spaces."""

REMARKS = ("comment", "date", "revision")
"""Attributes of a library in which its files may differ."""

ONCE = ("operating_conditions", "type", "input_voltage", "output_voltage", "wire_load")
"""Groups that cells or the library refer to; their definitions must be equal in all files."""

_TEXT = r'"(?:[^"\\]|\\.)*"'
_SKIPPED = re.compile(rf"{_TEXT}|/\*.*?\*/|//[^\n]*|\\\r?\n", re.DOTALL)
_HEAD = re.compile(r"\s*library\s*\(\s*\"?([^)\"]*?)\"?\s*\)\s*\{")
_STATEMENT = re.compile(
    rf"[\s;]*(?:(?P<end>\}})|(?P<name>[A-Za-z_]\w*)\s*"
    rf"(?::\s*(?P<value>{_TEXT}|[^;{{}}\n]*)"
    rf"|\(\s*(?P<argument>(?:{_TEXT}|[^()\"])*?)\s*\)\s*(?P<open>\{{)?))",
)
_BRACE = re.compile(rf"{_TEXT}|[{{}}]", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class _Statement:
    """One statement of a library group: an attribute, or a group with its body."""

    name: str
    argument: str
    body: str
    is_group: bool

    @property
    def text(self) -> str:
        """The statement in liberty syntax."""
        if self.is_group:
            return f"  {self.name} ({self.argument}) {{{self.body}}}\n"
        return f"  {self.name}{self.argument};\n"


def liberty_paths(given: Path | str) -> list[Path]:
    """Return the absolute paths of the files in `LIBERTY`.

    Raises
    ------
    UserError
        If a name is empty, or the home directory of `~` does not exist.
    """
    names = [given] if isinstance(given, Path) else str(given).split(SEPARATOR)
    if "" in names:
        raise UserError(f"LIBERTY must name a file between colons, not {str(given)!r}")
    return [expanded(name, "LIBERTY").resolve() for name in names]


def collect_liberty(files: Sequence[Path]) -> tuple[Path, str]:
    """Copy the files of a library into one file in the build directory.

    Parameters
    ----------
    files : Sequence[Path]
        Liberty files, plain or compressed by gzip.

    Returns
    -------
    tuple[Path, str]
        The copy, and its text, in which each character is one byte.

    Raises
    ------
    UserError
        If a file does not exist, is not a complete liberty file, or contradicts another.
    """
    hint = "; a colon separates files" if len(files) > 1 else ""
    texts = [_read(file, hint) for file in files]
    text = texts[0] if len(files) == 1 else _merged(files, texts)
    data = text.encode("latin-1")
    name = re.sub(r"[^\w.+-]", "_", files[0].name.removesuffix(".gz"), flags=re.ASCII)
    copy = BUILD / "liberty" / hashlib.sha256(data).hexdigest()[:12] / name
    # Writing is atomic, but a user may have edited the copy: compare it.
    if not copy.is_file() or copy.read_bytes() != data:
        replace_bytes(copy, data)
    return copy, text


def without_comments(text: str) -> str:
    """Return liberty text without comments and line continuations; strings keep their content."""
    return _SKIPPED.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)


def library_head(text: str, file: Path) -> re.Match[str]:
    """Return the match of `library (NAME) {`, with which a liberty text without comments begins.

    Raises
    ------
    UserError
        If the text begins differently.
    """
    if head := _HEAD.match(text):
        return head
    raise UserError(f"LIBERTY must be a liberty file that opens with 'library (', not '{file}'")


def _read(file: Path, hint: str) -> str:
    """Return the text of a file; a message that it does not exist ends with the hint."""
    if not file.is_file():
        raise UserError(f"LIBERTY must be a file that exists, not '{file}'{hint}")
    try:
        data = file.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except PermissionError as error:
        raise UserError(f"LIBERTY must be a file that can be read, not '{file}'") from error
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"LIBERTY must be a whole gzip file, not '{file}': {error}") from error
    return data.decode("latin-1")


def _merged(files: Sequence[Path], texts: Sequence[str]) -> str:
    """Return one library of all files' statements.

    A table template whose name has another content in an earlier file gets a new name.
    """
    known: dict[tuple[str, str], tuple[Path, str]] = {}
    cells: dict[str, Path] = {}
    parts: list[str] = []
    names: list[str] = []
    for number, (file, text) in enumerate(zip(files, texts, strict=True)):
        text = without_comments(text)
        head = library_head(text, file)
        names.append(head[1])
        renamed: dict[str, str] = {}
        for statement in _statements(text, head.end(), file):
            if statement.name == "cell":
                name = statement.argument.strip('"')
                if name in cells:
                    where = f"{cells[name]} and {file}"
                    raise UserError(f"LIBERTY must define cell {name} once, not in {where}")
                cells[name] = file
                parts.append(_with_templates(statement.text, renamed))
                continue
            key, template = _identity(statement), statement.name.endswith("_template")
            content = " ".join(statement.text.split())
            first, found = known.setdefault(key, (file, content))
            if first == file:
                parts.append(statement.text)
            elif found != content and template:
                old = statement.argument.strip('"')
                renamed[old] = f"{old}_{number}"
                parts.append(replace(statement, argument=renamed[old]).text)
            elif found != content and statement.name not in REMARKS:
                raise UserError(
                    f"LIBERTY must be files that agree: {' '.join(found.split()[:8])} in {first} "
                    f"is {' '.join(content.split()[:8])} in {file}"
                )
    name = re.sub(r"\W", "_", names[0], flags=re.ASCII)
    return f"library ({name}_and_{len(names) - 1}_more) {{\n{''.join(parts)}}}\n"


def _identity(statement: _Statement) -> tuple[str, str]:
    """Return a key that is equal for two statements that define the same object."""
    if statement.is_group:
        if statement.name in ONCE or statement.name.endswith("_template"):
            return statement.name, statement.argument.strip('"')
        return statement.name, statement.text
    if statement.argument.startswith(" (") and statement.name != "capacitive_load_unit":
        # Such as `voltage_map (VDD, 1.1)` and `define (name, group, type)`.
        first = statement.argument.split(",")[0]
        return statement.name, first if statement.name == "voltage_map" else statement.argument
    return statement.name, ""


def _with_templates(cell: str, renamed: dict[str, str]) -> str:
    """Return a cell that uses the new names of templates."""
    if not renamed:
        return cell
    names = "|".join(map(re.escape, renamed))
    return re.sub(
        rf'\(\s*"?({names})"?\s*\)(?=\s*\{{)', lambda found: f"({renamed[found[1]]})", cell
    )


def _statements(text: str, place: int, file: Path) -> Iterator[_Statement]:
    """Yield the statements of a library group that begins at `place`."""
    while True:
        found = _STATEMENT.match(text, place)
        if not found:
            line = text[place : place + 200].strip().split("\n")[0]
            rule = f"'{file}': {line!r} is no statement" if line else f"'{file}': it ends early"
            raise UserError(f"LIBERTY must be a whole file, not {rule}")
        if found["end"]:
            return
        place, body = found.end(), ""
        if found["open"]:
            start, depth = place, 1
            for brace in _BRACE.finditer(text, place):
                depth += {"{": 1, "}": -1}.get(brace[0], 0)
                if depth == 0:
                    body, place = text[start : brace.start()], brace.end()
                    break
            else:
                raise UserError(
                    f"LIBERTY must be a whole file, not '{file}': a group is not closed"
                )
        value, argument = found["value"], found["argument"]
        if found["open"]:
            yield _Statement(name=found["name"], argument=argument, body=body, is_group=True)
        else:
            written = f" : {value.strip()}" if value is not None else f" ({argument})"
            yield _Statement(name=found["name"], argument=written, body="", is_group=False)

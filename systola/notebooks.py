"""Tutorials as notebooks: text cells, files that the reader saves, and commands."""

import re
from itertools import groupby
from typing import Any

COMMANDS = ("make ", "mkdir ", "cd ", "python3 ", "venv/", ".venv/")
"""First words of the lines of a block of commands."""
SAVED = r"[Ss]ave [^`.]*\bas `([^`]+)`[^`]*:\s*\Z"
"""The end of the text before a block that the reader saves to a file."""

REFUSED = r"\A\s*```text\nError: "
"""The start of the text after commands of which the page shows the refusal."""


def notebook_of(page: str) -> dict[str, Any]:
    """Return the notebook of a page, by the format 4.5 of Jupyter.

    The notebook runs in the root of a checkout. A block that the page asks to save is written to
    its file, and a block of commands runs in the shell; other blocks are text. Commands of which
    the page shows the refusal directly below have the tag `raises-exception`: they fail, and the
    cells below run nevertheless.
    """
    cells: list[dict[str, Any]] = []
    text = ""
    parts = re.split(r"^(```[^\n]*\n.*?^```\n)", page, flags=re.M | re.S)
    for number, part in enumerate(parts):
        codes = _codes(part, text) if part.startswith("```") else []
        if not codes:
            text += part
            continue
        refused = re.match(REFUSED, "".join(parts[number + 1 :]))
        cells += [_cell("markdown", text, len(cells))] if text.strip() else []
        for code in codes:
            cells.append(_cell("code", code, len(cells)))
        if refused:
            cells[-1]["metadata"] = {"tags": ["raises-exception"]}
        text = ""
    cells += [_cell("markdown", text, len(cells))] if text.strip() else []
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _codes(block: str, before: str) -> list[str]:
    """Return the code of a block's cells; none for a block that a reader does not run.

    A cell of commands ends at the first one that fails. A change of the folder is a cell of its
    own, since it lasts.
    """
    lines = block.strip().split("\n")[1:-1]
    if file := re.search(SAVED, before):
        return ["\n".join([f"%%writefile {file[1]}", *lines])]
    if not all(line.startswith(COMMANDS) for line in lines):
        return []
    cells = []
    for moves, group in groupby(lines, lambda line: line.startswith("cd ")):
        own = list(group)
        cells += [f"%{line}" for line in own] if moves else ["\n".join(["%%bash -e", *own])]
    return cells


def _cell(kind: str, source: str, number: int) -> dict[str, Any]:
    """Return a cell; one of code has no output yet."""
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source.strip("\n")}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell

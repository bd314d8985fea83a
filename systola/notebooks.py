"""Tutorials as notebooks: text cells, files that the reader saves, and commands."""

import re
from typing import Any

COMMANDS = ("make ", "mkdir ", "cd ", "python3 ", "venv/", ".venv/")
"""First words of the lines of a block of commands."""
SAVED = r"[Ss]ave (?:this|it) as `([^`]+)`[^`]*:\s*\Z"
"""The end of the text before a block that the reader saves to a file."""


def notebook_of(page: str) -> dict[str, Any]:
    """Return the notebook of a page, by the format 4.5 of Jupyter.

    The notebook runs in the root of a checkout. A block that the page asks to save is written to
    its file, and a block of commands runs in the shell; other blocks are text.
    """
    cells: list[dict[str, Any]] = []
    text = ""
    for part in re.split(r"^(```[^\n]*\n.*?^```\n)", page, flags=re.M | re.S):
        code = _code(part, text) if part.startswith("```") else None
        if code is None:
            text += part
            continue
        cells += [_cell("markdown", text, len(cells))] if text.strip() else []
        cells.append(_cell("code", code, len(cells)))
        text = ""
    cells += [_cell("markdown", text, len(cells))] if text.strip() else []
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _code(block: str, before: str) -> str | None:
    """Return the code of a block's cell; None for a block that a reader does not run."""
    lines = block.strip().split("\n")[1:-1]
    if file := re.search(SAVED, before):
        return "\n".join([f"%%writefile {file[1]}", *lines])
    if all(line.startswith(COMMANDS) for line in lines):
        return "\n".join(f"{'%' if line.startswith('cd ') else '!'}{line}" for line in lines)
    return None


def _cell(kind: str, source: str, number: int) -> dict[str, Any]:
    """Return a cell; one of code has no output yet."""
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source.strip("\n")}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell

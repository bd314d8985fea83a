"""A Jupyter kernel executes the notebooks of the tutorials, from the first to the last cell."""

import os
import re
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from hdl.paths import BUILD, ROOT
from synth.debian import missing, osu018
from systola.environment import USER_ENVIRONMENT
from systola.notebooks import notebook_of
from tests.test_style import tracked

TUTORIALS = {file.stem: file.read_text() for file in (ROOT / "docs/tutorials").glob("*.md")}

NAMES = {"board": False, "library": True, "policy": True, "project": True}
"""The tutorials, and whether the execution of each is too long for the default tests."""

LIMIT = 15 * 60
"""Seconds that a tutorial may take on two cores, by its page."""

TIMEOUT = 4 * LIMIT
"""Seconds on the wall that a cell may take when other work shares the cores."""

SHARED = ("debian", "liberty", "llm", "perplexity", "simulators")
"""Folders of the build directory whose files are cached by content."""

LIBRARY = "/pdk/cells.lib"
"""The reader's library on the page. The test puts a library of its own in its place."""

JUPYTER = ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR")
"""Variables of the folders of Jupyter."""

REFUSED = "raises-exception"
"""Tag of a cell that must fail."""


pytestmark = pytest.mark.filterwarnings("default")
"""A warning inside a package of Jupyter, by another version of Python, is not an error here."""


@dataclass
class Execution:
    """A notebook's cells after their execution, and their time on the wall and on processors."""

    cells: list[Any]
    wall: float = 0.0
    seconds: float = 0.0
    texts: list[str] = field(default_factory=list)


def processor_seconds() -> float:
    """Return the processor time of the children that this process has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def execute(notebook: dict[str, Any], folder: Path) -> Execution:
    """Execute a notebook in a folder.

    Raises
    ------
    CellExecutionError
        If a cell fails that is not tagged.
    AssertionError
        If a cell is tagged and does not fail.
    """
    # The tools of the reader, without the checkout of the test in Python's path.
    known = {name: USER_ENVIRONMENT[name] for name in USER_ENVIRONMENT if name != "PYTHONPATH"}
    known |= {name: os.environ[name] for name in JUPYTER}
    nodes: Any = nbformat.from_dict(notebook)
    nbformat.validate(nodes)
    client = NotebookClient(
        nodes, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    start, clock = processor_seconds(), time.monotonic()
    client.execute(env=known)
    execution = Execution([cell for cell in nodes.cells if cell.cell_type == "code"])
    execution.wall = time.monotonic() - clock
    execution.seconds = processor_seconds() - start
    for cell in execution.cells:
        failed = any(output.output_type == "error" for output in cell.outputs)
        assert failed == (REFUSED in cell.metadata.get("tags", ())), cell.source
        execution.texts.append(
            "".join(output.text for output in cell.outputs if output.output_type == "stream")
        )
    return execution


@pytest.fixture
def own_jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the files of Jupyter out of the user's folders."""
    for name in JUPYTER:
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


@pytest.fixture
def home(tmp_path: Path, own_jupyter: None) -> Iterator[Path]:
    """A folder with a copy of the checkout, which shares the packages and the caches."""
    copy = tmp_path / "home" / "systola"
    for file in tracked():
        own = copy / file.relative_to(ROOT)
        own.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, own)
    (copy / ".venv").symlink_to(sys.prefix)
    (copy / "build").mkdir()
    for name in SHARED:
        (BUILD / name).mkdir(parents=True, exist_ok=True)
        (copy / "build" / name).symlink_to(BUILD / name)
    yield copy.parent
    shutil.rmtree(copy.parent)


def own_library(folder: Path) -> Path:
    """Write a library that Systola does not know: OSU018 under another name."""
    cells = osu018()
    if not cells or "sta" in missing(fetch=True):
        pytest.skip("OSU018 or OpenSTA is not available")
    file = folder / "cells.lib"
    file.write_text(cells.read_text().replace("osu018_stdcells", "own_cells"))
    return file


def lines(text: str) -> list[str]:
    """Return the lines of a text without the frames of tables, words separated by one space."""
    return [" ".join(line.split()) for line in text.splitlines() if not re.match("[┌├└┏┃┡]", line)]


def results(notebook: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield each line of output that the page shows below a cell, and the number of the cell."""
    number = -1
    for above, below in pairwise(notebook["cells"]):
        number += above["cell_type"] == "code"
        if not above["source"].startswith("%%bash") or below["cell_type"] == "code":
            continue
        refused = REFUSED in above["metadata"].get("tags", ())
        for block in re.findall(r"^```text\n(.*?)^```", below["source"], re.M | re.S):
            if refused or not block.startswith("Error:"):
                yield from ((number, line) for line in lines(block))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full if long else ()) for name, long in NAMES.items()],
)
def test_kernel_executes_each_cell(name: str, home: Path, tmp_path: Path) -> None:
    """The cells give the results that the page shows."""
    page = TUTORIALS[name]
    if LIBRARY in page:
        page = page.replace(LIBRARY, str(own_library(tmp_path)))
    notebook = notebook_of(page)
    execution = execute(notebook, home / ("" if name == "project" else "systola"))
    assert all(cell.execution_count for cell in execution.cells)
    shown = list(results(notebook))
    assert shown
    for number, line in shown:
        assert line in "\n".join(lines(execution.texts[number])), line
    print(f"{name}: {execution.wall:.0f} s, {execution.seconds:.0f} s of processor time")
    assert execution.seconds < 2 * LIMIT
    # Other work shares a developer's machine.
    assert execution.wall < LIMIT or "CI" not in os.environ


def test_all_tutorials_are_executed() -> None:
    assert sorted(NAMES) == sorted(TUTORIALS)


PAGE = """# A page

Save this as `one.py`:

```python
print("one")
```

```text
make one
cd sub
make two
```

```text
two
```
"""
MAKEFILES = {"Makefile": "one:\n\t@python3 one.py\n", "sub/Makefile": "two:\n\t@echo two\n"}

ERRORS = {
    "no error": ("", "", True),
    "code of a saved file": ('print("one")', "import no_such_module", False),
    "first of two commands": ("make one\n", "make none\nmake one\n", False),
    "folder that does not exist": ("cd sub\n", "cd none\n", False),
    "shown refusal that happens": (
        "make two\n```\n\n```text\ntwo",
        "make none\n```\n\n```text\nError: none",
        True,
    ),
    "shown refusal that does not happen": ("```text\ntwo", "```text\nError: none", False),
}
"""By name: a text of the page, the text in its place, and whether the notebook passes."""


@pytest.mark.parametrize(("old", "new", "passes"), ERRORS.values(), ids=ERRORS)
def test_cell_that_fails_fails_the_execution(
    old: str, new: str, passes: bool, tmp_path: Path, own_jupyter: None
) -> None:
    (tmp_path / "sub").mkdir()
    for name, text in MAKEFILES.items():
        (tmp_path / name).write_text(text)
    assert PAGE.count(old) == 1 or not old
    notebook = notebook_of(PAGE.replace(old, new))
    if passes:
        assert len(execute(notebook, tmp_path).cells) == 4
    else:
        with pytest.raises((CellExecutionError, AssertionError)):
            execute(notebook, tmp_path)

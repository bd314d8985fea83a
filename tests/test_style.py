"""Style, types and wording are clean, and no file names a machine."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hdl.paths import ROOT

BIN = Path(sys.executable).parent
HELD = (
    *("arith", "stream", "memory", "nonlinear", "shell"),
    *("kelle", "veda", "p3llm", "meadow", "lad"),
)
"""Folders of hardware whose comments are checked."""

LEAST_COMMENTS = 0.03
"""Minimum ratio of comment lines to code lines in a folder of hardware."""


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check"], ["ruff", "format", "--check"], ["pyright", "--warnings"]],
    ids=" ".join,
)
def test_tool_finds_nothing(command: list[str]) -> None:
    run = subprocess.run(
        [BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def docstrings(tree: ast.AST) -> set[int]:
    """Return the lines of all string statements."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def test_hardware_is_commented() -> None:
    """Each folder has enough comment lines per line of code."""
    for folder in HELD:
        comments = code = 0
        for file in (ROOT / "hdl" / folder).rglob("*.py"):
            text = file.read_text()
            documented = docstrings(ast.parse(text))
            for number, line in enumerate(text.splitlines(), 1):
                comments += line.strip().startswith("#")
                code += bool(line.strip()) and number not in documented
        code -= comments
        enough = comments >= LEAST_COMMENTS * code
        assert enough, f"{folder}: {comments} lines of comments in {code} of code"


def test_nothing_names_a_machine() -> None:
    forbidden = re.compile(r"/(root|home|work)/\w|\.\./shared")
    for file in tracked():
        if file.suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".lock"} and file != Path(
            __file__
        ):
            assert not forbidden.search(file.read_text()), file.relative_to(ROOT)


PROSE = {".py", ".md", ".cpp", ".h"}
"""Suffixes of the tracked files that must be in plain technical English.

The check skips text in backticks, fenced code, block quotes (``>``, for quotations of a paper), and
blocks that a program writes into a page. Outside tests it includes strings of several words, which
are messages, table headers and summaries, and the texts of `REPORT`.
"""

REPORT = "synth/reference/*.toml", "synth/reference/papers/*.toml"
"""Files whose texts the report shows."""


@dataclass(frozen=True)
class Wording:
    """A forbidden wording.

    Parameters
    ----------
    pattern : str
        Regular expression, which ignores case.
    instead : str
        Suggested replacement.
    found : str
        Examples that the pattern must find, separated by ``;``.
    allowed : str
        Legitimate technical uses that the pattern must not find, separated by ``;``.
    """

    pattern: str
    instead: str
    found: str
    allowed: str = ""


AMOUNT = (
    r"(?:bits?|bytes?|words?|items?|slices?|scores?|elements?|values?|weights?|tokens?|cycles?|sums?"
    r"|products?|results?|steps?|beats?|lines?|pairs?|heads?|keys?|groups?|sets?|transfers?|one)"
)
RATE = (
    rf"\b{AMOUNT} an? (?:cycle|token|second)\b(?! (?:late|earl|before|after))"
    r"|\b(?:one|two|\d+) an? (?:cycle|token|lane|level|layer|row)\b"
)

FORBIDDEN = (
    Wording(r"\boctets?\b", "bytes", "an octet;4 octets"),
    Wording(r"\b(?:speaks?|spoken|speech)\b", "generate text; host driver", "it speaks"),
    Wording(
        r"\b(?:stands?|stood)\b(?![- ]alone)",
        "is stored, is held, is at",
        "it stands",
        "stand-alone",
    ),
    Wording(r"\bbehind\b", "after, downstream of, next to", "one behind the other"),
    Wording(r"\bbeside\b", "next to, in parallel with", "beside the table", "besides"),
    Wording(
        r"\b(?:leaves|comes?|came|goes|went)\b",
        "is output, is input, moves to, arrives",
        "a slice leaves;it comes late",
    ),
    Wording(r"\b(?:says?|said|tells?|told)\b", "specifies, reports, defines", "as told;it says"),
    Wording(r"\bunder way\b", "in flight, in progress", "rows under way"),
    Wording(
        r"\blook(?:s|ed|ing)? for\b|\bsearch\w* for the largest\b",
        "search; argmax",
        "is looked for;the search for the largest",
        "the shift for the largest code",
    ),
    Wording(
        r"\bmeets?\b(?! (?:timing|the specification))",
        "is multiplied by, is compared with",
        "it meets the best",
        "the path meets timing",
    ),
    Wording(r"(?<!\d )\bways\b", "datapaths, routes, directions", "two ways", "a cache of 64 ways"),
    Wording(r"\bwalk(?:s|ed|ing)?\b", "address generator, interpolate", "walk along the line"),
    Wording(
        r"\b(?:knockout|players?|games?)\b", "comparator tree, operand, tree level", "the game"
    ),
    Wording(r"\bin turns\b|\bturn about\b", "round-robin, time-multiplexed", "served in turns"),
    Wording(
        r"\bbound's cycles\b|\bthe bound's\b", "ideal cycles, lower bound", "the bound's cycles"
    ),
    Wording(
        r"\b(?:smallest|fastest) (?:netlist|form)s?\b",
        "area-optimised, delay-optimised",
        "the smallest netlist",
        "the smallest number",
    ),
    Wording(
        r"\bmemor(?:y|ies) (?:is |are )?apart\b|\bin no area\b",
        "logic only, SRAM excluded",
        "the memory apart;memories are in no area",
    ),
    Wording(r"\bpatien(?:ce|t)\b", "timeout", "the patience"),
    Wording(r"\bdissolve[sd]?\b", "flatten, inline", "modules are dissolved"),
    Wording(r"\bdr(?:ew|awn|aws?)\b", "random, generated; plot", "drawn biases", "a drawing"),
    Wording(r"\bspoil(?:t|s|ed)?\b|\bdamage[sd]?\b", "corrupted; error", "a spoilt file"),
    Wording(r"\bworded\b", "clear error message, rejects", "a worded error"),
    Wording(
        r"\bequal ones\b|\bfirst of equal", "ties resolve to the lowest index", "of equal ones"
    ),
    Wording(
        r"\b(?:some|no)body\b|\bwhoever\b", "a reader, no consumer", "nobody takes;somebody waits"
    ),
    Wording(r"\bhalf bytes?\b", "nibble", "a half byte"),
    Wording(r"\bhead-samples?\b", "(batch, head) pair", "a head-sample"),
    Wording(
        r"\bchoice of tokens\b|\b(?:largest sum|logit argmax|serial argmax)\b",
        "argmax",
        "the largest sum",
    ),
    Wording(r"\bgate and up\b|\bgated layers?\b", "SwiGLU, `gate_proj`, `up_proj`", "gate and up"),
    Wording(r"\bturns [\d,.]+ cycles\b", "simulates at n kHz", "turns 55,000 cycles in a second"),
    Wording(
        RATE,
        "X per Y",
        "one sum a cycle;a word a cycle;8 bytes a token;lanes scores a cycle;one a row",
        "in a cycle;takes a cycle;a value a cycle later;cycles of a row;holds a token",
    ),
    Wording(r"^Dimensions\.$|^By `?\w+`?\.$", "meaning, unit and validity", "Dimensions.;By `X`."),
)
"""Wordings that the house style forbids; a name for code belongs in backticks."""

COMMENT = re.compile(r"(?:^\s*|(\S  ))# (.*)")

CODE = re.compile(r"``[^`]*``|`[^`]*`|\]\([^)]*\)")


def python_prose(text: str, messages: bool) -> Iterator[tuple[int, str]]:
    """Return line numbers and lines of docstrings, comments, help texts and names of tests.

    With `messages`, strings of several words are included.
    """
    inside: set[int] = set()
    documented: set[ast.AST] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documented.add(node.value)
            if isinstance(node.value.value, str):
                yield from enumerate(node.value.value.splitlines(), node.lineno)
        elif isinstance(node, ast.keyword):
            if node.arg == "help" and isinstance(node.value, ast.Constant):
                yield node.value.lineno, str(node.value.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test_") or node.decorator_list:
                yield node.lineno, node.name.replace("_", " ")
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            inside.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if messages and node not in documented and isinstance(node, ast.Constant):
                if isinstance(node.value, str) and " " in node.value.strip():
                    yield from enumerate(node.value.splitlines(), node.lineno)
    for number, line in enumerate(text.splitlines(), 1):
        # A comment may follow a string on its line, but not without two spaces.
        if "#" in line and (comment := COMMENT.search(line)):
            if number not in inside or comment[1]:
                yield number, comment[2]


def page_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return line numbers and lines of a page without code, quotations and generated blocks."""
    fenced = generated = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif line.startswith("<!-- "):
            generated = ": written by" in line
        elif not (fenced or generated or line.startswith(("    ", ">"))):
            yield number, line


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Return line numbers and lines of prose in a file."""
    text = file.read_text()
    if file.suffix == ".py":
        yield from python_prose(text, messages=not file.is_relative_to(ROOT / "tests"))
    elif file.suffix == ".md":
        yield from page_lines(text)
    elif file.suffix == ".toml":
        yield from enumerate(text.splitlines(), 1)
    else:
        comments = (line.partition("// ") for line in text.splitlines())
        yield from ((number, comment) for number, (_, _, comment) in enumerate(comments, 1))


def test_prose_is_plain_technical_english() -> None:
    """Each finding is reported with its file, line, wording and suggested replacement."""
    patterns = [(re.compile(word.pattern, re.IGNORECASE), word.instead) for word in FORBIDDEN]
    # One expression for all decides most lines; the single ones name the finding.
    any_of = re.compile("|".join(f"(?:{word.pattern})" for word in FORBIDDEN), re.IGNORECASE)
    files = [file for file in tracked() if file.suffix in PROSE]
    files += [file for pattern in REPORT for file in ROOT.glob(pattern)]
    assert len(files) > 1000
    found = []
    for file in files:
        for number, line in prose(file):
            plain = CODE.sub("`", line).strip()
            if any_of.search(plain):
                found += [
                    f"{file.relative_to(ROOT)}:{number}: {match[0]!r}; write: {instead}"
                    for pattern, instead in patterns
                    for match in pattern.finditer(plain)
                ]
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize("word", FORBIDDEN, ids=lambda word: word.found)
def test_forbidden_wording_is_found(word: Wording) -> None:
    pattern = re.compile(word.pattern, re.IGNORECASE)
    assert all(pattern.search(example) for example in word.found.split(";"))
    assert not any(word.allowed and pattern.search(use) for use in word.allowed.split(";"))

"""Rules for the text of every Verilog file, next to those of `testbenches.lint`."""

import re
from collections.abc import Iterator

LENGTH = 100
"""Maximum length of a line in characters; a single long word may exceed it outside comments."""


def broken_rules(text: str) -> Iterator[str]:
    """Yield a description of each rule that a Verilog file breaks."""
    if re.search(r"\binitial\b", text):
        yield "has an initial state"
    if "\\" in text:
        yield "has an escaped name"
    if "src" in text:
        yield "has a reference to Python"
    long = [line for line in text.splitlines() if len(line) > LENGTH]
    if any(line.startswith("//") for line in long):
        yield "has long comments"
    if any(len(line.split()) > 1 for line in long):
        yield "has long lines"

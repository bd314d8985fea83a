"""`python -m systola.make VERB`: what the Makefile starts; make's variables become options.

`make sim TOP=x PACKET_BITS=64` is `python -m systola sim --top=x --packet-bits=64`. The values are
read from make's own record, never from a shell's command or a recipe: any value arrives unchanged.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from systola.start import start

ENVIRONMENT = ("SYSTOLA_BUILD", "VERILATOR")
"""Variables that are no option of a verb; the command line sets them as the environment does."""

BLANKS = " \t\n\v\f\r"


VARIABLES = "SYSTOLA_VARIABLES"
"""Environment variable in which the Makefile passes MAKEOVERRIDES."""


def given_variables(overrides: str, words: Iterable[str]) -> dict[str, str]:
    """Return the variables of make's command line; not those of the environment or the Makefile.

    Parameters
    ----------
    overrides : str
        Make's variable MAKEOVERRIDES: definitions, separated by spaces. Make doubles each dollar
        and puts a backslash before each backslash, space and tab of a value.
    words : Iterable[str]
        Arguments of the make process. Make removes blanks at the start of a value; the argument
        still has them.

    Returns
    -------
    dict[str, str]
        Values by name, without `PYTHON`, which the Makefile uses.
    """
    values: dict[str, str] = {}
    for definition in re.findall(r"(?:\\.|[^\\ \t])+", overrides, flags=re.DOTALL):
        text = re.sub(r"\\(.)|\$(\$)", r"\1\2", definition, flags=re.DOTALL)
        name, _, value = text.partition("=")
        # A colon marks a value that make has expanded, by `NAME:=value`.
        values[name.rstrip(":")] = value
    for word in words:
        name, _, value = word.partition("=")
        if values.get(name) == value.lstrip(BLANKS):
            values[name] = value
    values.pop("PYTHON", None)
    return values


def options(values: dict[str, str]) -> list[str]:
    """Return the options that variables are."""
    return [f"--{name.lower().replace('_', '-')}={value}" for name, value in values.items()]


def main(verbs: Sequence[str]) -> None:
    """Run a verb with the variables of the make process that started this one."""
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
    except OSError:
        # Without /proc a value loses the blanks at its start, and nothing else.
        words = []
    values = given_variables(os.environ.get(VARIABLES, ""), map(os.fsdecode, words))
    # A make that the verb starts is none of this one's: it has neither its options nor variables.
    for name in [name for name in os.environ if re.fullmatch(rf"MAKE.*|MFLAGS|{VARIABLES}", name)]:
        del os.environ[name]
    for name in ENVIRONMENT:
        if name in values:
            os.environ[name] = values.pop(name)
    start([*verbs, *options(values)], "python -m systola")


if __name__ == "__main__":
    main(sys.argv[1:])

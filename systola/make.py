"""`python -m systola.make VERB`: the Makefile's entry point, which converts variables to options.

`make sim TOP=x PACKET_BITS=64` is `python -m systola sim --top=x --packet-bits=64`. The values are
read from make's own record, not from a shell command or a recipe, so every value is unchanged.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from systola.start import start

ENVIRONMENT = ("SYSTOLA_BUILD", "VERILATOR")
"""Variables that are not options of a verb but are set as environment variables."""

BLANKS = " \t\n\v\f\r"

VARIABLES = "SYSTOLA_VARIABLES"
"""Environment variable in which the Makefile passes MAKEOVERRIDES."""


def given_variables(overrides: str, words: Iterable[str]) -> dict[str, str]:
    """Return the variables of make's command line, without those of environment and Makefile.

    Parameters
    ----------
    overrides : str
        Make's variable MAKEOVERRIDES: definitions, separated by spaces. Make doubles each dollar
        and puts a backslash before each backslash, space and tab of a value.
    words : Iterable[str]
        Arguments of the make process. Make removes leading blanks of a value; the argument
        contains them.

    Returns
    -------
    dict[str, str]
        Values by name, without `PYTHON`, which the Makefile uses.
    """
    values: dict[str, str] = {}
    for definition in re.findall(r"(?:\\.|[^\\ \t])+", overrides, flags=re.DOTALL):
        text = re.sub(r"\\(.)|\$(\$)", r"\1\2", definition, flags=re.DOTALL)
        name, _, value = text.partition("=")
        # Make writes an expanded variable as `NAME:=value`.
        values[name.rstrip(":")] = value
    for word in words:
        name, _, value = word.partition("=")
        if values.get(name) == value.lstrip(BLANKS):
            values[name] = value
    values.pop("PYTHON", None)
    return values


def options(values: dict[str, str]) -> list[str]:
    """Convert variables to command-line options."""
    return [f"--{name.lower().replace('_', '-')}={value}" for name, value in values.items()]


def main(verbs: Sequence[str]) -> None:
    """Run a verb with the variables of the make process that started this one."""
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
    except OSError:
        # Without /proc, only the leading blanks of a value are lost.
        words = []
    values = given_variables(os.environ.get(VARIABLES, ""), map(os.fsdecode, words))
    # A verb may start another make, which must not inherit options and variables of this one.
    for name in [name for name in os.environ if re.fullmatch(rf"MAKE.*|MFLAGS|{VARIABLES}", name)]:
        del os.environ[name]
    for name in ENVIRONMENT:
        if name in values:
            os.environ[name] = values.pop(name)
    start([*verbs, *options(values)], "python -m systola")


if __name__ == "__main__":
    main(sys.argv[1:])

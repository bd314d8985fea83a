"""The list of all units, which the command line, tests, documentation and emission iterate over.

To add a unit, add an entry to its paper's catalog and a file to each tree, see `Entry.files`.
"""

from hdl.entry import Entry
from hdl.errors import UserError, unknown
from hdl.kelle import catalog as kelle
from hdl.lad import catalog as lad
from hdl.meadow import catalog as meadow
from hdl.nonlinear import catalog as nonlinear
from hdl.p3llm import catalog as p3llm
from hdl.shell import catalog as shell
from hdl.veda import catalog as veda

CATALOG: tuple[Entry, ...] = (
    *nonlinear.UNITS,
    *kelle.UNITS,
    *veda.UNITS,
    *p3llm.UNITS,
    *meadow.UNITS,
    *lad.UNITS,
    *shell.UNITS,
)
"""Every unit; those of the common functions precede those of the papers; the shell is last."""


def entry_named(top: str) -> Entry:
    """Return the entry of a unit.

    Raises
    ------
    UserError
        If no unit has this name; the message suggests the nearest one.
    """
    for entry in CATALOG:
        if entry.top == top:
            return entry
    raise UserError(unknown("TOP", top, [entry.top for entry in CATALOG]))

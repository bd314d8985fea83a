"""The error that a user can mend."""

from collections.abc import Iterable
from difflib import get_close_matches

LISTED = 16
"""Names that a sentence can hold."""


class UserError(Exception):
    """What the user asked for cannot be done; the command line prints it and exits with 2."""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the error's words for an unknown name, with the nearest that is known.

    A long list is only counted where one of its names is near.
    """
    names = list(known)
    nearest = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    counted = nearest and len(names) > LISTED
    listed = f"the {len(names)} known" if counted else ", ".join(names)
    return f"{what} must be one of {listed}, not {name!r}{hint}"

"""The exception for errors that a user can correct."""

from collections.abc import Iterable
from difflib import get_close_matches

LISTED = 16
"""Maximum number of names that a message lists."""


class UserError(Exception):
    """An error in the user's input; the command line prints the message and exits with status 2."""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown name, with the nearest known name as a suggestion.

    The message lists the known names. If there are more than `LISTED` and one is near, it gives
    their number instead.
    """
    names = list(known)
    nearest = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    counted = nearest and len(names) > LISTED
    listed = f"the {len(names)} known" if counted else ", ".join(names)
    return f"{what} must be one of {listed}, not {name!r}{hint}"

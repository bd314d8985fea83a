"""The digest of a unit's present Verilog at any parameters, with as few emissions as possible.

`synth.digests` keeps those of presets with figures on pages. The digests of all other forms are
kept in the build directory under the same keys.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hdl.entry import Entry
from hdl.paths import BUILD, locked
from hdl.target import Target
from synth.digests import Form, kept_digests, renewed, write_digests

DIGESTS = BUILD / "digests.json"


def present_verilog(
    entry: Entry, dimensions: str | Any, target: Target, progress: Callable[[str], None]
) -> str:
    """Return the digest of a unit's present Verilog; emit it only if no kept digest has its key.

    Parameters
    ----------
    entry : Entry
        The unit.
    dimensions : str or parameter object
        A preset's name, or a parameter object; see `hdl.entry.Entry.named`.
    target : Target
        The technology of the Verilog.
    progress : Callable
        Called with the unit and form that is emitted.
    """
    name, parameters = entry.named(dimensions)
    # Under the name of its module, a parameter object is a preset like others.
    entry, form = replace(entry, presets={name: parameters}), Form(name, target)
    known = [kept_digests().get(entry.top, {}), kept_digests(DIGESTS).get(entry.top, {})]
    digest = renewed(entry, form, known, progress)
    if digest not in [digests.get(form.name) for digests in known]:
        with locked(DIGESTS.with_suffix(".lock")):
            digests = kept_digests(DIGESTS)
            digests.setdefault(entry.top, {})[form.name] = digest
            write_digests(digests, DIGESTS)
    return digest.verilog

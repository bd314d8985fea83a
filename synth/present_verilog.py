"""The digest of a unit's present Verilog at any parameters, with as few emissions as possible.

`synth.digests` keeps those of presets with figures on pages. The digests of all other forms are
kept in the build directory under the same keys.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hdl.entry import Entry
from hdl.paths import BUILD, locked, replace_text
from hdl.target import Target
from synth.digests import (
    Digest,
    Form,
    kept_digests,
    parameters_key,
    present_digest,
    sources_key,
)

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
    own = {"parameters": parameters_key(entry, name), "sources": sources_key(entry, name)}
    for digests in (kept_digests(), kept_digests(DIGESTS)):
        known = digests.get(entry.top, {}).get(form.name)
        if known is not None and known == Digest(verilog=known.verilog, **own):
            return known.verilog
    progress(f"{entry.top} / {form.name}")
    digest = Digest(verilog=present_digest(entry, form), **own)
    with locked(DIGESTS.with_suffix(".lock")):
        digests = kept_digests(DIGESTS)
        digests.setdefault(entry.top, {})[form.name] = digest
        texts = {
            top: {key: vars(one) for key, one in forms.items()} for top, forms in digests.items()
        }
        replace_text(DIGESTS, json.dumps(texts, indent=1) + "\n")
    return digest.verilog

"""Descriptions of a unit's parameters: meaning, unit, legal values, values in presets."""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from hdl.parameters import Declared, OneOf, Part, declared


@dataclass(frozen=True, kw_only=True)
class Description:
    """One parameter.

    Parameters
    ----------
    path : str
        The parameter's name; ``part.name`` for the parameter of a part, such as ``array.rows``.
    meaning : str
        Description from the docstring of the class.
    field : Declared
        Type and legal values.
    """

    path: str
    meaning: str
    field: Declared

    @property
    def unit(self) -> str:
        """Unit of the value; empty for a choice or a part."""
        return self.field.rule.unit

    @property
    def legal(self) -> str:
        """The legal values in words; `meaning` contains the rules between parameters."""
        return f"{self.field.rule}, or none" if self.field.optional else str(self.field.rule)

    def value(self, parameters: Any) -> str:
        """Return the value as the command line accepts it; an empty string for a part."""
        value, rule = attrgetter(self.path)(parameters), self.field.rule
        if isinstance(rule, Part):
            return ""
        if value is None:
            return "none"
        if isinstance(rule, OneOf):
            return next((name for name, one in rule.values.items() if one == value), repr(value))
        return str(value)


def descriptions(kind: type, prefix: str = "") -> Iterator[Description]:
    """Describe every parameter of a class, each part before its own parameters."""
    for name, field in declared(kind).items():
        yield Description(path=prefix + name, meaning=_meaning(*field.source), field=field)
        if isinstance(field.rule, Part):
            yield from descriptions(field.rule.kind, f"{prefix}{name}.")


def settings_text(parameters: Any) -> str:
    """Return a parameter object as the TOML text that `hdl.settings.read_settings` reads."""
    lines = []
    for parameter in descriptions(type(parameters)):
        value, kind = parameter.value(parameters), parameter.field.kind
        if value:
            plain = kind is bool or (kind is int and value != "none")
            lines.append(f"{parameter.path} = {value if plain else json.dumps(value)}\n")
    return "".join(lines)


def _meaning(kind: type, name: str) -> str:
    """Return a parameter's description from the docstring of a class or of a base class."""
    texts = (_documented(base).get(name, "") for base in kind.__mro__)
    return next((text for text in texts if text and not text.startswith("As in ")), "")


@cache
def _documented(kind: type) -> dict[str, str]:
    """Return the descriptions in the section "Parameters" of a docstring, by parameter name."""
    lines = inspect.cleandoc(kind.__doc__ or "").split("\n")
    if "Parameters" not in lines:
        return {}
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in lines[lines.index("Parameters") + 2 :]:
        if re.match(r"-+$", line):
            break
        if match := re.match(r"(\w+(?:, \w+)*) : ", line):
            names = match[1].split(", ")
        elif line.startswith(" "):
            texts |= {name: f"{texts.get(name, '')} {line.strip()}".strip() for name in names}
    return texts

"""Conversion of user settings, ``lanes=16 array.rows=8`` or a TOML file, to a parameter object.

Settings map names of parameters to values; ``part.name`` is a parameter of a part. A value is text,
or a TOML number, boolean or list.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from hdl.errors import UserError, unknown
from hdl.parameter_list import descriptions
from hdl.parameters import Declared, OneOf, Parameters, Part

Adjusted = TypeVar("Adjusted", bound=Parameters)

BOOLEANS = {
    **dict[str, bool].fromkeys(("true", "yes", "on", "1"), True),
    **dict[str, bool].fromkeys(("false", "no", "off", "0"), False),
}
"""The texts of a boolean setting."""

Choice = TypeVar("Choice")


def parse_settings(text: str) -> dict[str, object]:
    """Read ``name=value`` pairs, separated by spaces.

    Raises
    ------
    UserError
        If a word is not such a pair, or a parameter occurs twice.
    """
    settings: dict[str, object] = {}
    for word in text.split():
        path, _equals, value = word.partition("=")
        if not (path and value):
            raise UserError(f"SET must be pairs such as lanes=16 or array.rows=16, not {word!r}")
        if path in settings:
            raise UserError(f"SET must set each parameter once, not {path} twice")
        settings[path] = value
    return settings


def read_settings(file: Path) -> dict[str, object]:
    """Read settings from a TOML file; a table with a part's name contains the part's parameters.

    Raises
    ------
    UserError
        If the file does not exist or is not TOML.
    """
    try:
        return dotted(tomllib.loads(file.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"PARAMETERS must be a TOML file, not {str(file)!r}: {error}") from error


def with_settings(what: str, parameters: Adjusted, settings: Mapping[str, object]) -> Adjusted:
    """Return a copy of a parameter object with settings applied.

    Parameters
    ----------
    what : str
        Name of the parameters' owner, for the message.
    parameters : Parameters
        The parameter object to copy.
    settings : Mapping[str, object]
        Values by the parameters' names.

    Raises
    ------
    UserError
        If a parameter does not exist (the message suggests the nearest name), or a value has the
        wrong type.
    ValueError
        If a value or a combination of values is not legal.
    """
    fields = {item.path: item.field for item in descriptions(type(parameters))}
    values = {path: _read(what, path, value, fields) for path, value in settings.items()}
    return with_values(parameters, values)


def with_values(parameters: Adjusted, values: Mapping[str, object]) -> Adjusted:
    """Return a copy of a parameter object with other values.

    All changes to a part are applied in one step, so that no intermediate combination is checked.

    Raises
    ------
    ValueError
        If the values are not legal.
    """
    changes = {path: value for path, value in values.items() if "." not in path}
    for part in dict.fromkeys(path.partition(".")[0] for path in values if "." in path):
        inner = {
            path.partition(".")[2]: value
            for path, value in values.items()
            if path.startswith(f"{part}.")
        }
        changes[part] = with_values(getattr(parameters, part), inner)
    return replace(parameters, **changes)


def _read(what: str, path: str, value: object, fields: Mapping[str, Declared]) -> object:
    """Convert a setting's value to the type of its field."""
    if path not in fields:
        known = [name for name, field in fields.items() if not isinstance(field.rule, Part)]
        raise UserError(unknown(f"a parameter of {what}", path, known))
    field, text = fields[path], str(value).lower()
    if field.optional and text == "none":
        return None
    match field.rule:
        case Part():
            names = ", ".join(name for name in fields if name.startswith(f"{path}."))
            raise UserError(f"{path} must be set by its parameters {names}, not {value!r}")
        case OneOf() if field.kind is bool and text in BOOLEANS:
            return BOOLEANS[text]
        case OneOf(values=values):
            return read_choice(path, value, values)
    return read_integer(path, value)


def read_choice(path: str, value: object, choices: Mapping[str, Choice]) -> Choice:
    """Return what a setting selects by its name in lower case.

    Raises
    ------
    UserError
        If there is no such name; the message suggests the nearest one.
    """
    text = str(value).lower()
    if text not in choices:
        raise UserError(unknown(path, str(value), choices))
    return choices[text]


def read_integer(path: str, value: object) -> int:
    """Return a setting as an integer; a text may have a prefix such as 0x.

    Raises
    ------
    UserError
        If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UserError(f"{path} must be an integer, not {value!r}")
    try:
        return int(value, 0) if isinstance(value, str) else value
    except ValueError as error:
        raise UserError(f"{path} must be an integer, not {value!r}") from error


def dotted(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return the entries of nested tables by dotted names."""
    flat: dict[str, object] = {}
    for name, value in table.items():
        inner = dotted(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {}
        flat |= inner or {prefix + name: value}
    return flat

"""From what a user writes to a parameter object: ``lanes=16 array.rows=8``, or a TOML file.

Settings are values by the parameters' names, a part's parameter by ``part.name``: text, or what
TOML has for numbers, booleans and lists.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hdl.errors import UserError, unknown
from hdl.parameter_list import descriptions
from hdl.parameters import Declared, OneOf, Part

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def parse_settings(text: str) -> dict[str, Any]:
    """Read ``name=value`` pairs, separated by blanks.

    Raises
    ------
    UserError
        If a word is no such pair, or names a parameter again.
    """
    settings: dict[str, Any] = {}
    for word in text.split():
        path, _equals, value = word.partition("=")
        if not (path and value):
            raise UserError(f"SET must be pairs such as lanes=16 or array.rows=16, not {word!r}")
        if path in settings:
            raise UserError(f"SET must name a parameter once, not {path} again")
        settings[path] = value
    return settings


def read_settings(file: Path) -> dict[str, Any]:
    """Read a TOML file; a part's parameters stand in a table of the part's name.

    Raises
    ------
    UserError
        If there is no such file, or it is not TOML.
    """
    try:
        return dotted(tomllib.loads(file.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"PARAMETERS must be a TOML file, not {str(file)!r}: {error}") from error


def with_settings(what: str, parameters: Any, settings: Mapping[str, Any]) -> Any:
    """Return a parameter object with settings in the place of its own values.

    Parameters
    ----------
    what : str
        Whose parameters they are, for the error's words.
    parameters : Any
        The parameter object to start from.
    settings : Mapping[str, Any]
        Values by the parameters' names.

    Raises
    ------
    UserError
        If there is no such parameter, or a value is not of its type; the message suggests the
        nearest name.
    ValueError
        If a value is not legal, or the values together are not.
    """
    fields = {item.path: item.field for item in descriptions(type(parameters))}
    values = {path: _read(what, path, value, fields) for path, value in settings.items()}
    return with_values(parameters, values)


def with_values(parameters: Any, values: Mapping[str, Any]) -> Any:
    """Return a parameter object with other values, each part changed and checked at once.

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


def _read(what: str, path: str, value: Any, fields: Mapping[str, Declared]) -> Any:
    """Return a setting's value as its field has it."""
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
        case OneOf() if field.kind is bool and text in TRUE + FALSE:
            return text in TRUE
        case OneOf(values=values) if text in values:
            return values[text]
        case OneOf(values=values):
            raise UserError(unknown(path, str(value), values))
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UserError(f"{path} must be an integer, not {value!r}")
    try:
        return int(value, 0) if isinstance(value, str) else value
    except ValueError as error:
        raise UserError(f"{path} must be an integer, not {value!r}") from error


def dotted(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return what nested tables hold, by dotted names."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        inner = dotted(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {}
        flat |= inner or {prefix + name: value}
    return flat

"""Rules that parameter objects and components check when they are built.

Every rule raises `ValueError` with one sentence that names the rule and quotes the value, so that
the command line can show it as it is.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any, TypeVar, dataclass_transform

Class = TypeVar("Class", bound=type)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def parameter_object(cls: Class) -> Class:
    """Make a frozen, keyword-only dataclass whose integers are Python's before its rules are asked.

    The rules are the class's own `__post_init__`. Integers of other libraries are equal to Python's
    and have the same hash, but neither their width nor their methods.
    """
    check = cls.__dict__["__post_init__"]

    def __post_init__(self: Any) -> None:
        for member in fields(self):
            object.__setattr__(self, member.name, plain(getattr(self, member.name)))
        check(self)

    cls.__post_init__ = __post_init__
    return dataclass(frozen=True, kw_only=True)(cls)


def plain(value: Any) -> Any:
    """Return an integer of whatever kind as Python's, also inside a tuple; all else as it is."""
    if type(value) is tuple:
        return tuple(map(plain, value))
    foreign = isinstance(value, Integral) and not isinstance(value, int)
    return int(value) if foreign else value


def require(condition: bool, rule: str, value: Any) -> None:
    """Raise a worded error unless `condition` holds.

    Parameters
    ----------
    condition : bool
        What must be true.
    rule : str
        The rule as the start of a sentence, such as ``"window must be at most slots"``.
    value : Any
        The offending value, quoted at the end of the sentence.

    Raises
    ------
    ValueError
        ``"<rule>, not <value>"`` if the condition is false.
    """
    if not condition:
        raise ValueError(f"{rule}, not {value!r}")


def require_range(name: str, value: Any, low: int, high: int) -> None:
    """Raise a worded error unless `value` is an integer from `low` to `high`, both included.

    Raises
    ------
    ValueError
        If the value is of another type or outside the range.
    """
    value = plain(value)
    integer = isinstance(value, int) and not isinstance(value, bool)
    require(
        integer and low <= value <= high, f"{name} must be an integer from {low} to {high}", value
    )


def require_power_of_two(name: str, value: Any, low: int, high: int) -> None:
    """Raise a worded error unless `value` is a power of two from `low` to `high`.

    Raises
    ------
    ValueError
        If the value is of another type, no power of two, or outside the range.
    """
    value = plain(value)
    integer = isinstance(value, int) and not isinstance(value, bool)
    require(
        integer and low <= value <= high and value & (value - 1) == 0,
        f"{name} must be a power of two between {low} and {high}",
        value,
    )


def require_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    """Raise a worded error unless `value` is one of `choices`.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    listed = ", ".join(repr(choice) for choice in choices)
    require(value in choices, f"{name} must be one of {listed}", value)

"""Rules that parameter objects and components check when they are built.

Every rule raises `ValueError` with one sentence that contains the rule and the value; the command
line prints it unchanged. A `Parameters` class declares the legal values of each field. The check,
the command line's listing and the property tests read that declaration.
"""

from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from numbers import Integral
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

Class = TypeVar("Class", bound=type)


def option(*, default: Any) -> Any:
    """Return a field of a parameter object that module names omit at its default.

    A new option therefore changes neither name nor identity of a unit that does not use it.
    """
    return field(default=default, metadata={"option": True})


def named_fields(value: Any) -> list[Field[Any]]:
    """Return the fields that a dataclass's name contains: all but options at their defaults."""
    return [
        one
        for one in fields(value)
        if not (one.metadata.get("option") and getattr(value, one.name) == one.default)
    ]


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, option))
def parameter_object(cls: Class) -> Class:
    """Make a frozen, keyword-only dataclass that converts integers to `int` before its checks.

    The checks are the class's `__post_init__`. Integers of other libraries are equal to Python's
    and have equal hashes, but differ in range and methods.
    """
    if check := cls.__dict__.get("__post_init__"):

        def __post_init__(self: Any) -> None:
            for member in fields(self):
                object.__setattr__(self, member.name, plain(getattr(self, member.name)))
            check(self)

        cls.__post_init__ = __post_init__
    # The class keeps its own `__repr__` if it defines one.
    plainly = cls.__repr__ is object.__repr__
    return dataclass(frozen=True, kw_only=True, repr=plainly)(cls)


def plain(value: Any) -> Any:
    """Convert integers of other libraries to `int`, also inside a tuple; keep all other values."""
    if type(value) is tuple:
        return tuple(map(plain, value))
    foreign = isinstance(value, Integral) and not isinstance(value, int)
    return int(value) if foreign else value


def require(condition: bool, rule: str, value: Any) -> None:
    """Check a condition.

    Parameters
    ----------
    condition : bool
        The condition that must hold.
    rule : str
        The rule as the start of a sentence, such as ``"window must be at most slots"``.
    value : Any
        The illegal value, which ends the sentence.

    Raises
    ------
    ValueError
        If the condition is false; the message is ``"<rule>, not <value>"``.
    """
    if not condition:
        raise ValueError(f"{rule}, not {value!r}")


def require_range(name: str, value: Any, low: int, high: int) -> None:
    """Check that `value` is an integer from `low` to `high`, both included.

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
    """Check that `value` is a power of two from `low` to `high`, both included.

    Raises
    ------
    ValueError
        If the value is of another type, not a power of two, or outside the range.
    """
    value = plain(value)
    integer = isinstance(value, int) and not isinstance(value, bool)
    require(
        integer and low <= value <= high and value & (value - 1) == 0,
        f"{name} must be a power of two between {low} and {high}",
        value,
    )


def require_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    """Check that `value` is one of `choices`.

    Raises
    ------
    ValueError
        If it is not.
    """
    listed = ", ".join(repr(choice) for choice in choices)
    require(value in choices, f"{name} must be one of {listed}", value)


@dataclass(frozen=True)
class Range:
    """Integers from `low` to `high`, both included.

    Parameters
    ----------
    low, high : int or str
        A bound, or the name of the parameter that is the bound.
    unit : str
        Unit of the value, such as ``"bytes"``.
    """

    low: int | str
    high: int | str
    unit: str

    def bounds(self, owner: Any) -> tuple[int, int]:
        """Return both bounds for a parameter object."""
        low, high = (
            attrgetter(bound)(owner) if isinstance(bound, str) else bound
            for bound in (self.low, self.high)
        )
        return low, high

    def check(self, name: str, value: Any, owner: Any) -> None:
        """Check the value of a parameter of `owner`; raise `ValueError` if it is not legal."""
        require_range(name, value, *self.bounds(owner))

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


class PowerOfTwo(Range):
    """Powers of two from `low` to `high`, both included."""

    def check(self, name: str, value: Any, owner: Any) -> None:
        """Check the value of a parameter of `owner`; raise `ValueError` if it is not legal."""
        require_power_of_two(name, value, *self.bounds(owner))

    def __str__(self) -> str:
        return f"power of two, {super().__str__()}"


@dataclass(frozen=True)
class OneOf:
    """A set of named values; booleans and enumerations need no such declaration."""

    values: Mapping[str, Any]
    unit: str = ""

    def check(self, name: str, value: Any, owner: Any) -> None:
        """Check the value of a parameter of `owner`; raise `ValueError` if it is not legal."""
        require_choice(name, value, list(self.values.values()))

    def __str__(self) -> str:
        return ", ".join(self.values)


class Named(OneOf):
    """Named examples of legal values; the parameter object's own rule accepts others as well."""

    def check(self, name: str, value: Any, owner: Any) -> None:
        """Accept every value, because the parameter object checks it."""


@dataclass(frozen=True)
class Part:
    """A nested parameter object."""

    kind: type
    unit: str = ""

    def check(self, name: str, value: Any, owner: Any) -> None:
        """Check the class of the part, which has checked its own values."""
        require(isinstance(value, self.kind), f"{name} must be a {self.kind.__name__}", value)

    def __str__(self) -> str:
        return ""


@dataclass(frozen=True)
class As:
    """Declares that a parameter equals one of another class, with the same name by default."""

    kind: type
    name: str = ""


@dataclass(frozen=True)
class Declared:
    """The declaration of a parameter.

    Parameters
    ----------
    kind : type
        Type of the values other than `None`.
    rule : Range or OneOf or Part
        Legal values.
    optional : bool
        Whether the value may be `None`.
    source : tuple[type, str]
        The class that describes the parameter, and the name there.
    """

    kind: type
    rule: Range | OneOf | Part
    optional: bool
    source: tuple[type, str]


@cache
def declared(kind: type) -> dict[str, Declared]:
    """Return the declarations of a class of parameter objects by the names of its fields."""
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: _declared(kind, one.name, hints[one.name]) for one in fields(kind)}


def _declared(owner: type, name: str, hint: Any) -> Declared:
    """Return the declaration in one field's annotation."""
    annotated = get_origin(hint) is Annotated
    value, *notes = get_args(hint) if annotated else (hint,)
    kinds = [kind for kind in get_args(value) or (value,) if kind is not type(None)]
    optional = len(get_args(value)) > 1
    kind: type = kinds[0]
    match notes:
        case [As(kind=other, name=other_name)]:
            shared = declared(other)[other_name or name]
            return Declared(kind, shared.rule, optional, shared.source)
        case [Range() | OneOf() as rule]:
            return Declared(kind, rule, optional, (owner, name))
    if kind is bool:
        rule = OneOf({"false": False, "true": True})
    elif issubclass(kind, Enum):
        rule = OneOf({item.name.lower(): item for item in kind})
    elif is_dataclass(kind):
        rule = Part(kind)
    else:
        raise TypeError(f"{owner.__name__}.{name} must declare its legal values, not {hint!r}")
    return Declared(kind, rule, optional, (owner, name))


@parameter_object
class Parameters:
    """Base class of a unit's parameter object, which checks each field against its declaration.

    A subclass with rules between its parameters extends `__post_init__` and checks them last.
    """

    def __post_init__(self) -> None:
        """Check each parameter separately."""
        for name, declaration in declared(type(self)).items():
            value = getattr(self, name)
            if value is not None or not declaration.optional:
                declaration.rule.check(name, value, self)

    def __repr__(self) -> str:
        """Return the constructor call, without options at their defaults."""
        values = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in named_fields(self))
        return f"{type(self).__qualname__}({values})"

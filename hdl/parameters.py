"""Rules that parameter objects and components check when they are built.

Every rule raises `ValueError` with one sentence that names the rule and quotes the value, so that
the command line can show it as it is. A `Parameters` class declares with each field which values
are legal; the check, the command line's listing and the property tests all read that declaration.
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
    """Return a field of a parameter object that says nothing in names where it has its default.

    A unit without an option is the same module, by the same name, as if there were none.
    """
    return field(default=default, metadata={"option": True})


def told_fields(value: Any) -> list[Field[Any]]:
    """Return the fields of a dataclass that its name tells: all but options at their default."""
    return [
        one
        for one in fields(value)
        if not (one.metadata.get("option") and getattr(value, one.name) == one.default)
    ]


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, option))
def parameter_object(cls: Class) -> Class:
    """Make a frozen, keyword-only dataclass whose integers are Python's before its rules are asked.

    The rules are the class's `__post_init__`. Integers of other libraries are equal to Python's
    and have the same hash, but neither their width nor their methods.
    """
    if check := cls.__dict__.get("__post_init__"):

        def __post_init__(self: Any) -> None:
            for member in fields(self):
                object.__setattr__(self, member.name, plain(getattr(self, member.name)))
            check(self)

        cls.__post_init__ = __post_init__
    # Python's own representation, unless the class has one.
    plainly = cls.__repr__ is object.__repr__
    return dataclass(frozen=True, kw_only=True, repr=plainly)(cls)


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


@dataclass(frozen=True)
class Range:
    """Integers from `low` to `high`, both included.

    Parameters
    ----------
    low, high : int or str
        A bound, or the name of the parameter that is the bound.
    unit : str
        What the parameter counts.
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
        """Raise a worded error unless a parameter of `owner` has a legal value."""
        require_range(name, value, *self.bounds(owner))

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


class PowerOfTwo(Range):
    """Powers of two from `low` to `high`, both included."""

    def check(self, name: str, value: Any, owner: Any) -> None:
        """Raise a worded error unless a parameter of `owner` has a legal value."""
        require_power_of_two(name, value, *self.bounds(owner))

    def __str__(self) -> str:
        return f"power of two, {super().__str__()}"


@dataclass(frozen=True)
class OneOf:
    """Some values, each with a name; booleans and enumerations are such without a declaration."""

    values: Mapping[str, Any]
    unit: str = ""

    def check(self, name: str, value: Any, owner: Any) -> None:
        """Raise a worded error unless a parameter of `owner` has a legal value."""
        require_choice(name, value, list(self.values.values()))

    def __str__(self) -> str:
        return ", ".join(self.values)


class Named(OneOf):
    """Values with names among others that the parameter object's own rule accepts."""

    def check(self, name: str, value: Any, owner: Any) -> None:
        """Leave the check to the parameter object."""


@dataclass(frozen=True)
class Part:
    """A parameter object of its own."""

    kind: type
    unit: str = ""

    def check(self, name: str, value: Any, owner: Any) -> None:
        """Raise a worded error unless the part has its class; it has checked itself."""
        require(isinstance(value, self.kind), f"{name} must be a {self.kind.__name__}", value)

    def __str__(self) -> str:
        return ""


@dataclass(frozen=True)
class As:
    """Declares that a parameter is that of another class, by the same name if none is given."""

    kind: type
    name: str = ""


@dataclass(frozen=True)
class Declared:
    """What a field says of a parameter.

    Parameters
    ----------
    kind : type
        Of its values, `None` aside.
    rule : Range or OneOf or Part
        Its legal values.
    optional : bool
        Whether it may be `None`.
    source : tuple[type, str]
        The class and the name under which it is described.
    """

    kind: type
    rule: Range | OneOf | Part
    optional: bool
    source: tuple[type, str]


@cache
def declared(kind: type) -> dict[str, Declared]:
    """Return what a class of parameter objects declares, by the names of its fields."""
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: _declared(kind, one.name, hints[one.name]) for one in fields(kind)}


def _declared(owner: type, name: str, hint: Any) -> Declared:
    """Read one field's annotation."""
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
    """Base of a unit's parameter object: each field is checked as it is declared.

    A subclass with rules between its parameters checks them in its `__post_init__`, after this.
    """

    def __post_init__(self) -> None:
        """Check each parameter by itself."""
        for name, said in declared(type(self)).items():
            value = getattr(self, name)
            if value is not None or not said.optional:
                said.rule.check(name, value, self)

    def __repr__(self) -> str:
        """Return what it was built with, without options at their default."""
        said = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in told_fields(self))
        return f"{type(self).__qualname__}({said})"

"""The base class of every component that is a separate Verilog module.

Amaranth writes one Verilog module per instance. A `Unit` is written once per distinct
configuration: emission replaces every `Unit` below the top by an instance of a separately emitted
module. In the Python simulator and in formal proofs, the same design elaborates flat. Neither the
unit nor its user needs code for this.
"""

import hashlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from amaranth.hdl import Elaboratable
from amaranth.lib import wiring

from hdl.parameters import named_fields, plain

LONGEST_READABLE_NAME = 56
"""Maximum length, in characters, of a module name that contains the configuration's values."""


@runtime_checkable
class ModuleBoundary(Protocol):
    """A platform that may replace units by instances, such as `hdl.emit.Emission`."""

    def boundary(self, unit: "Unit") -> Elaboratable | None:
        """Return the unit's replacement in its parent, or None to elaborate it in place."""
        ...


class _UnitType(type):
    """Converts integers of other libraries, such as numpy, to `int` in every configuration."""

    def __call__(cls, **arguments: Any) -> Any:
        """Build a unit."""
        return super().__call__(**{name: plain(value) for name, value in arguments.items()})


class Unit(wiring.Component, metaclass=_UnitType):
    """A component that is emitted as one Verilog module for each distinct configuration.

    Subclasses take keyword-only, hashable constructor arguments, which are the configuration. Two
    units of one class with equal configurations are the same module.

    Members
    -------
    configuration : Mapping[str, Any]
        The constructor arguments by name, defaults included.
    module_name : str
        Name of the Verilog module: the class name and the configuration's values, or their digest
        if the name would exceed `LONGEST_READABLE_NAME` characters.
    """

    configuration: Mapping[str, Any]

    def __new__(cls, *, src_loc_at: int = 0, **arguments: Any) -> Self:
        """Record the configuration before the subclass's constructor runs."""
        # The call that builds the unit is two stack frames up.
        unit: Any = super().__new__(cls, src_loc_at=2 + src_loc_at)  # pyright: ignore[reportCallIssue]
        unit.configuration = MappingProxyType(cls._configured(arguments))
        return unit

    @classmethod
    def _configured(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor arguments by name, defaults included."""
        bound = inspect.signature(cls.__init__).bind(None, **arguments)
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[1:])

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Let the platform replace the unit by an instance before its body is elaborated."""
        super().__init_subclass__(**arguments)
        if "elaborate" not in cls.__dict__:
            return
        body = cls.__dict__["elaborate"]

        def elaborate(self: "Unit", platform: Any) -> Any:
            if isinstance(platform, ModuleBoundary):
                replacement = platform.boundary(self)
                if replacement is not None:
                    return replacement
            return body(self, platform)

        elaborate.__doc__ = body.__doc__
        cls.elaborate = elaborate

    if TYPE_CHECKING:
        # Subclasses declare their arguments.
        def __init__(self, signature: Any = None, **arguments: Any) -> None: ...

        # Members of the signature are attributes at run time only.
        def __getattr__(self, name: str) -> Any: ...

    @property
    def identity(self) -> tuple[Any, ...]:
        """Class and configuration; units with equal identities are the same module."""
        return (type(self), *self.configuration.items())

    @property
    def module_name(self) -> str:
        """Name of the emitted module, which is equal in every design and every run."""
        return self.named(**self.configuration)

    @classmethod
    def named(cls, **arguments: Any) -> str:
        """Return the `module_name` that a unit with these constructor arguments would have."""
        configuration = cls._configured(arguments)
        stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        words = [word for value in configuration.values() for word in _words(value)]
        readable = "_".join([stem, *words])
        if len(readable) <= LONGEST_READABLE_NAME and re.fullmatch(r"\w+", readable, re.ASCII):
            return readable
        digest = hashlib.sha256(repr(list(configuration.items())).encode()).hexdigest()
        return f"{stem}_{digest[:8]}"


def _words(value: Any) -> list[str]:
    """Return the parts of an identifier that represent a configuration value."""
    if is_dataclass(value) and not isinstance(value, type):
        words = []
        for field in named_fields(value):
            # The name contains only options that differ from their defaults, so it must identify
            # them.
            words += [field.name] if "option" in field.metadata else []
            words += _words(getattr(value, field.name))
        return words
    if isinstance(value, tuple):
        return [word for item in value for word in _words(item)]
    if isinstance(value, Enum):
        return [value.name.lower()]
    if isinstance(value, int):
        return [str(int(value)).replace("-", "m")]
    return [str(value).lower()]

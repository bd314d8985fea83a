"""The policies by name, and the check of a policy that someone else has written.

A package adds a policy by an entry point of the group `systola.policies`, whose value refers to a
policy object. A file defines one policy object.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from golden.policies.protocol import CachePolicy, Hardware, Policy, Query, Unit
from golden.policies.scores import H2O, Aerp, FullCache, Source, StreamingLLM, TrackedAerp
from golden.policies.voting import Voting
from hdl.errors import UserError, unknown
from hdl.paths import ROOT, expanded
from hdl.settings import BOOLEANS, read_choice, read_integer

GROUP = "systola.policies"

FULL_CACHE = "full_cache"
BUILT_IN: dict[str, Policy] = {
    FULL_CACHE: FullCache(),
    "streaming_llm": StreamingLLM(),
    "h2o": H2O(),
    "aerp": Aerp(),
    "aerp_raw": Aerp(source=Source.RAW),
    "aerp_integers": Aerp(source=Source.INTEGER),
    "aerp_centred": TrackedAerp(source=Source.CENTRED),
    "voting": Voting(),
    "voting_without_fallback": Voting(fallback=False),
}
"""The project's own policies, with their default budgets."""

MEMBERS = ("begin", "score", "protect", "evict", "trim")
"""Methods of a policy."""

TRIAL = 512
"""Number of slots in the trial of a policy whose budget is not smaller; it evicts nothing."""


@dataclass(frozen=True)
class Named:
    """A policy and its name.

    Parameters
    ----------
    name : str
        Name for tables and messages.
    policy : Any
        The policy object, which satisfies `CachePolicy`.
    """

    name: str
    policy: Any

    def identity(self) -> dict[str, str]:
        """Return all that decides the policy's decisions, besides the code of this project."""
        sources = {}
        for kind in type(self.policy).__mro__:
            file = getattr(sys.modules[kind.__module__], "__file__", None)
            if file and not Path(file).resolve().is_relative_to(ROOT / "golden"):
                sources[kind.__qualname__] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        return {"policy": repr(self.policy), **sources}

    @property
    def hardware(self) -> Hardware | None:
        """The unit that implements the policy, if there is one."""
        return getattr(self.policy, "hardware", None)

    def adjusted(self, budget: int | None, reserved: int | None) -> "Named":
        """Return the policy with other values of these fields.

        Raises
        ------
        UserError
            If the policy has no such field.
        ValueError
            If a value is not legal.
        """
        changes = {"budget": budget, "reserved": reserved}
        changes = {name: value for name, value in changes.items() if value is not None}
        for name in changes:
            if name not in self.policy.__dataclass_fields__:
                raise UserError(f"{name.upper()} is not for {self.name}, which has no such field")
        return self.changed(changes)

    def changed(self, settings: Mapping[str, Any]) -> "Named":
        """Return the policy with other values of fields; a text is converted to the field's type.

        Raises
        ------
        UserError
            If the policy has no such field, or a value has the wrong type.
        ValueError
            If a value is not legal.
        """
        known = {field.name: getattr(self.policy, field.name) for field in fields(self.policy)}
        for name in settings:
            if name not in known:
                raise UserError(unknown(f"a field of {self.name}", name, known))
            if name == "budget" and isinstance(self.policy, FullCache):
                raise UserError(f"BUDGET is not for {self.name}, which keeps every token")
        values = {name: _read(name, value, known[name]) for name, value in settings.items()}
        return Named(self.name, replace(self.policy, **values))


def _read(name: str, value: Any, known: Any) -> Any:
    """Convert a field's value to the type of a known value."""
    if isinstance(known, bool):
        return read_choice(name, value, BOOLEANS)
    if isinstance(known, Enum):
        return read_choice(name, value, {item.name.lower(): item for item in type(known)})
    if isinstance(known, int):
        return read_integer(name, value)
    if not isinstance(known, float | str):
        raise UserError(f"{name} must be a number, a text or an enumeration to be set")
    try:
        return type(known)(value)
    except ValueError as error:
        raise UserError(f"{name} must be of type {type(known).__name__}, not {value!r}") from error


def all_policies() -> Iterator[Named]:
    """Yield the project's own policies, then those of packages.

    Raises
    ------
    UserError
        If a package's policy is not usable.
    """
    yield from map(policy_named, [*BUILT_IN, *_entry_points()])


def policy_named(text: str) -> Named:
    """Return the policy that a name or a file's path selects.

    Raises
    ------
    UserError
        If there is no such name, if the file defines no policy or several, or if the object does
        not have the members of `CachePolicy`.
    """
    if text.endswith(".py"):
        return _from_file(expanded(text, "POLICY"))
    if text in BUILT_IN:
        return Named(text, BUILT_IN[text])
    others = _entry_points()
    if text not in others:
        known = unknown("POLICY", text, [*BUILT_IN, *others])
        raise UserError(f"{known}; a file's name ends in .py")
    return Named(text, checked(_loaded(others[text]), f"POLICY {text}"))


def _entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of installed packages by name."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in BUILT_IN or found.get(point.name, point).value != point.value:
            raise UserError(f"two packages must not define the same POLICY {point.name!r}")
        found[point.name] = point
    return found


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    # What a package raises when it is imported is its own affair.
    except Exception as error:
        raise UserError(f"POLICY {point.name} must be importable: {_sentence(error)}") from error


def _from_file(file: Path) -> Named:
    """Return the one policy object of a file."""
    if not file.is_file():
        raise UserError(f"POLICY must be a file that exists, not {str(file)!r}")
    # A name of its own, so that no file replaces an installed module.
    spec = spec_from_file_location(f"systola_policy_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"POLICY {file} must run without errors: {_sentence(error)}") from error
    found = {
        name: value
        for name, value in vars(module).items()
        if callable(getattr(value, "score", None)) and not inspect.isclass(value)
    }
    if len({id(value) for value in found.values()}) != 1:
        names = f"{len(found)}: {', '.join(found)}" if found else "none"
        raise UserError(
            f"POLICY {file} must define one policy object, such as `policy = Mine()`, not {names}"
        )
    (value, *_) = found.values()
    return Named(file.stem, checked(value, f"POLICY {file}"))


def checked(policy: Any, what: str) -> Any:
    """Return a policy after a check of its members and a trial on random scores.

    Parameters
    ----------
    policy : Any
        The object.
    what : str
        Its description, for the message.

    Raises
    ------
    UserError
        If the object is no frozen dataclass, lacks a member of `CachePolicy`, or if a member has
        other parameters or returns another shape or type.
    """
    dataclass_object = is_dataclass(policy) and not inspect.isclass(policy)
    if not dataclass_object:
        raise UserError(f"{what} must be an object of a dataclass, not {policy!r}")
    values = {name: getattr(policy, name, None) for name in ("budget", "prefill", "unit", "moves")}
    for name, value in values.items():
        if value is None:
            raise UserError(f"{what} must have the member {name}, as golden.policies.protocol has")
        kind = {"unit": Unit, "moves": bool}.get(name, int)
        if not isinstance(value, kind):
            raise UserError(f"{what}: {name} must be of type {kind.__name__}, not {value!r}")
    hardware = getattr(policy, "hardware", None)
    if not isinstance(hardware, Hardware | None):
        raise UserError(
            f"{what}: hardware must be a golden.policies.protocol.Hardware, not {hardware!r}"
        )
    for name in MEMBERS:
        own = getattr(policy, name, None)
        if not callable(own):
            raise UserError(f"{what} must have the method {name}")
        wanted = _parameters(getattr(CachePolicy, name))[1:]
        if (given := _parameters(own)) != wanted:
            raise UserError(
                f"{what}: {name} must have the parameters ({', '.join(wanted)}), "
                f"not ({', '.join(given)})"
            )
    _try(policy, what)
    return policy


def _parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def _try(policy: Any, what: str) -> None:
    """Call each method on random scores of two lanes, and check what it returns."""
    slots = policy.budget + 1 if policy.budget < TRIAL else TRIAL
    caches, heads = 3, 2
    raw = torch.randn(2, caches, heads, slots, generator=torch.Generator().manual_seed(1))
    positions = torch.arange(slots).expand(2, caches, slots).clone()
    query = Query(slots - 1, positions, raw, raw.softmax(-1))

    def result(name: str, kind: torch.dtype | None, size: int, *given: Any) -> Tensor:
        made = _called(policy, what, name, *given)
        shape = (2, caches, size)
        if not isinstance(made, Tensor) or made.shape != shape:
            got = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            raise UserError(f"{what}: {name} must return a tensor of shape {shape}, not {got}")
        if kind and made.dtype != kind:
            raise UserError(f"{what}: {name} must return {kind}, not {made.dtype}")
        return made

    rule = _called(policy, what, "begin", 2, caches, slots)
    if not isinstance(rule, CachePolicy):
        raise UserError(f"{what}: begin must return a policy, not {type(rule).__name__}")
    importance = torch.zeros(2, caches, slots, dtype=torch.float64)
    scored = result("score", None, slots, importance, query).double()
    if not bool(scored.isfinite().all()):
        raise UserError(f"{what}: score must return finite numbers")
    protected = result("protect", torch.bool, slots, query)
    if policy.budget < slots:
        victim = result("evict", torch.int64, 1, scored, protected)
        if bool(((victim < 0) | (victim >= slots)).any()):
            raise UserError(f"{what}: evict must return slots from 0 to {slots - 1}")
        result("trim", torch.int64, policy.budget, scored, protected)


def _called(policy: Any, what: str, name: str, *given: Any) -> Any:
    method: Callable[..., Any] = getattr(policy, name)
    try:
        return method(*given)
    # The policy is not part of this project.
    except Exception as error:
        raise UserError(f"{what}: {name} fails: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

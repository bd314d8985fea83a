"""The designs that ``compare`` compares, and the commands that measure them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from amaranth.utils import ceil_log2

from hdl.catalog import entry_named
from hdl.entry import Entry
from hdl.errors import UserError
from hdl.parameter_list import descriptions
from hdl.settings import parse_settings
from synth.comparison import System
from systola.generate import adapter_of, cache_settings, fitted_system
from systola.options import choose, path_shown
from testbenches.external_memory import memory_of

LONG_TOKENS = 32
"""Tokens of a run that measures the cost of a cached token."""

MEMORY_TOKENS = 2
"""Tokens of a run with an external memory, of which the second one is measured."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A call of make: the verb, and the values of its variables by name."""

    verb: str
    variables: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> "Command":
        """Read a command line."""
        _make, verb, *words = shlex.split(text)
        return cls(verb=verb, variables=dict(word.split("=", 1) for word in words))

    def changed(self, variables: Mapping[str, str]) -> "Command":
        """Return the command with other values; an empty value removes the variable."""
        merged = {**self.variables, **variables}
        return replace(self, variables={name: value for name, value in merged.items() if value})

    def __str__(self) -> str:
        words = (f"{name}={shlex.quote(value)}" for name, value in self.variables.items())
        return " ".join(["make", self.verb, *words])


def kept_commands(kept: System) -> dict[str, Command]:
    """Return a system's commands of `docs/comparison.json`: by verb, and ``waves``."""
    found: dict[str, Command] = {}
    for command in map(Command.read, kept["commands"].values()):
        found.setdefault("waves" if "WAVES" in command.variables else command.verb, command)
    return found


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What the user selects: a system, its preset, changes of parameters, and the cache.

    Parameters
    ----------
    top : str
        The system.
    preset : str, optional
        The preset that the settings modify; the unit's default if it is not given.
    settings : Mapping[str, object]
        Values by the parameters' names.
    budget : int, optional
        Tokens that a layer caches, for a system whose parameters do not set them.
    """

    top: str
    preset: str | None
    settings: Mapping[str, object]
    budget: int | None = None

    @classmethod
    def of(cls, *commands: Command) -> "Choice":
        """Return the choice of a command, with the variables of further ones on top."""
        preset, settings, budget = None, dict[str, object](), None
        for command in commands:
            own = command.variables
            preset = own.get("PRESET", preset)
            settings |= parse_settings(own.get("SET", ""))
            budget = int(own["BUDGET"]) if "BUDGET" in own else budget
        return cls(
            top=commands[0].variables["TOP"], preset=preset, settings=settings, budget=budget
        )

    @property
    def variables(self) -> dict[str, str]:
        """The variables of make that select it; empty ones are not set."""
        return {
            "PRESET": self.preset or "",
            "SET": " ".join(f"{name}={value}" for name, value in self.settings.items()),
            "BUDGET": str(self.budget or ""),
        }

    def parameters(self) -> Any:
        """Return the parameter object, not yet fitted to a model."""
        return choose(self.top, self.preset, None, self.variables["SET"]).parameters

    def with_budget(self, budget: int) -> "Choice":
        """Return the choice with another number of cached tokens, if the system evicts any.

        Raises
        ------
        UserError
            If the settings contain the number already.
        """
        if self.top != "kelle":
            budgets = adapter_of(self.top).budgets
            return replace(self, budget=budget) if budgets else self
        if "slots" in self.settings:
            raise UserError("BUDGET sets slots and window of kelle: SET must not set slots too")
        # As in the rows of the page, half of the slots hold the latest tokens. The eDRAM has the
        # smallest legal size, which `KelleSystem.fitted` enlarges for all layers.
        settings = {**self.settings, "slots": budget, "window": budget // 2}
        edram = replace(self, settings={**settings, "words": 1 << 16}).parameters().memory.edram
        needed = 1 << ceil_log2(edram.entries * edram.entry_words)
        words = max(self.parameters().words, needed)
        return replace(self, settings={**settings, "words": words})


def choices(
    tops: Sequence[str],
    presets: Sequence[str],
    settings: Mapping[str, object],
    budget: int | None,
    kept: Mapping[str, System],
) -> list[Choice]:
    """Return one choice per column.

    Without a preset, a system has the dimensions of the run in `docs/comparison.json`. Settings add
    a column with the changed parameters.

    Raises
    ------
    UserError
        If several systems have two presets or settings, or settings are given with two presets.
    """
    if len(tops) > 1 and (settings or len(presets) > 1):
        raise UserError(f"SET and a second PRESET need one TOP, not {' '.join(tops)}")
    if len(presets) > 2 or (len(presets) == 2 and settings):
        raise UserError("PRESET must be one preset, or two without SET, to compare two designs")
    found = []
    for top in tops:
        run = replace(Choice.of(kept_commands(kept[top])["generate"]), budget=None)
        plain = [Choice(top=top, preset=preset, settings={}) for preset in presets] or [run]
        found += plain
        if settings:
            found.append(replace(plain[0], settings={**plain[0].settings, **settings}))
    return [one.with_budget(budget) for one in found] if budget else found


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A design with an external memory.

    Parameters
    ----------
    variables : Mapping[str, str]
        The variables of make that select memory and clock.
    system : systola.generation.system.System
        The adapter with this memory; parameters that depend on it may differ.
    """

    variables: Mapping[str, str]
    system: Any


@dataclass(frozen=True, kw_only=True)
class Design:
    """A system with all parameters, of which nothing has been compiled.

    Parameters
    ----------
    choice : Choice
        What the user selected.
    system : systola.generation.system.System
        The adapter, with the parameters that fit the language model.
    kept : System
        The system's entry in `docs/comparison.json`.
    timed : Timed, optional
        The design with an external memory, if one is selected that it can use.
    """

    choice: Choice
    system: Any
    kept: System
    timed: Timed | None = None

    @classmethod
    def open(cls, choice: Choice, model: Any, kept: System) -> "Design":
        """Return the design of a choice for a language model.

        Raises
        ------
        UserError or ValueError
            If the preset, a parameter or the budget is not legal.
        """
        adapter = adapter_of(choice.top)
        chosen = choose(choice.top, choice.preset, None, choice.variables["SET"])
        settings = cache_settings(adapter, choice.budget, None)
        return cls(choice=choice, system=fitted_system(adapter, model, chosen, settings), kept=kept)

    def with_memory(self, memory: str, clock: int | None) -> "Design":
        """Return the design with an external memory, if it can use it.

        Parameters
        ----------
        memory : str
            The option MEMORY.
        clock : int, optional
            Clock in MHz.
        """
        own, choice = self.system, self.choice
        wanted = replace(own.settings, memory=memory_of(memory), clock=clock or own.clock_mhz)
        chosen = choose(choice.top, choice.preset, None, choice.variables["SET"])
        try:
            system = fitted_system(type(own), own.model, chosen, wanted)
        except ValueError:
            # P3-LLM's banks are those of one memory.
            return self
        variables = {"MEMORY": memory, "CLOCK": "" if clock is None else f"{clock}"}
        return replace(self, timed=Timed(variables=variables, system=system))

    @property
    def entry(self) -> Entry:
        """The unit."""
        return entry_named(self.choice.top)

    @property
    def dimensions(self) -> str | Any:
        """The preset that equals the parameters, or else the parameter object."""
        name = self.system.folder.parent.name
        return name if name in self.entry.presets else self.system.p

    @property
    def cached(self) -> int | None:
        """Maximum number of tokens that a layer caches; None if it evicts none."""
        if not self.system.evicts:
            return None
        return self.system.settings.budget if self.system.budgets else self.system.p.slots

    def equals(self, other: "Design") -> bool:
        """Return whether both have the same parameters and the same cache."""
        return (self.system.p, self.cached) == (other.system.p, other.cached)

    def of_commands(self, *commands: Command) -> "Design":
        """Return the design of commands of `docs/comparison.json`."""
        return Design.open(Choice.of(*commands), self.system.model, self.kept)

    @cached_property
    def run(self) -> "Design":
        """The design that `docs/comparison.json` has the run of."""
        return self.of_commands(kept_commands(self.kept)["generate"])

    def commands(self, liberty: str | None, context: int | None) -> dict[str, str]:
        """Return the commands that measure the design, in their order.

        They are those of `docs/comparison.json` with this design's parameters.

        Parameters
        ----------
        liberty : str, optional
            Path of the cell library.
        context : int, optional
            Number of cached tokens, whose cost needs a longer run.
        """
        kept, chosen = kept_commands(self.kept), self.choice.variables
        library = {"LIBERTY": liberty} if liberty else {}
        waves = {"VCD": str(path_shown(self.system.folder / "waves.vcd"))}
        tokens = max(int(kept["generate"].variables["TOKENS"]), LONG_TOKENS if context else 0)
        changes = {
            "perplexity": chosen,
            "generate": chosen | {"TOKENS": str(tokens)},
            "synth": self._fitted | library,
            "waves": chosen,
            "power": self._fitted | waves | library,
        }
        if self.timed:
            short = {"TOKENS": str(MEMORY_TOKENS)}
            changes["memory"] = chosen | short | dict(self.timed.variables)
        verbs = {"memory": "generate"}
        return {
            kind: str(kept[verbs.get(kind, kind)].changed(own)) for kind, own in changes.items()
        }

    @property
    def _fitted(self) -> dict[str, str]:
        """The variables that select the parameters fitted to the model."""
        if isinstance(self.dimensions, str):
            return {"PRESET": self.dimensions, "SET": ""}
        preset = self.choice.preset or self.entry.default
        before, after = self.entry.parameters(preset), self.system.p
        values = {
            one.path: value
            for one in descriptions(type(after))
            if (value := one.value(after)) != one.value(before)
        }
        return {
            "PRESET": preset,
            "SET": " ".join(f"{name}={value}" for name, value in values.items()),
        }

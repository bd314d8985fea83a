"""The console, the options that several verbs share, and the unit that these options select."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from hdl.errors import UserError
from hdl.output_folder import MANIFEST, require_replaceable
from hdl.paths import BUILD, IN_CHECKOUT, ROOT, expanded, replace_text
from systola import environment

console = Console(soft_wrap=True)

PARAMETERS_FILE = "parameters.toml"
"""File in the folder of a run with changed parameters; the option PARAMETERS accepts this file."""

PACKED = "weights.packed"
"""File of packed weights in the folder that the verb ``pack`` writes."""


class UserPath(click.ParamType):
    """A path in which `~` is expanded."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path; reject an empty one."""
        variable = (param.name if param and param.name else self.name).upper()
        if not value:
            raise UserError(f"{variable} must name a file or a folder, not ''")
        return expanded(value, variable)


class _OutputFolder(UserPath):
    """A folder that a verb may write; an illegal one is rejected before any work."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the folder's path."""
        folder = super().convert(value, param, ctx)
        require_replaceable(folder)
        return folder


top_option = click.option("--top", help="Unit, as listed by `make list`.")
policy_option = click.option(
    "--policy", help="Cache policy, a name or a file (.py): the unit of its rule."
)
preset_option = click.option(
    "--preset", help="Dimensions; `smollm2` if the unit has it, else its first preset."
)
parameters_option = click.option(
    "--parameters", type=UserPath(), help="TOML file with changes to the preset."
)
settings_option = click.option(
    "--set", "settings", default="", help="More changes: lanes=16 array.rows=8."
)
target_option = click.option(
    "--target", default="asic", help="asic, or fpga, whose tools build adders and multipliers."
)


def out_option(default: str) -> Callable[[Any], Any]:
    """Return the option `--out` with a default folder for the help text."""
    return click.option(
        "--out",
        type=_OutputFolder(),
        help=f"Folder, {default} if absent. It must be new, empty, or written by a verb. "
        f"The verb replaces only unchanged files that {MANIFEST} in the folder lists.",
    )


def name_option(default: str) -> Callable[[Any], Any]:
    """Return the option `--name` with a default name of the top module for the help text."""

    def checked(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
        from hdl.verilog_names import require_module_name

        try:
            if value is not None:
                require_module_name(value)
        except ValueError as error:
            raise UserError(f"NAME must name a module: {error}") from error
        return value

    return click.option(
        "--name", callback=checked, help=f"Name of the top module, {default} if absent."
    )


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The unit and the dimensions that the user selected.

    Parameters
    ----------
    entry : hdl.entry.Entry
        The unit.
    dimensions : str or parameter object
        A preset's name, or the preset with the settings applied; see `hdl.entry.Entry.named`.
    policy : str
        Name of the cache policy that the unit implements, if `POLICY` selected the unit.
    """

    entry: Any
    dimensions: Any
    policy: str = ""

    @property
    def top(self) -> str:
        """Name of the unit."""
        return self.entry.top

    @property
    def preset(self) -> str:
        """Name of the dimensions, and of the folder of their results."""
        return self.entry.named(self.dimensions)[0]

    @property
    def configured_name(self) -> str:
        """A module name that is unique to the unit and its dimensions."""
        return f"{self.top}_{self.preset}" if isinstance(self.dimensions, str) else self.preset

    @property
    def parameters(self) -> Any:
        """The parameter object of the dimensions."""
        return self.entry.named(self.dimensions)[1]

    @property
    def title(self) -> str:
        """Title for tables: the unit and its dimensions."""
        return f"{self.top} / {self.preset}"

    @property
    def home(self) -> Path:
        """The folder of the results."""
        return BUILD / self.top / self.preset


def choose(top: str, preset: str | None, parameters: Path | None, settings: str) -> Chosen:
    """Return the unit and the dimensions that options select.

    Raises
    ------
    UserError
        If the unit, the preset or a parameter does not exist.
    ValueError
        If the parameters are not legal.
    """
    from hdl.settings import parse_settings, read_settings
    from systola.units import unit_named

    entry = unit_named(top)
    changes = read_settings(parameters) if parameters else {}
    return Chosen(
        entry=entry, dimensions=entry.dimensions(preset, changes | parse_settings(settings))
    )


def choose_for(policy: str, preset: str | None, parameters: Path | None, settings: str) -> Chosen:
    """Return the unit that implements a cache policy, with the parameters that select its rule.

    Raises
    ------
    UserError
        If no unit implements the policy, a setting contradicts it, or as `choose`.
    ValueError
        If the parameters are not legal.
    """
    from golden.policies.registry import all_policies, policy_named
    from hdl.settings import parse_settings, read_settings
    from systola.units import unit_named

    named = policy_named(policy)
    hardware = named.hardware
    if hardware is None:
        others = ", ".join(other.name for other in all_policies() if other.hardware)
        raise UserError(
            f"POLICY must be one that a unit implements, such as {others}, or a policy whose "
            f"member `hardware` names a unit, not {policy}"
        )
    changes = read_settings(parameters) if parameters else {}
    changes |= parse_settings(settings)
    for name in changes:
        if name in hardware.settings:
            raise UserError(f"{name} must not be set, because POLICY {policy} determines it")
    try:
        entry = unit_named(hardware.unit)
    except UserError as error:
        raise UserError(f"the hardware of POLICY {policy}: {error}") from error
    dimensions = entry.dimensions(preset, changes | dict(hardware.settings))
    return Chosen(entry=entry, dimensions=dimensions, policy=named.name)


def require_one(top: str | None, policy: str | None) -> None:
    """Check that one of the options TOP and POLICY is given.

    Raises
    ------
    UserError
        If both or none are given.
    """
    if (top is None) == (policy is None):
        given = "none" if top is None else "both"
        raise UserError(f"one of TOP and POLICY must be given, not {given}")


def unit_options(default: str | None = None) -> Callable[[Callable[..., None]], Any]:
    """Add the options that select a unit and its dimensions; the verb's first argument is both.

    Parameters
    ----------
    default : str, optional
        Preset where the user names none; if absent, see `preset_option`.
    """
    chosen_preset = preset_option
    if default:
        words = f"Dimensions; `{default}` if absent."
        chosen_preset = click.option("--preset", default=default, help=words)

    def decorated(verb: Callable[..., None]) -> Callable[..., None]:
        @top_option
        @policy_option
        @chosen_preset
        @parameters_option
        @settings_option
        @wraps(verb)
        def with_unit(
            top: str | None,
            policy: str | None,
            preset: str | None,
            parameters: Path | None,
            settings: str,
            **options: Any,
        ) -> None:
            from hdl.parameter_list import settings_text

            require_one(top, policy)
            if top is not None:
                unit = choose(top, preset, parameters, settings)
            else:
                assert policy is not None
                environment.require("llm")
                unit = choose_for(policy, preset, parameters, settings)
            if not isinstance(unit.dimensions, str):
                replace_text(unit.home / PARAMETERS_FILE, settings_text(unit.parameters))
            verb(unit, **options)

        return with_unit

    return decorated


def path_shown(path: Path) -> Path:
    """Return a path, relative to the checkout if the checkout contains it."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def require_checkout(verb: str) -> None:
    """Check that a verb that needs the sources runs in a checkout.

    Raises
    ------
    UserError
        If the packages are installed outside a checkout.
    """
    if not IN_CHECKOUT:
        raise UserError(f"{verb} needs a checkout of Systola, not the packages in {ROOT}")

"""What several verbs share: the console, options, and the unit that they choose."""

from typing import Any

import click
from rich.console import Console

console = Console(soft_wrap=True)

top_option = click.option("--top", required=True, help="Unit, as listed by `make list`.")
preset_option = click.option(
    "--preset", default=None, help="Dimensions; `smollm2` where the unit has it, else its first."
)
target_option = click.option(
    "--target", default="asic", help="asic, or fpga: sums and products are left to its tools."
)


def chosen(top: str, preset: str | None) -> tuple[Any, str]:
    """Return the catalog entry and the preset's name.

    Raises
    ------
    UserError
        If there is no such unit or preset.
    """
    from hdl.catalog import entry_named

    entry = entry_named(top)
    name = preset or ("smollm2" if "smollm2" in entry.presets else next(iter(entry.presets)))
    entry.parameters(name)
    return entry, name

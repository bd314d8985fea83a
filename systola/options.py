"""What several verbs share: the console, options, and the unit that they choose."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from hdl.errors import UserError
from hdl.output_folder import MANIFEST, require_replaceable

console = Console(soft_wrap=True)

top_option = click.option("--top", required=True, help="Unit, as listed by `make list`.")
preset_option = click.option(
    "--preset", default=None, help="Dimensions; `smollm2` where the unit has it, else its first."
)
target_option = click.option(
    "--target", default="asic", help="asic, or fpga: sums and products are left to its tools."
)


class _OutputFolder(click.ParamType):
    """A folder that a verb may write; refused before any work."""

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the folder's path, with the home directory in the place of `~`."""
        if not value:
            raise UserError("OUT must name a folder, not ''")
        try:
            folder = Path(value).expanduser()
        except RuntimeError as error:
            raise UserError(f"OUT must name a user that exists, not {value!r}") from error
        require_replaceable(folder)
        return folder


def out_option(default: str) -> Callable[[Any], Any]:
    """Return the option `--out` of a verb that writes to the folder `default` without it."""
    return click.option(
        "--out",
        type=_OutputFolder(),
        help=f"Folder, {default} if absent. It must be new, empty, or written by a verb before; of "
        f"what is in it, only the unchanged files that its {MANIFEST} lists are replaced.",
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

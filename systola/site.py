"""The verb ``docs``: the documentation as a site with search and an API reference."""

import logging
import os

import click
from rich.table import Table

from hdl.errors import UserError
from hdl.paths import BUILD, ROOT
from systola import environment
from systola.options import console, path_shown, require_checkout

SITE = BUILD / "site"


@click.command()
@click.option("--serve", type=bool, default=False, help="1 serves the site and follows changes.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, help="Port of SERVE=1.")
@click.option("--reference", type=bool, default=True, help="0 omits the API reference.")
def docs(serve: bool, port: int, reference: bool) -> None:
    """Build the documentation as a site with search and an API reference."""
    require_checkout("docs")
    environment.require("docs", "synth")
    # Set before the import: the theme prints an announcement without it.
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    from mkdocs.commands.build import build
    from mkdocs.commands.serve import serve as serve_site
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    file, extra = str(ROOT / "mkdocs.yml"), {"reference": reference}
    problems = _Problems()
    logging.getLogger("mkdocs").addHandler(problems)
    if serve:
        console.print(f"the site is at http://127.0.0.1:{port}; Ctrl-C ends it")
        serve_site(file, dev_addr=f"127.0.0.1:{port}", extra=extra)
        return
    with console.status("building the site"):
        try:
            build(load_config(file, site_dir=str(SITE), extra=extra, strict=True))
        except Abort:
            raise UserError("\n".join(["the site has faults:", *problems.lines])) from None
    pages = list(SITE.rglob("*.html"))
    table = Table(title="documentation", show_header=False)
    own = [page for page in pages if not page.is_relative_to(SITE / "reference")]
    table.add_row("pages", str(len(own)))
    table.add_row("pages of the API reference", str(len(pages) - len(own)))
    console.print(table)
    console.print(f"wrote {path_shown(SITE / 'index.html')}")


class _Problems(logging.Handler):
    """Collects the warnings and errors of MkDocs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.lines.append(record.getMessage())


COMMANDS: tuple[click.Command, ...] = (docs,)
"""What `systola.cli` adds to its own verbs."""

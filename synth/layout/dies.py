"""One picture of the dies of several units, as PNG and as SVG.

    python -m synth.layout.dies --out docs/layout/dies systolic_evictor:tiny combiner:tiny

The command lays the units out as ``make layout`` does, so that stages that are done are not
repeated. The SVG has text that a browser scales, and the PNG is for pages that show no SVG.
"""

from pathlib import Path

import click

from hdl.errors import UserError
from hdl.paths import BUILD, replace_text
from synth.layout.flow import CELL_LIMIT, find_lef
from synth.layout.picture import DOTS, Die, draw_dies
from synth.layout.units import lay_out_unit, named_unit
from synth.liberty import find_library
from synth.papers import read_papers
from synth.svg import svg

TITLE = "Dies of laid-out units"


def write_dies(dies: dict[str, Die], stem: Path) -> list[Path]:
    """Write the picture of dies by title as ``stem.png`` and ``stem.svg``; return both files."""
    figure = draw_dies(dies)
    files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    stem.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(files[0], format="png", dpi=DOTS, metadata={"Software": None})
    replace_text(files[1], svg(figure, TITLE))
    return files


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Files without suffix.")
@click.option("--limit", type=int, default=CELL_LIMIT, help="Maximum number of cells of a unit.")
@click.argument("units", nargs=-1, required=True)
def main(out: Path, limit: int, units: tuple[str, ...]) -> None:
    """Plot the dies of UNITS, each written top:preset, in OSU018."""
    titles = {paper.name: paper.title for paper in read_papers()}
    dies: dict[str, Die] = {}
    try:
        library, lef = find_library(None), find_lef(None, None)
        for text in units:
            entry, preset = named_unit(text)
            home = BUILD / entry.top / preset
            found = lay_out_unit(entry, preset, home, library=library, lef=lef, limit=limit)
            owner = titles.get(entry.paper)
            dies[f"{owner}: {entry.top}" if owner else entry.top] = found.die
    except UserError as error:
        raise click.UsageError(str(error)) from error
    for file in write_dies(dies, out):
        click.echo(f"wrote {file}")


if __name__ == "__main__":
    main()

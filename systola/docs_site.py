"""Hooks of MkDocs: the navigation by task, paper and unit, the API reference, and diagrams.

`mkdocs.yml` names this file. The navigation follows the tables of `docs/README.md` and the catalog,
so that a new page or unit appears without an entry here.
"""

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from posixpath import join, normpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from hdl.catalog import CATALOG
from hdl.paths import ROOT
from synth.gallery import Picture
from synth.papers import read_papers
from synth.svg import FILLS
from synth.system_sections import diagram_picture
from systola.flowcharts import flowchart_of
from systola.notebooks import notebook_of
from systola.text_diagrams import drawing_of, is_diagram

Nav = list[dict[str, Any]]

TITLES = {"kelle": "Kelle", "veda": "VEDA", "lad": "LAD", "p3llm": "P3-LLM", "meadow": "MEADOW"}
"""The papers' folders, in the order of the navigation."""

COMMON = ("arith", "stream", "memory", "nonlinear", "shell")
"""Folders of the common parts."""

REFERENCE = ("hdl", "golden")
"""Packages of the API reference."""


def page_rows() -> list[tuple[str, str]]:
    """Return titles and files of the first table of `docs/README.md`, which lists tasks."""
    table = (ROOT / "docs" / "README.md").read_text().partition("| part | pages |")[0]
    return re.findall(r"^\| \[([^\]]+)\]\(([^)]+\.md)\)", table, re.M)


def below(folder: str, known: set[str]) -> Nav:
    """Return pages below a folder of `docs` that the navigation does not have yet."""
    docs = ROOT / "docs"
    files = [str(file.relative_to(docs)) for file in sorted((docs / folder).rglob("*.md"))]
    files += [f"{folder}.md"] if (docs / f"{folder}.md").is_file() else []
    return [{PurePosixPath(name).stem: name} for name in files if name not in known]


def navigation() -> Nav:
    """Return the navigation of `docs`; each page is in it once."""
    tasks: Nav = [{"documentation": "README.md"}]
    tasks += [{title: name} for title, name in page_rows()]
    known = {name for item in tasks for name in item.values()}
    papers: Nav = []
    for folder, title in TITLES.items():
        pages: Nav = [{title: f"{folder}/README.md"}]
        units = [
            {entry.top: str(PurePosixPath(entry.files["docs"]).relative_to("docs"))}
            for entry in CATALOG
            if entry.paper == folder
        ]
        known |= {f"{folder}/README.md"} | {name for unit in units for name in unit.values()}
        papers.append({title: [*pages, *below(folder, known), {"units": units}]})
    common = [item for folder in COMMON for item in below(folder, known)]
    return [{"Tasks": tasks}, *papers, {"Common parts": common}]


def modules() -> Iterator[str]:
    """Yield the full names of the modules in the API reference."""
    for package in REFERENCE:
        for file in sorted((ROOT / package).rglob("*.py")):
            if file.name != "__init__.py":
                yield ".".join(file.relative_to(ROOT).with_suffix("").parts)


def reference_page(module: str) -> str:
    """Return the path of a module's page in the site's sources."""
    return f"reference/{module.replace('.', '/')}.md"


def reference_navigation() -> Nav:
    """Return the pages of the API reference, nested by package."""
    tree: dict[str, Any] = {}
    for module in modules():
        *packages, name = module.split(".")
        node = tree
        for package in packages:
            node = node.setdefault(package, {})
        node[name] = reference_page(module)

    def nested(node: dict[str, Any]) -> Nav:
        return [{name: nested(own) if isinstance(own, dict) else own} for name, own in node.items()]

    return nested(tree)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation."""
    referenced = config.extra.get("reference", True)
    own: Nav = [{"API reference": reference_navigation()}] if referenced else []
    config.nav = [*navigation(), *own]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks, and one page per module, which mkdocstrings fills from the docstrings.

    `extra.reference` in the configuration, if false, omits the API reference.
    """
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        notebook = json.dumps(notebook_of(page.read_text()), indent=1)
        name = f"tutorials/{page.stem}.ipynb"
        files.append(File.generated(config, name, content=notebook))
    for module in modules() if config.extra.get("reference", True) else ():
        text = f"# `{module}`\n\n::: {module}\n"
        files.append(File.generated(config, reference_page(module), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Replace the diagrams of a page by pictures: blocks without a language, and flowcharts.

    The first page of a paper has the boxes of the paper's figure above its block diagram.
    """

    def replaced(found: re.Match[str]) -> str:
        language, text = found.groups()
        if not language and is_diagram(text):
            return f"{scrolling(drawing_of(text))}\n"
        if language == "mermaid":
            return f"{paper_figure(page.file.src_uri)}\n\n{scrolling(flowchart_of(text))}\n"
        return found[0]

    stem = PurePosixPath(page.file.src_uri)
    if stem.parent.name == "tutorials":
        link = f"\n\n[This page as a notebook]({stem.stem}.ipynb)\n"
        markdown = re.sub(r"^# .*$", lambda title: title[0] + link, markdown, count=1, flags=re.M)
    # Each match is a whole block, so that no closing mark is taken for an opening one.
    return re.sub(r"^```([^\n]*)\n(.*?)^```$", replaced, markdown, flags=re.M | re.S)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Give each picture the widths at which its text is legible."""

    def replaced(found: re.Match[str]) -> str:
        file = ROOT / "docs" / normpath(join(page.url, found["file"]))
        widths = Picture(title="", svg=file.read_text()).widths
        return scrolling(f'{found[0][:-1]} style="width: 100%; {widths}">')

    return re.sub(r'<img [^>]*src="(?P<file>[^":]+\.svg)"[^>]*>', replaced, html)


def scrolling(picture: str) -> str:
    """Return a picture that can be scrolled where the window is narrower than its text allows."""
    return f'<div style="overflow-x: auto; margin: 1em 0">{picture}</div>'


def paper_figure(page: str) -> str:
    """Return the boxes of the paper whose first page is given, with a legend; else nothing."""
    paper = next((one for one in read_papers() if page == f"{one.name}/README.md"), None)
    picture = paper and diagram_picture(paper)
    if not picture:
        return ""
    style = f"width: 100%; height: auto; {picture.widths}"
    drawing = picture.svg.replace("<svg ", f'<svg style="{style}" ', 1)
    kinds = " ".join(
        f'<span style="background: {color}; border: 1px solid; padding: 0 .6em"></span> {kind}'
        for kind, color in FILLS.items()
    )
    # A block of HTML ends at an empty line.
    shown = "\n".join(line for line in drawing.splitlines() if line.strip())
    return f"{scrolling(shown)}\n\n<p><small>{picture.title}: {kinds}</small></p>"

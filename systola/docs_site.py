"""Hooks of MkDocs: the navigation by task, paper and unit, and the API reference.

`mkdocs.yml` names this file. The navigation follows the tables of `docs/README.md` and the catalog,
so that a new page or unit appears without an entry here.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from hdl.catalog import CATALOG
from hdl.paths import ROOT

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
    """Add one page per module, which mkdocstrings fills from the docstrings.

    `extra.reference` in the configuration, if false, omits the API reference.
    """
    for module in modules() if config.extra.get("reference", True) else ():
        text = f"# `{module}`\n\n::: {module}\n"
        files.append(File.generated(config, reference_page(module), content=text))
    return files

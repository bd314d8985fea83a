"""The register map and the layout of memory in the manifest of accelerators with the shell."""

import json
from typing import Any

import fastjsonschema
import pytest

from hdl.catalog import entry_named
from hdl.manifest import SCHEMA
from hdl.shell.register_map import FIRST_BASE

pytestmark = pytest.mark.depends("meadow_axi", "veda_axi", "kelle_axi", "lad_axi", "p3llm_axi")

SHELLS = [
    (top, preset)
    for top in ("meadow_axi", "veda_axi", "kelle_axi", "lad_axi", "p3llm_axi")
    for preset in entry_named(top).presets
]


@pytest.mark.parametrize(("top", "preset"), SHELLS)
def test_manifest_describes_registers_and_regions(top: str, preset: str) -> None:
    p: Any = entry_named(top).parameters(preset)
    sections = p.manifest_sections()
    properties = json.loads(SCHEMA.read_text())["properties"]
    own = {name: properties[name] for name in ("register_map", "regions")}
    schema = {
        "type": "object",
        "properties": own,
        "required": [*own],
        "additionalProperties": False,
    }
    fastjsonschema.compile(schema)(sections)
    offsets = {one["name"]: one["offset"] for one in sections["register_map"]["registers"]}
    for number, region in enumerate(sections["regions"]):
        for limit, name in enumerate(("first", "end")):
            for half, part in enumerate(("low", "high")):
                place = FIRST_BASE + 8 * (2 * number + limit) + 4 * half
                assert offsets[f"{region[name]}_{part}"] == place
        assert region["word_bytes"] == p.regions[region["name"]]
    listed = {port["source"]: port["name"] for one in sections["regions"] for port in one["ports"]}
    assert listed == {n: f"m_axi_{port.name}" for n, port in enumerate(p.ports)}

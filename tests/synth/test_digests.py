"""The kept digests are of the present Verilog, and their keys see every change that matters."""

from dataclasses import replace
from pathlib import Path

import pytest

from hdl.catalog import CATALOG, entry_named
from hdl.entry import Entry
from hdl.paths import ROOT
from synth import digests
from synth.digests import (
    SMALLEST,
    Digest,
    forms_of,
    imported,
    kept_digests,
    parameters_key,
    present_digest,
    renew,
    sources_key,
)
from synth.figures import kept_figures

RENEW = "run make digests, then make report DOCS=1"


def module(root: Path, name: str, text: str) -> None:
    file = root.joinpath(*name.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    digests._read.cache_clear()
    digests._file.cache_clear()


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_digests_are_of_the_present_verilog(entry: Entry) -> None:
    """What the key does not prove is emitted; the larger presets by the full suite alone.

    This test detects a change of a larger preset's parameters. The full suite detects a change of
    only its Verilog that does not affect the smallest preset.
    """
    kept = kept_digests()[entry.top]
    assert set(kept) == {form.name for form in forms_of(entry.top, kept_figures())}, RENEW
    for form in forms_of(entry.top, kept_figures()):
        own = kept[form.name]
        assert own.parameters == parameters_key(entry, form.preset), RENEW
        if form == SMALLEST and own.sources != sources_key(entry, form.preset):
            assert own.verilog == present_digest(entry, form), RENEW


@pytest.mark.full
@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_digests_of_all_forms_are_of_the_present_verilog(entry: Entry) -> None:
    """Emitted whatever the keys are, so that a key that sees too little shows here."""
    for form in forms_of(entry.top, kept_figures()):
        assert kept_digests()[entry.top][form.name].verilog == present_digest(entry, form), RENEW


def test_a_kept_digest_is_what_emission_gives() -> None:
    entry = entry_named("probability_quantiser")
    assert kept_digests()[entry.top][SMALLEST.name].verilog == present_digest(entry, SMALLEST)


def test_a_key_follows_code_and_not_comments(tmp_path: Path) -> None:
    module(tmp_path, "hdl.arith.sum", '"""Sums."""\n\nBITS = 3  # of a sum\n')
    module(tmp_path, "hdl.arith.other", "BITS = 3\n")
    module(tmp_path, "hdl.unit", '"""A unit."""\nfrom hdl.arith.sum import BITS\n')
    found = imported(["hdl.unit"], tmp_path)
    assert set(found) == {"hdl.unit", "hdl.arith.sum"}
    text = '"""Sums of\n\nintegers."""\n\n# How wide?\nBITS = 3\nWORD: int\n"""Not a value."""\n'
    module(tmp_path, "hdl.arith.sum", text)
    changed = imported(["hdl.unit"], tmp_path)
    assert changed["hdl.unit"] == found["hdl.unit"]
    module(tmp_path, "hdl.arith.sum", "BITS = 3\nWORD: int\n")
    assert imported(["hdl.unit"], tmp_path) == changed
    module(tmp_path, "hdl.arith.sum", "BITS = 4\nWORD: int\n")
    assert imported(["hdl.unit"], tmp_path)["hdl.arith.sum"] != changed["hdl.arith.sum"]


def test_imports_are_followed_through_packages_and_bodies(tmp_path: Path) -> None:
    module(tmp_path, "hdl.__init__", "import hdl.version\n")
    module(tmp_path, "hdl.version", "")
    module(tmp_path, "hdl.memory.fifo", "")
    module(tmp_path, "hdl.memory.__init__", "")
    module(tmp_path, "hdl.late", "")
    text = "from hdl.memory import fifo\nimport json\n\ndef f():\n    from hdl.late import g\n"
    module(tmp_path, "hdl.unit", text)
    assert set(imported(["hdl.unit"], tmp_path)) == {
        "hdl", "hdl.version", "hdl.unit", "hdl.memory", "hdl.memory.fifo", "hdl.late",
    }  # fmt: skip


def test_every_module_that_a_unit_elaborates_is_part_of_its_key() -> None:
    found = imported([entry_named("kv_edram").unit.__module__], ROOT)
    assert {"hdl.kelle.edram.kv_edram", "hdl.memory.memory", "hdl.unit"} <= set(found)
    assert not any(name.startswith("hdl.veda") for name in found)


def test_only_what_has_another_key_is_emitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[str] = []

    def present(entry: Entry, form: digests.Form) -> str:
        emitted.append(f"{entry.top} {form.name}")
        return "1"

    monkeypatch.setattr(digests, "present_digest", present)
    monkeypatch.setattr(digests, "BUILD", tmp_path)
    file, entry = tmp_path / "digests.json", entry_named("probability_quantiser")
    assert renew([entry], {}, print, file) == ["probability_quantiser / tiny asic"]
    assert renew([entry], {}, print, file) == []
    assert emitted == ["probability_quantiser tiny asic"]
    kept = kept_digests(file)
    assert kept == {
        entry.top: {
            SMALLEST.name: Digest(
                verilog="1",
                parameters=parameters_key(entry, "tiny"),
                sources=sources_key(entry, "tiny"),
            )
        }
    }
    other = {entry.top: {SMALLEST.name: replace(kept[entry.top][SMALLEST.name], sources="0")}}
    digests.write_digests(other, file)
    assert renew([entry], {}, print, file) == []
    assert len(emitted) == 2 and kept_digests(file) == kept

"""Anyone's parameters: what they mean, what is legal, how they are read, and what they build."""

import re
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hdl.arith.float_format import FP8_E4M3FN
from hdl.catalog import CATALOG, entry_named
from hdl.entry import Entry
from hdl.kelle.eviction.systolic_evictor import OnSaturation
from hdl.parameter_list import Description, descriptions, settings_text
from hdl.parameters import Named, Part, PowerOfTwo, Range
from hdl.paths import BUILD, ROOT
from hdl.settings import parse_settings, read_settings, with_settings, with_values
from systola.cli import main

UNITS = pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def described(entry: Entry) -> list[Description]:
    return list(descriptions(type(entry.presets["tiny"])))


@UNITS
def test_every_parameter_has_a_meaning(entry: Entry) -> None:
    for parameter in described(entry):
        where = f"{entry.top}.{parameter.path}"
        assert parameter.meaning.endswith("."), f"{where} has no meaning"
        assert parameter.legal or isinstance(parameter.field.rule, Part), f"{where} has no range"
        assert parameter.unit or not isinstance(parameter.field.rule, Range), f"{where}: no unit"


def just_outside(parameter: Description, parameters: Any) -> list[Any]:
    part, rule = parameter.path.rpartition(".")[0], parameter.field.rule
    if not isinstance(rule, Range):
        return [FP8_E4M3FN] if isinstance(rule, Named) else ["none of them"]
    low, high = rule.bounds(attrgetter(part)(parameters) if part else parameters)
    if isinstance(rule, PowerOfTwo):
        return [low // 2, 2 * high, *([3] if low < 3 < high else []), float(high)]
    return [low - 1, high + 1, str(low), float(high)]


@UNITS
def test_what_is_not_legal_is_refused_in_words(entry: Entry) -> None:
    for preset in entry.presets.values():
        for parameter in described(entry):
            for value in just_outside(parameter, preset):
                with pytest.raises(ValueError, match=r" must .*, not ") as caught:
                    with_values(preset, {parameter.path: value})
                assert str(caught.value).startswith(parameter.path.rpartition(".")[2])
                assert str(caught.value).endswith(f", not {value!r}")


@UNITS
def test_every_preset_equals_its_own_file(entry: Entry, tmp_path: Path) -> None:
    file = tmp_path / "parameters.toml"
    for preset in entry.presets.values():
        file.write_text(settings_text(preset))
        for start in entry.presets.values():
            assert with_settings(entry.top, start, read_settings(file)) == preset


def test_results_are_named_for_the_parameters() -> None:
    entry = entry_named("softmax")
    once = entry.dimensions("tiny", {"lanes": "16", "scores": "1_024"})
    again = entry.dimensions("paper", {"scores": 1024, "lanes": 0x10})
    assert entry.named(once) == ("softmax_16_1024_4", again)
    assert entry.dimensions("tiny", {"lanes": "2"}) == "tiny"
    assert entry.dimensions(None, {}) == "smollm2"
    name, _parameters = entry_named("veda").named(
        entry_named("veda").dimensions("tiny", {"array.sum_format": "BINARY16"})
    )
    assert re.fullmatch("veda_[0-9a-f]{8}", name)


def test_every_type_is_read() -> None:
    entry = entry_named("eviction_controller")
    text = "evictor.on_saturation=Halve popular_above=2 evict_before=yes window=0b100"
    changed = with_settings("x", entry.presets["tiny"], parse_settings(text))
    assert changed.evictor.on_saturation is OnSaturation.HALVE
    assert (changed.popular_above, changed.evict_before, changed.window) == (2, True, 4)
    back = with_settings("x", changed, {"popular_above": "none", "evict_before": False})
    assert (back.popular_above, back.evict_before) == (None, False)


@pytest.mark.parametrize(
    ("top", "settings", "sentence"),
    [
        (
            "softmax",
            "lane=4",
            "a parameter of softmax must be one of lanes, scores, rows, divided, not ",
        ),
        ("softmax", "lane=4", "'lane'; did you mean 'lanes'?"),
        ("softmax", "lanes=3", "lanes must be a power of two between 1 and 64, not 3"),
        ("softmax", "scores=12", "scores must be a multiple of lanes, not 12"),
        ("softmax", "lanes=four", "lanes must be an integer, not 'four'"),
        ("softmax", "lanes", "SET must be pairs such as lanes=16 or array.rows=16, not 'lanes'"),
        ("softmax", "lanes=2 lanes=4", "SET must set each parameter once, not lanes twice"),
        ("softmax", "lanes.x=4", "must be one of lanes, scores, rows, divided, not 'lanes.x'"),
        ("veda", "array.row=4", "not 'array.row'; did you mean 'array.rows'?"),
        ("veda", "array=4", "array must be set by its parameters array.rows, array.columns,"),
        ("veda", "array.sum_format=fp17", "must be one of binary16, binary32, fp29, not 'fp17'"),
        ("veda", "head_size=100", "head_size must be the array's width 128 or a plane's 64"),
        ("systolic_array", "moving=mode9", "one of wide, mode8, two_pass, not 'mode9'; did you"),
        ("voting_engine", "protect_sink=maybe", "protect_sink must be one of false, true, not"),
    ],
)
@pytest.mark.parametrize("verb", ["list", "verilog"])
def test_wrong_settings_end_with_2(verb: str, top: str, settings: str, sentence: str) -> None:
    result = run(verb, "--top", top, "--set", settings)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_wrong_files_end_with_2(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    assert run("list", "--top", "softmax", "--parameters", str(file)).exit_code == 2
    file.write_text("lanes =")
    result = run("list", "--top", "softmax", "--parameters", str(file))
    assert (result.exit_code, "PARAMETERS must be a TOML file" in result.output) == (2, True)
    file.write_text("lanes = 2.5")
    result = run("list", "--top", "softmax", "--parameters", str(file))
    assert (result.exit_code, "must be an integer, not 2.5" in result.output) == (2, True)
    assert run("list", "--set", "lanes=4").exit_code == 2


def test_settings_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("heads = 4\ncount_bits = 5\n[threshold]\nslots = 44\n")
    arguments = ["--top", "voting_engine", "--preset", "tiny", "--parameters", str(file)]
    result = run("verilog", *arguments, "--set", "threshold.slots=48")
    assert result.exit_code == 0, result.output
    entry = entry_named("voting_engine")
    tiny = entry.presets["tiny"]
    threshold = replace(tiny.threshold, slots=48)
    name, _ = entry.named(replace(tiny, threshold=threshold, heads=4, count_bits=5))
    home = BUILD / "voting_engine" / name
    assert f"wrote {home.relative_to(ROOT)}/rtl/voting_engine.f" in result.output
    # The header is broken where lines end.
    header = (home / "rtl" / "voting_engine.v").read_text().replace("\n//", " ")
    assert "slots=48" in " ".join(header.split())
    assert "threshold.slots = 48\n" in (home / "parameters.toml").read_text()


def test_list_prints_one_line_for_each_parameter() -> None:
    entry = entry_named("veda")
    _name, parameters = entry.named(
        entry.dimensions(None, {"array.add_stages": "4"})  # not the value of any preset
    )
    title, empty, *lines = run(
        "list", "--top", "veda", "--set", "array.add_stages=4"
    ).output.splitlines()
    assert title.startswith("veda at veda_") and title.endswith(" ".join(entry.presets))
    assert not empty
    expected = [each for each in described(entry) if each.value(parameters)]
    assert len(lines) == len(expected)
    for line, parameter in zip(lines, expected, strict=True):
        assert line.split()[:2] == [parameter.path, parameter.value(parameters)]
        assert line.endswith(f"{parameter.legal} {parameter.unit}".strip())
        assert len(line) <= 80
    assert "array.add_stages" in "".join(lines) and "2 to 4 stages" in "".join(lines)


def test_list_of_all_adds_meanings_and_the_values_of_presets() -> None:
    output = run("list", "--top", "veda", "--set", "array.add_stages=4", "--all", "1").output
    words = " ".join(output.split())
    for parameter in described(entry_named("veda")):
        assert parameter.path in output.split()
        assert " ".join(parameter.meaning.split()) in words
    place = words.index("array.add_stages 4 2 to 4 stages Register stages of an adder")
    assert f"3: {' '.join(entry_named('veda').presets)}" in words[place : place + 300]

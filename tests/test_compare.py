"""The verb `compare`: its figures, its marks, its commands, and its refusals.

The results are files that a test writes. Expected values are computed from these by arithmetic.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from golden.llm.model import SMOLLM2
from hdl.catalog import entry_named
from hdl.settings import parse_settings
from hdl.target import Target
from synth import digests, present_verilog
from synth.comparison import kept
from synth.liberty import GENERIC
from systola import compare as verb
from systola import generate
from systola.cli import main
from systola.comparing.design import Choice, Command, Design, choices
from systola.comparing.figures import edram_bits
from systola.comparing.policies import PolicyColumn
from systola.generate import SYSTEMS
from systola.options import console, path_shown

MODEL = SimpleNamespace(shape=SMOLLM2, digest="model")
CHANGED = {
    "veda": "slots=256",
    "meadow": "lanes=2",
    "kelle": "window=32",
    "lad": "tile.prefetched=8",
    "p3llm": "vocabulary_bits=8",
}
"""A parameter of each system that the language model does not determine."""

PRESENT, EARLIER = "present", "earlier"
SYSTEMS_KEPT = kept()["systems"]


@pytest.fixture(autouse=True)
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty build directory; the model has SmolLM2's dimensions and no tensors."""
    for name in ("generate", "comparing.figures", "comparing.policies"):
        monkeypatch.setattr(f"systola.{name}.BUILD", tmp_path)
    monkeypatch.setattr(verb, "HOME", tmp_path / "compare")
    monkeypatch.setattr("golden.llm.language_model.open_language_model", lambda: MODEL)
    monkeypatch.setattr("systola.comparing.figures.present_verilog", lambda *_: PRESENT)
    identity = property(lambda self: identity_of(self, PRESENT))
    monkeypatch.setattr("systola.generation.system.System.golden_identity", identity)
    monkeypatch.setattr(console, "width", 300)
    return tmp_path


def identity_of(system: Any, code: str) -> dict[str, Any]:
    budget = system.settings.budget if system.budgets else None
    return {"parameters": repr(system.p), "budget": budget, "code": code}


def design(top: str, settings: str = "") -> Design:
    chosen = choices([top], [], parse_settings(settings), None, SYSTEMS_KEPT)[-1]
    return Design.open(chosen, MODEL, SYSTEMS_KEPT[top])


def write(file: Path, values: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values))


def write_run(
    own: Design,
    *,
    tokens: int = 4,
    cycles: int = 1_000_000,
    digest: str | None = PRESENT,
    waves: bool = False,
    name: str = "1",
) -> None:
    """Write a run of a prompt of five tokens; a cached token costs 500 cycles and 1,000 bytes."""
    blocks = [
        {
            "first": first,
            "token": None if first < 4 else 7,
            "cycles": cycles + 500 * first,
            "bytes_read": 99_000_000 + 1000 * first,
            "bytes_written": 1_000_000,
        }
        for first in range(4 + tokens)
    ]
    # The first predicted token has the work of the prompt.
    blocks[4]["cycles"] *= 10
    settings = own.system.settings
    record = {
        "finished": True,
        "model": MODEL.digest,
        "parameters": repr(own.system.p),
        "settings": {"budget": settings.budget, "reserved": settings.reserved, "waves": waves},
        "blocks": blocks,
    }
    record |= {"verilog_digest": digest} if digest else {}
    write(own.system.folder / f"run-{name}" / "record.json", record)


def write_netlists(
    own: Design, *, area: float = 500_000.0, fastest: float = 500.0, digest: str = PRESENT
) -> None:
    """Write two netlists and their power: 2,000 pJ/cycle at 250 MHz, 2,510 at the fastest."""
    home, library = own.system.folder.parent, {"liberty": "NangateOpenCellLibrary"}
    points = [
        {"area_um2": area, "fmax_mhz": 250.0},
        {"area_um2": area + 300_000.0, "fmax_mhz": fastest},
    ]
    own_digest = {"verilog_digest": digest, **library}
    synth = {"points": points, "memory_bits": 2_000_000, **own_digest}
    write(home / "synth" / "NangateOpenCellLibrary" / "synth.json", synth)
    measured = [
        {"frequency_mhz": 250.0, "dynamic_pj": 1900.0, "leakage_pj": 100.0},
        {"frequency_mhz": fastest, "dynamic_pj": 2470.0, "leakage_pj": 40.0},
    ]
    power = {"points": measured, **own_digest}
    write(home / "power.json", power)


def write_perplexity(own: Design, build: Path, value: float, code: str = PRESENT) -> None:
    values = {
        "identity": identity_of(own.system, code),
        "text": "news",
        "context": 256,
        "losses": [3.0] * 8,
        "perplexity": value,
    }
    write(build / "perplexity" / f"{own.choice.top}-{code}.json", values)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["compare", *arguments])


def record_of(result: Result, build: Path) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    match = re.search(r"wrote \S*?([\w-]+\.json)", result.output)
    assert match is not None
    return json.loads((build / "compare" / match[1]).read_text())


def cells(record: dict[str, Any], column: int = 0) -> dict[str, tuple[Any, list[str]]]:
    """Return value and marks by the beginning of a row's label."""
    return {
        row["row"].split(",")[0]: (row["cells"][column]["value"], row["cells"][column]["marks"])
        for row in record["rows"]
    }


@pytest.mark.parametrize(
    ("bandwidth", "milliseconds", "limit"),
    # 1,003,000 cycles at 500 MHz; 100,006,000 bytes at 64 and at 25.6 GB/s.
    [("64", 1.003 / 0.5, "cycles"), ("25.6", 100.006 / 25.6, "memory")],
)
def test_rows_follow_from_the_results(
    bandwidth: str, milliseconds: float, limit: str, build: Path
) -> None:
    own = design("veda")
    write_run(own)
    write_netlists(own)
    write_perplexity(own, build, 36.5)
    result = run("--top", "veda", "--bandwidth", bandwidth)
    record = record_of(result, build)
    found = {label: value for label, (value, _) in cells(record).items()}
    # Tokens with 5, 6 and 7 cached ones.
    assert found["cycles/token"] == 1_003_000
    assert found["off-chip bytes/token"] == 100_006_000
    assert found["perplexity"] == 36.5
    assert found["tokens that a layer caches"] == 128
    assert found["tokens/s"] == pytest.approx(1000 / milliseconds)
    assert found["limited by: own clock"] == limit
    square_mm = 0.8 + 2_000_000 * 206.910 * 219.800 / (2048 * 39) / 1e6
    assert found["delay-optimised logic and memories"] == pytest.approx(square_mm)
    assert found["tokens/s per mm2"] == pytest.approx(1000 / milliseconds / square_mm)
    # 2,000 pJ/cycle; 3.9 pJ/bit in HBM2; two accesses of 20 pJ for 64 bits on the chip.
    logic, dram, chip = 1.003 * 2, 100.006 * 8 * 3.9 / 1e3, 100.006 * 8 * 2 * 20 / 64 / 1e3
    assert found["energy of the logic only"] == pytest.approx(logic)
    whole = found["energy of logic"]
    assert whole == pytest.approx(logic + dram + chip)
    assert not any(marks for _, marks in cells(record).values())
    assert record["missing"] == {} and verb.MISSING not in result.output
    page = next((build / "compare").glob("veda-*.md")).read_text()
    assert "| cycles/token | 1,003,000 |" in page


@pytest.mark.parametrize(
    ("context", "cached", "marks"),
    # Tokens with 5 to 7 cached ones were measured; a layer caches 128.
    [("6", 6, []), ("64", 64, ["§"]), ("1000", 128, ["§"])],
)
def test_cached_tokens_have_a_cost(
    context: str, cached: int, marks: list[str], build: Path
) -> None:
    own = design("veda")
    write_run(own)
    record = record_of(run("--top", "veda", "--context", context), build)
    cycles, bytes_ = (cells(record)[label] for label in ("cycles/token", "off-chip bytes/token"))
    assert cycles == (pytest.approx(1_000_000 + 500 * cached), marks)
    assert bytes_ == (pytest.approx(100_000_000 + 1000 * cached), marks)
    figure = record["designs"][0]["figures"]["cycles"]
    assert figure["extrapolated"] == ("5 to 7 cached tokens" if marks else "")


@pytest.mark.parametrize(
    ("context", "cached", "marks"), [("64", 64, ["‡"]), ("1000", 128, ["‡"]), ("8", 8, ["‡", "§"])]
)
def test_one_number_of_cached_tokens_gives_the_kept_cost(
    context: str, cached: int, marks: list[str], build: Path
) -> None:
    """Of the page's runs; other parameters have no cost."""
    write_run(design("veda"), tokens=2)
    record = record_of(run("--top", "veda", "--set", "block=4", "--context", context), build)
    short, last, *_ = SYSTEMS_KEPT["veda"]["contexts"]
    slope = (last["cycles"] - short["cycles"]) / (last["cached"] - short["cached"])
    value = short["cycles"] + slope * (cached - short["cached"])
    assert cells(record)["cycles/token"] == (pytest.approx(value), marks)
    row = next(own for own in record["rows"] if own["row"] == "cycles/token")
    assert row["cells"][1] == {"value": None, "marks": []}
    (command,) = (one for one in record["missing"] if "TOKENS=32" in one)
    assert "SET=block=4" in command


def write_run_with_memory(own: Design, *, cycles: int, name: str) -> None:
    """Write a run of two tokens with the memory of a design."""
    assert own.timed is not None
    system = own.timed.system
    used = {"waiting": 300, "utilization": 0.25, "bytes_read": 900, "bytes_written": 100}
    blocks = [
        {"token": 7, "first": 0, "cycles": 10 * cycles, "memory": used},
        {"token": 8, "first": 1, "cycles": cycles, "memory": used},
    ]
    record = {
        "finished": True,
        "model": MODEL.digest,
        "parameters": repr(system.p),
        "settings": json.loads(json.dumps(system.settings.identity)),
        "blocks": blocks,
        "verilog_digest": PRESENT,
    }
    write(system.folder / f"run-{name}" / "record.json", record)


def test_memory_adds_rows_of_its_own_runs(build: Path) -> None:
    own = design("veda")
    write_run(own)
    write_run_with_memory(own.with_memory("hbm2", 500), cycles=2_000_000, name="2")
    write_run_with_memory(own.with_memory("hbm2 channels=8", 500), cycles=4_000_000, name="3")
    write_run_with_memory(own.with_memory("hbm2", None), cycles=3_000_000, name="4")
    record = record_of(run("--top", "veda", "--memory", "hbm2", "--clock", "500"), build)
    found = {label: value for label, (value, _) in cells(record).items()}
    assert found["run with hbm2: cycles/token"] == 2_000_000
    assert found["run with hbm2: tokens/s"] == 250
    assert found["run with hbm2: bandwidth in use"] == 0.25
    assert found["run with hbm2: bytes/token of all bursts"] == 1000
    # The run with ideal ports remains that of the other rows.
    assert found["cycles/token"] == 1_003_000
    assert record["designs"][0]["commands"]["memory"].endswith("MEMORY=hbm2 CLOCK=500")
    plain = record_of(run("--top", "veda"), build)
    assert not [row for row in plain["rows"] if "hbm2" in row["row"]]
    # The default clock is 1 GHz.
    other = record_of(run("--top", "veda", "--memory", "hbm2"), build)
    assert cells(other)["run with hbm2: cycles/token"] == (3_000_000, [])
    assert "MEMORY='ddr4 limit=12'" in run("--top", "veda", "--memory", "ddr4 limit=12").output


def test_system_that_cannot_use_a_memory_states_it(build: Path) -> None:
    """P3-LLM's channel has sixteen banks, LPDDR4 eight."""
    result = run("--top", "p3llm", "--memory", "lpddr4")
    record = record_of(result, build)
    assert "cannot use it" in result.output
    assert cells(record)["run with lpddr4: cycles/token"] == ("cannot use it", [])
    assert "memory" not in record["designs"][0]["commands"]


def test_kept_figures_have_a_mark_and_old_ones_two(build: Path) -> None:
    record = record_of(run(), build)
    for column, top in enumerate(SYSTEMS):
        figures = SYSTEMS_KEPT[top]["figures"]
        found = cells(record, column)
        assert found["cycles/token"] == (figures["cycles"], ["‡"])
        assert found["area-optimised logic"] == (figures["area_um2"], ["‡"])
        evicts = isinstance(figures["perplexity_128"], float)
        own = figures["perplexity_128" if evicts else "perplexity"]
        assert found["perplexity"] == (own, ["‡"])
        energy = found["energy of the logic only"]
        assert energy == (pytest.approx(figures["energy_mj"]), ["‡"])
    assert record["missing"] == {}


def test_kept_figures_of_other_designs_are_not_used(build: Path) -> None:
    found = cells(record_of(run("--top", "kelle", "--budget", "512"), build))
    figures = SYSTEMS_KEPT["kelle"]["figures"]
    assert found["perplexity"] == (figures["perplexity"], ["‡"])
    assert found["cycles/token"] == found["area-optimised logic"] == (None, [])


def test_energy_is_that_of_a_netlist_with_a_legal_clock(build: Path) -> None:
    """P3-LLM's is 500 MHz: a cycle is longer than that of the faster netlist, and so leaks more."""
    own = design("p3llm")
    write_run(own)
    write_netlists(own, fastest=625.0)
    found = {
        label: value for label, (value, _) in cells(record_of(run("--top", "p3llm"), build)).items()
    }
    assert found["energy of the logic only"] == pytest.approx(1.003 * (2.47 + 0.04 * 625 / 500))


def test_stale_figures_have_a_mark_and_a_command(build: Path) -> None:
    own = design("veda")
    write_run(own, digest=EARLIER)
    write_netlists(own, digest=EARLIER)
    write_perplexity(own, build, 36.5, EARLIER)
    record = record_of(run("--top", "veda"), build)
    found = cells(record)
    assert found["cycles/token"] == (1_003_000, ["†"])
    assert found["perplexity"] == (36.5, ["†"])
    for label in ("area-optimised logic", "tokens/s", "energy of logic"):
        assert found[label][1] == ["†"]
    kinds = ["perplexity", "generate", "synth", "waves", "power"]
    assert list(record["missing"].values()) == [f"VEDA, {kind}" for kind in kinds]


def test_present_results_precede_stale_ones(build: Path) -> None:
    own = design("veda")
    write_run(own, tokens=9, cycles=2_000_000, digest=EARLIER, name="1")
    write_run(own, tokens=9, cycles=3_000_000, digest=None, name="2")
    write_run(own, tokens=4, name="3")
    write_perplexity(own, build, 30.0, PRESENT)
    write_perplexity(own, build, 40.0, EARLIER)
    found = cells(record_of(run("--top", "veda"), build))
    assert found["cycles/token"] == (1_003_000, [])
    assert found["perplexity"] == (30.0, [])


def test_results_of_other_settings_are_not_used(build: Path) -> None:
    write_run(design("veda"))
    write_netlists(design("veda"))
    record = record_of(run("--top", "veda", "--budget", "64"), build)
    found = cells(record)
    assert found["perplexity"] == found["cycles/token"] == (None, [])
    # The netlist does not depend on the budget.
    assert found["area-optimised logic"] == (500_000, [])
    assert list(record["missing"]) == [
        "make perplexity TOP=veda BUDGET=64",
        "make generate TOP=veda PROMPT='The capital of France is' TOKENS=3 BUDGET=64",
    ]


def test_difference_states_which_is_better(build: Path) -> None:
    before, after = design("meadow"), design("meadow", "lanes=2")
    write_run(before, cycles=2_000_000)
    write_run(after, cycles=1_500_000)
    write_netlists(before)
    write_netlists(after, area=600_000.0)
    write_perplexity(after, build, SYSTEMS_KEPT["meadow"]["figures"]["perplexity"])
    result = run("--top", "meadow", "--set", "lanes=2")
    rows = {row["row"].split(",")[0]: row for row in record_of(result, build)["rows"]}
    cycles = rows["cycles/token"]
    assert [own["value"] for own in cycles["cells"]] == [2_003_000, 1_503_000]
    assert cycles["difference"] == f"-500,000 ({-500_000 / 2_003_000:+.1%})"
    assert (cycles["verdict"], cycles["better"]) == ("better", "lower")
    area = rows["area-optimised logic"]
    assert (area["difference"], area["verdict"]) == ("+100,000 (+20.0%)", "worse")
    speed = rows["tokens/s"]
    assert (speed["verdict"], speed["better"]) == ("equal", "higher")
    assert rows["perplexity"]["verdict"] == "equal"
    assert rows["bytes/token at the DRAM banks (not off-chip)"]["verdict"] == ""
    assert "SET=lanes=2" not in result.output and "lanes=2" in result.output


def test_run_skips_what_has_figures_and_names_what_fails(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, called = design("veda"), list[str]()

    def call(command: str) -> int:
        verb_ = Command.read(command).verb
        called.append(verb_)
        if verb_ == "generate":
            write_run(own, waves=True)
            # Another process finishes the synthesis in the meantime.
            write_netlists(own)
        return int(verb_ == "perplexity")

    monkeypatch.setattr(verb, "_call", call)
    monkeypatch.setattr(verb, "_require_nangate45", lambda _: None)
    write_run(own, digest=EARLIER)
    write_perplexity(own, build, 36.5, EARLIER)
    result = run("--top", "veda", "--run", "1")
    assert called == ["perplexity", "generate"]
    assert result.exit_code == 1
    assert "failed: make perplexity TOP=veda\n" in result.output


@pytest.mark.parametrize(
    ("liberty", "message"),
    [
        ("nothing.lib", "nothing.lib"),
        (str(GENERIC), "LIBERTY must be NanGate45, NangateOpenCellLibrary, not"),
    ],
)
def test_run_refuses_another_library_before_any_command(
    liberty: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "_call", pytest.fail)
    changed = CHANGED["veda"]
    result = run("--top", "veda", "--set", changed, "--run", "1", "--liberty", liberty)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("top", SYSTEMS)
@pytest.mark.parametrize("changed", [False, True])
def test_commands_select_the_design(top: str, changed: bool) -> None:
    """By the parameters that the commands' own words select."""
    own = design(top, CHANGED[top] if changed else "")
    assert (own.system.p != design(top).system.p) == changed
    commands = {kind: Command.read(text) for kind, text in own.commands("my.lib", None).items()}
    for kind in ("synth", "power"):
        assert Choice.of(commands[kind]).parameters() == own.system.p
        assert commands[kind].variables["LIBERTY"] == "my.lib"
    for kind in ("perplexity", "generate", "waves"):
        again = Design.open(Choice.of(commands[kind]), MODEL, SYSTEMS_KEPT[top])
        assert again.equals(own)
    assert commands["power"].variables["VCD"] == str(path_shown(own.system.folder / "waves.vcd"))
    assert commands["waves"].variables["WAVES"] == "1"


def test_kept_commands_are_of_one_design() -> None:
    """Netlists and power of the run's parameters; the words of all other commands are legal."""
    for top in SYSTEMS:
        own = design(top)
        for command in map(Command.read, SYSTEMS_KEPT[top]["commands"].values()):
            parameters = Choice.of(command).parameters()
            if command.verb in ("synth", "power"):
                assert parameters == own.system.p, (top, command)


def test_bits_of_the_edram_are_the_kept_ones() -> None:
    assert edram_bits(design("kelle")) == SYSTEMS_KEPT["kelle"]["figures"]["edram_bits"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--top", "kelly"], "did you mean 'kelle'"),
        (["--top", "veda", "--preset", "tinny"], "PRESET of veda must be one of"),
        (["--top", "veda", "--preset", "smollm2 paper tiny"], "PRESET must be one preset, or two"),
        (["--top", "veda kelle", "--set", "slots=64"], "need one TOP, not veda kelle"),
        (["--top", "veda", "--set", "no_such=1"], "no_such"),
        (["--top", "veda", "--budget", "1"], "BUDGET must be at least 2, not 1"),
        (["--top", "veda", "--budget", "100000"], "BUDGET must be from 2 to the"),
        (["--top", "kelle", "--set", "slots=64", "--budget", "64"], "SET must not set slots"),
        (["--bandwidth", "0"], "BANDWIDTH must be above 0 GB/s and finite, not 0"),
        (["--memory", "hbm3"], "MEMORY must be one of ddr4, hbm2, lpddr4, none, not 'hbm3'"),
        (["--clock", "500"], "CLOCK needs a MEMORY"),
        (["--bandwidth", "nan"], "BANDWIDTH must be above 0 GB/s and finite, not nan"),
        (["--top", "veda", "--context", "0"], "CONTEXT must be from 1 to"),
        (["--top", "meadow", "--context", "512"], "CONTEXT must be from 1 to 511, the tokens"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")
    assert "Traceback" not in result.output


def test_verilog_is_emitted_once_per_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[str] = []

    def present(entry: Any, form: Any) -> str:
        emitted.append(form.name)
        return f"digest {len(emitted)}"

    monkeypatch.setattr(digests, "present_digest", present)
    monkeypatch.setattr(present_verilog, "DIGESTS", tmp_path / "digests.json")
    entry = entry_named("probability_quantiser")
    changed = entry.dimensions("tiny", {"lanes": "4"})
    digest: Callable[..., str] = present_verilog.present_verilog
    for target, expected in (
        (Target.ASIC, "digest 1"),
        (Target.FPGA, "digest 2"),
        (Target.ASIC, "digest 1"),
    ):
        assert digest(entry, changed, target, lambda _: None) == expected
    assert len(emitted) == 2
    # Other sources have another key.
    monkeypatch.setattr(digests, "sources_key", lambda *_: "other")
    assert digest(entry, changed, Target.ASIC, lambda _: None) == "digest 3"


def test_digest_of_a_run_is_kept_next_to_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[Any] = []

    def emit(_entry: Any, parameters: Any, target: Target) -> Any:
        emitted.append((parameters, target))
        return SimpleNamespace(digest=f"digest {len(emitted)}")

    monkeypatch.setattr("hdl.emitted.emit_unit", emit)
    for program, expected in (("a", "digest 1"), ("a", "digest 1"), ("b", "digest 2")):
        harness = SimpleNamespace(program=tmp_path / program)
        system = SimpleNamespace(harness=harness, p="parameters")
        assert generate._compiled_digest("entry", system) == expected
    assert emitted == [("parameters", Target.FPGA)] * 2


def write_policy(
    build: Path, name: str, perplexity: float, budget: int | None = None, **changes: Any
) -> None:
    """Write a result of a policy, with its present identity or a changed one."""
    column = PolicyColumn.open(name, budget, MODEL)
    values = {
        "identity": column.identity | changes.pop("identity", {}),
        "text": "news",
        "context": 256,
        "losses": [3.0] * 8,
        "perplexity": perplexity,
    }
    number = len(list((build / "perplexity").glob("policy-*")))
    write(build / "perplexity" / f"policy-{column.named.name}-{number}.json", values | changes)


def test_a_policy_has_a_column_next_to_a_system(build: Path) -> None:
    write_perplexity(design("veda"), build, 36.5)
    write_policy(build, "h2o", 33.25, 96)
    # Another budget, and other conditions, are other figures.
    write_policy(build, "h2o", 1.0)
    write_policy(build, "h2o", 2.0, 96, context=512)
    result = run("--top", "veda", "--policy", "h2o", "--budget", "96")
    record = record_of(result, build)
    found = cells(record, 1)
    assert found["perplexity"] == (33.25, [])
    assert found["tokens that a layer caches"] == (96, [])
    assert cells(record)["tokens that a layer caches"] == (96, [])
    others = [row["cells"][1]["value"] for row in record["rows"]]
    assert others.count("no accelerator") == len(others) - 2
    assert "h2o, float32" in result.output
    assert not any("POLICY" in command for command in record["missing"])
    assert "POLICY=h2o" in next((build / "compare").glob("veda-*.md")).read_text()


def test_a_missing_policy_has_its_command(build: Path) -> None:
    result = run("--top", "veda", "--policy", "aerp full_cache")
    record = record_of(result, build)
    for name in ("aerp", "full_cache"):
        command = f"make perplexity POLICY={name} WINDOWS=8 CONTEXT=256 TEXT=news"
        assert record["missing"][command] == f"{name}, float32, perplexity"
        assert command in result.output
    assert cells(record, 2)["tokens that a layer caches"] == ("all", [])
    assert cells(record, 1)["perplexity"] == (None, [])


def test_a_policy_of_earlier_code_is_marked(build: Path) -> None:
    write_policy(build, "voting", 31.0, identity={"policies": "earlier"})
    record = record_of(run("--top", "veda", "--policy", "voting"), build)
    assert cells(record, 1)["perplexity"] == (31.0, ["†"])
    assert any("POLICY=voting" in command for command in record["missing"])
    write_policy(build, "voting", 32.0)
    record = record_of(run("--top", "veda", "--policy", "voting"), build)
    assert cells(record, 1)["perplexity"] == (32.0, [])
    # Another language model is another figure.
    write_policy(build, "h2o", 30.0, identity={"model": "another"})
    record = record_of(run("--top", "veda", "--policy", "h2o"), build)
    assert cells(record, 1)["perplexity"] == (None, [])


def test_a_policy_of_a_file_is_measured_again_after_a_change(build: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    source = (
        "from dataclasses import dataclass\n"
        "from golden.policies.protocol import Policy\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(Policy):\n"
        "    def score(self, importance, query):\n"
        "        return importance + query.prob.sum(2)\n\n\n"
        "policy = Mine()\n"
    )
    file.write_text(source)
    write_policy(build, str(file), 29.0)
    record = record_of(run("--top", "veda", "--policy", str(file)), build)
    assert cells(record, 1)["perplexity"] == (29.0, [])
    file.write_text(source.replace("+ query", "- query"))
    record = record_of(run("--top", "veda", "--policy", str(file)), build)
    assert cells(record, 1)["perplexity"] == (None, [])


def test_policies_are_added_to_two_parameter_sets(build: Path) -> None:
    write_policy(build, "h2o", 33.0)
    result = run("--top", "meadow", "--set", "lanes=2", "--policy", "h2o")
    record = record_of(result, build)
    assert [len(row["cells"]) for row in record["rows"]] == [3] * len(record["rows"])
    assert "difference" not in record["rows"][0]
    assert cells(record, 2)["perplexity"] == (33.0, [])


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        ("no_such", [], "POLICY must be one of full_cache"),
        ("missing.py", [], "POLICY must be a file that exists, not 'missing.py'"),
        ("full_cache", ["--budget", "64"], "BUDGET is not for full_cache"),
    ],
)
def test_bad_policies_are_one_sentence(policy: str, options: list[str], message: str) -> None:
    result = run("--top", "veda", "--policy", policy, *options)
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")

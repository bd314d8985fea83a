from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hdl.catalog import CATALOG
from hdl.errors import UserError
from systola.synthesis import COMMANDS

TOP = CATALOG[0].top


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in ("systola.synthesis", "hdl.emitted"):
        monkeypatch.setattr(f"{module}.BUILD", tmp_path)
    group = click.Group(commands={str(command.name): command for command in COMMANDS})

    def run(*arguments: str):
        return CliRunner().invoke(group, arguments)

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("synth", "--top", TOP, "--period", "0"), "PERIOD must be a positive number"),
        (("synth", "--top", TOP, "--liberty", "none.lib"), "LIBERTY must be a file that exists"),
        (("synth", "--top", TOP, "--liberty", __file__), "LIBERTY must be a liberty file"),
        (("synth", "--top", "nothing"), "TOP must be one of"),
        (("export", "--top", TOP, "--for", "orfs", "--target", "gpu"), "TARGET must be one of"),
        (("synth", "--top", TOP, "--preset", "huge"), "PRESET of"),
        (("fpga", "--top", TOP, "--device", "stratix"), "DEVICE must be one of"),
        (("bitstream", "--top", "veda_axi", "--board", "icestick"), "BOARD must be one of"),
        (("bitstream", "--top", "veda"), "TOP must be an accelerator with the AXI shell"),
        (("export", "--top", TOP, "--for", "quartus"), "FOR must be one of"),
        (("export", "--top", TOP, "--for", "orfs", "--period", "0"), "PERIOD must be"),
        (("export", "--top", TOP, "--for", "orfs", "--name", "3d"), "NAME must name a module"),
        (("export", "--top", TOP, "--for", "orfs", "--name", ""), "NAME must name a module"),
        (("export", "--top", TOP, "--for", "orfs", "--macros", "none.toml"), "MACROS must name a"),
        (("export", "--top", TOP, "--for", "orfs", "--macros", ""), "MACROS must name a TOML"),
        (
            ("export", "--top", TOP, "--for", "vivado", "--macros", "fakeram45.toml"),
            "MACROS requires FOR to be one of orfs, librelane, not 'vivado'",
        ),
    ],
)
def test_illegal_input_is_rejected_in_one_sentence(run, arguments, message: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((), "refresh_controller_tiny"),
        (("--name", "mine"), "mine"),
    ],
)
def test_an_export_is_named_by_its_configuration_or_by_name(
    run, arguments: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    unit = ("--top", "refresh_controller", "--preset", "tiny", "--for", "fusesoc")
    result = run("export", *unit, "--out", str(tmp_path / "out"), *arguments)
    assert result.exception is None, result.output
    core = (tmp_path / "out" / f"{name}.core").read_text()
    assert f"toplevel: {name}\n" in core and f"systola:llm:{name}:" in core
    assert f"module {name}(" in (tmp_path / "out" / "rtl" / f"{name}.v").read_text()


def test_memories_at_which_orfs_stops_are_printed(run, tmp_path: Path) -> None:
    result = run("export", "--top", "kv_edram", "--preset", "smollm2", "--for", "orfs",
                 "--out", str(tmp_path / "out"))  # fmt: skip
    assert result.exception is None, result.output
    assert "memory too large for the flow" in result.output
    rows = [line for line in (tmp_path / "out" / "README.md").read_text().splitlines()
            if line.startswith("| `")]  # fmt: skip
    assert rows
    for row in rows:
        _, memory, width, depth, bits, _ = (word.strip(" `") for word in row.split("|"))
        assert int(width) * int(depth) == int(bits) > 4096
        assert memory in result.output and bits in result.output


def test_memories_and_their_macros_are_printed(run, tmp_path: Path) -> None:
    result = run("export", "--top", "kv_edram", "--preset", "tiny", "--for", "librelane",
                 "--macros", "fakeram45.toml", "--out", str(tmp_path / "out"))  # fmt: skip
    assert result.exception is None, result.output
    # The unit has eight copies of its one memory, each in two macros.
    total = "16 macros with 16,384 bits and 12,713 um2 for 8,192 memory bits, and 528 flip-flops"
    assert f"{total} in their wrappers; 0 memory bits remain flip-flops" in result.output
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "| 32 x 32 | 1R1W | 8 | 2 copies of 1 x 1 fakeram45_32x32 | 2.0 | 1,589 | 66 |" in readme
    assert (tmp_path / "out" / "macros" / "fakeram45_32x32.v").is_file()


def test_a_report_needs_no_measurement(run, tmp_path: Path) -> None:
    result = run("report")
    assert result.exception is None, result.output
    assert "are kept in the repository" in (tmp_path / "report" / "report.html").read_text()


def test_a_verb_ends_with_the_path_of_what_it_wrote(run, tmp_path: Path) -> None:
    for verb in (("synth",), ("export", "--for", "fusesoc")):
        result = run(verb[0], "--top", "refresh_controller", "--preset", "tiny", *verb[1:])
        assert result.exception is None, result.output
        last = result.output.strip().splitlines()[-1]
        assert last.startswith("wrote ")
        assert Path(last.removeprefix("wrote ")).is_file()
    result = run("report")
    assert result.exception is None, result.output
    assert (tmp_path / "report" / "report.html").is_file()

from pathlib import Path

import pytest

from hdl.errors import UserError
from synth.waveforms import read_waveforms

TOP = "design_under_test"


def test_transitions_are_counted_by_bit_and_cycle(tmp_path: Path) -> None:
    """What changes with an edge is seen by the next one: five of the counts are."""
    file = tmp_path / "waves.vcd"
    write_vcd(file, counts=[0, 1, 3, 2, 2, 9])
    waves = read_waveforms(file, TOP)
    # Before the first edge the count has no value yet, which is 0 here.
    assert waves.cycles == 6
    assert [waves.nets[f"count[{bit}]"] for bit in range(3)] == [0b001100, 0b111000, 0]
    assert waves.transitions(waves.nets["count[0]"]) == 2 / 5
    assert waves.transitions(waves.nets["count[1]"]) == 1 / 5
    assert waves.ones(waves.nets["count[1]"]) == 3 / 6
    assert "clk" not in waves.nets


def test_no_change_is_counted_over_a_gap(tmp_path: Path) -> None:
    """Two windows of three cycles: the count differs between them, and only within one counts."""
    file = tmp_path / "waves.vcd"
    write_vcd(file, counts=[0, 0, 255, 255, 254, 254], gap=(3, 1000))
    waves = read_waveforms(file, TOP)
    assert waves.changes == 0b11011
    assert waves.nets["count[7]"] == 0b111000
    assert waves.transitions(waves.nets["count[7]"]) == 0
    assert waves.transitions(waves.nets["count[0]"]) == 1 / 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not a waveform", "VCD must be a value change dump"),
        ("$scope module other $end\n$enddefinitions $end\n", "VCD must contain the signals of"),
        (
            f"$scope module {TOP} $end\n$var wire 1 ! clk $end\n$enddefinitions $end\n0!\n",
            "VCD must contain a running clock",
        ),
    ],
)
def test_a_file_that_is_no_waveform_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "waves.vcd"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        read_waveforms(file, TOP)


def write_vcd(path: Path, counts: list[int], gap: tuple[int, int] = (0, 0)) -> None:
    """Write a count that changes with each edge; before one of them some time may pass."""
    lines = [
        "$timescale 1ns $end",
        "$scope module bench $end",
        f"$scope module {TOP} $end",
        "$var wire 1 ! clk $end",
        '$var wire 8 " count [7:0] $end',
        "$upscope $end",
        "$upscope $end",
        "$enddefinitions $end",
        "#0",
        "0!",
    ]
    for cycle, count in enumerate(counts):
        time = 10 * cycle + (gap[1] if cycle >= gap[0] else 0)
        lines += [f"#{time + 5}", "1!", f'b{count:b} "', f"#{time + 10}", "0!"]
    path.write_text("\n".join(lines) + "\n")

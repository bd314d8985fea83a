import json
from pathlib import Path

import pytest

from hdl.errors import UserError
from synth.layout.calibration import LENGTHS, Sample, calibrate, held_out, main, sample_of


def _sample(name: str, pitches: float, *, slope: float = 40.0) -> Sample:
    """Return a layout whose wires are `pitches` per load, each pitch of which takes `slope` ps."""
    return Sample(
        name=name,
        wired_ps=1000 + slope * pitches,
        model_ps=tuple(1000 + slope * length for length in LENGTHS),
    )


def test_error_is_that_of_the_clock() -> None:
    """The model's path is 1120 ps at 3 pitches and 1150 ps at 3.75; the layout's is 1100 ps."""
    sample = _sample("a", 2.5)
    assert sample.error(2.5) == pytest.approx(0.0)
    assert sample.error(3.0) == pytest.approx(1100 / 1120 - 1)
    assert sample.error(3.75) == pytest.approx(1100 / 1150 - 1)
    with pytest.raises(ValueError, match="pitches must be between 0"):
        sample.error(7.0)


def test_calibration_minimises_the_largest_error() -> None:
    """Of 1100 and 1180 ps, 1140 ps has about the same error; two layouts of one do not count."""
    samples = [_sample("a", 2.5), _sample("b", 2.5), _sample("c", 4.5)]
    pitches = calibrate(samples)
    assert pitches == pytest.approx(3.5, abs=0.1)
    worst = max(abs(sample.error(pitches)) for sample in samples)
    for other in (pitches - 0.2, pitches + 0.2):
        assert max(abs(sample.error(other)) for sample in samples) > worst


def test_a_layout_does_not_calibrate_its_own_error() -> None:
    found = held_out([_sample("a", 2.0), _sample("b", 2.0), _sample("c", 6.0)])
    pitches, error = found["c"]
    assert pitches == pytest.approx(2.0, abs=0.05)
    assert error == pytest.approx(1240 / 1080 - 1, abs=0.003)
    assert found["a"][0] == pytest.approx(4.0, abs=0.2)


def test_rejects_a_single_layout() -> None:
    with pytest.raises(UserError, match="a calibration needs at least two layouts, not 1"):
        held_out([_sample("a", 2.0)])


def test_reads_layouts_with_timing_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files: list[str] = []
    for index, pitches in enumerate((2.0, 3.0)):
        figures = {
            "top": f"unit{index}",
            "preset": "tiny",
            "wired": {"setup_ps": {"a": 900.0, "b": 1000 + 40 * pitches}},
            "model": {
                "pitches_per_load": list(LENGTHS),
                "critical_ps": [1000 + 40 * length for length in LENGTHS],
            },
        }
        file = tmp_path / f"{index}.json"
        file.write_text(json.dumps(figures))
        files.append(str(file))
    (tmp_path / "none.json").write_text('{"wired": null}')
    assert sample_of({"wired": None}) is None
    main([*files, str(tmp_path / "none.json")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == "unit0 / tiny 3.00 pitches from the others, error -3.6%".split()
    assert lines[-1] == "all 2 layouts: 2.50 pitches, largest error 1.8%"

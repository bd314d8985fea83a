"""The pictures of the normalised rows: their values by hand, and that they are legible."""

import numpy as np
import pytest
from matplotlib.axes import Axes

from synth import comparison, rooflines
from synth.normalised import accelerators, energy_mj
from tests.synth.drawings import faults_of, words_of

DATA = comparison.kept()
SYSTEMS = accelerators(DATA)


def lines_of(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Return the points of the lines that have a name."""
    return {
        str(line.get_label()): [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())]
        for line in axes.get_lines()
        if not str(line.get_label()).startswith("_")
    }


@pytest.mark.parametrize("key", sorted(SYSTEMS))
def test_a_roofline_is_the_smaller_of_transfer_and_computation(key: str) -> None:
    figures = SYSTEMS[key]["figures"]
    # 500 MHz is P3-LLM's only legal clock, and its bytes off the chip are those on the channel.
    mhz = 500 if key == "p3llm" else figures["fastest_mhz"]
    moved = figures["channel_bytes" if key == "p3llm" else "bytes_per_token"]
    roof = mhz * 1e6 / figures["cycles"]
    line = lines_of(rooflines.normalised_plot(DATA).axes[0])[key]
    assert len(line) == len(rooflines.BANDWIDTHS)
    wanted = [min(roof, gb_s * 1e9 / moved) for gb_s, _own in line]
    assert [own for _gb_s, own in line] == pytest.approx(wanted)
    assert wanted[0] < roof == wanted[-1]


def test_panels_have_the_systems_whose_figures_exist() -> None:
    _, by_area, by_quality, by_bytes = rooflines.normalised_plot(DATA).axes
    assert set(lines_of(by_area)) == set(SYSTEMS)
    found = lines_of(by_quality)
    assert set(found) == {key for key in SYSTEMS if isinstance(energy_mj(SYSTEMS[key]), float)}
    for key, ((perplexity, energy),) in found.items():
        assert perplexity == SYSTEMS[key]["figures"]["perplexity"]
        assert energy > SYSTEMS[key]["figures"]["energy_mj"]
    for key, ((perplexity, moved),) in lines_of(by_bytes).items():
        assert perplexity == SYSTEMS[key]["figures"]["perplexity"]
        figures = SYSTEMS[key]["figures"]
        own = figures["channel_bytes" if key == "p3llm" else "bytes_per_token"]
        assert moved * 1e6 == pytest.approx(own)
    assert set(lines_of(by_bytes)) == set(SYSTEMS)


def test_the_picture_is_of_the_kept_figures_and_legible() -> None:
    assert rooflines.PLOT.read_text() == rooflines.drawing(DATA), "run make report DOCS=1"
    figure = rooflines.normalised_plot(DATA)
    assert not list(faults_of(figure))
    words = " ".join(text for text, _ in words_of(figure))
    assert words.count("higher is better") == 2 and words.count("lower is better") == 5
    assert all(system["name"] in words for system in SYSTEMS.values())

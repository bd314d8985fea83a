"""The plot of LAD's schedule shows the stored cycles, in the order of the paper's figure."""

import json

from synth.schedule import DATA, PLOT, drawing


def test_the_picture_is_that_of_the_cycles() -> None:
    assert PLOT.read_text() == drawing(json.loads(DATA.read_text()))


def test_projections_and_steps_are_in_the_order_of_figure_6() -> None:
    """Projections of a head for four samples, its attention in two tiles, then the next head."""
    data = json.loads(DATA.read_text())
    steps, batch = data["steps"], data["batch"]
    assert [step[0] for step in steps] == [number % 2 for number in range(12)]
    for head, (first, last) in enumerate(data["projections"]):
        begins = [step[1] for step in steps[head * batch : (head + 1) * batch]]
        assert first < last < min(begins)
        # Steps of a head have begun, and not all ended, when the next one is projected.
        for later in data["projections"][head + 1 : head + 2]:
            assert max(begins) < later[0]
            assert max(step[5] for step in steps[head * batch : (head + 1) * batch]) > later[0]

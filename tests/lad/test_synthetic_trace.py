"""The synthetic trace has the locality that the paper reports."""

import numpy as np
import pytest

from golden.lad.key_centres import all_centres
from golden.lad.synthetic_trace import SyntheticTrace
from golden.study.lad_fidelity import scheme
from golden.study.lad_locality import synthetic


def test_statistics_are_the_paper_s() -> None:
    """Figure 2 (b), the hit ratio of Section IV-D, the errors of Section III-F."""
    source = synthetic(scheme(5, centres=True), SyntheticTrace(length=1024), (256, 1024))
    shares = source.trace.shares[-1, 0, 0]
    means = source.means(1024)
    assert shares[0] > 0.74
    assert shares[:2].sum() > 0.95
    assert means["hits"] / means["active"] > 0.8
    assert means["missed"] / 1024 < 0.02
    assert means["active"] / 1024 < 0.2
    assert 1 <= means["changed"] < 3


def test_keys_have_the_directions() -> None:
    trace = SyntheticTrace(length=600, directions=60, head_size=64)
    _queries, keys, _values = trace.draw()
    centre, _ratio = all_centres(keys)
    # The sink has a direction of its own.
    assert np.count_nonzero(centre == np.arange(600)) == pytest.approx(61, abs=3)


def test_a_trace_repeats_with_its_seed() -> None:
    first, again, other = (
        SyntheticTrace(length=64, directions=8, seed=seed).draw()[0] for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 8}, "length must be an integer from 32 to 8192, not 8"),
        ({"directions": 1}, "directions must be an integer from 2 to 4096, not 1"),
        ({"persistence": 1.0}, r"persistence must be in \[0, 1\), not 1.0"),
        ({"straying": -1.0}, "straying must be at least 0, not -1.0"),
    ],
)
def test_illegal_traces_are_rejected(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SyntheticTrace(**change)  # pyright: ignore[reportArgumentType]

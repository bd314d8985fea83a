"""EAS module: the model against float64 and an independent Algorithm 1."""

import re
from typing import Any

import numpy as np
import pytest

from golden.arith.float_values import codes, values
from golden.lad.eas.attention_score_module import (
    LEAST_NORM,
    ONE,
    THRESHOLD,
    attention_scores,
    key_centre,
    large_modes,
    largest,
)
from golden.lad.key_centres import all_centres
from golden.lad.synthetic_trace import SyntheticTrace
from hdl.catalog import entry_named
from hdl.emit import Emission
from hdl.lad.eas import eas_parameters
from hdl.lad.eas.attention_score_module import AttentionScoreModule
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from testbenches.lad.eas.tb_attention_score_module import random_step
from testbenches.lad.vectors import head_vectors
from testbenches.lint import lint_unit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"root_stages": 0}, "root_stages must be an integer from 1 to 13, not 0"),
        ({"divide_stages": 17}, "divide_stages must be an integer from 1 to 16, not 17"),
    ],
)
def test_illegal_parameters_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        AttentionScoreModuleParameters(**change)


def test_vector_units_can_be_outside() -> None:
    p = entry_named("attention_score_module").parameters("tiny")
    emission = Emission(top=AttentionScoreModule(parameters=p, shared=True), name="shared")
    assert any(port.name.startswith("units_1_") for port in emission.modules[-1].ports)
    assert not lint_unit("shared", emission)


def test_hardware_and_model_have_the_same_constants() -> None:
    assert (eas_parameters.THRESHOLD, eas_parameters.LEAST_NORM) == (THRESHOLD, LEAST_NORM)


def test_large_modes() -> None:
    modes = np.array([0, 3, 2, 4, 0, 0, 0])
    expected = [True, True, False, True, False, True, True]
    assert large_modes(modes, intervals=5, recent=2).tolist() == expected
    assert large_modes(np.zeros(3, int), intervals=5, recent=16).all()


def decoded(keys: Any) -> tuple[Any, Any, Any]:
    """Return the model's centres, norms and ratios of keys [n, d], step by step."""
    n = len(keys)
    centres, norms, ratios = (np.zeros(n, np.int64) for _ in range(3))
    for now in range(n):
        members = np.nonzero(centres[:now] == np.arange(now))[0]
        found = key_centre(keys[now], keys[members], members, norms[members])
        centres[now] = now if found.centre < 0 else found.centre
        norms[now], ratios[now] = found.norm, found.ratio
    return centres, norms, ratios


def collinear_keys(count: int, size: int) -> Any:
    """Return keys of many norms on some directions, with both signs."""
    rng = np.random.default_rng(3)
    units = rng.standard_normal((12, size))
    lengths = rng.choice([-1, 1], count) * rng.uniform(0.2, 4, count)
    noise = 0.02 * rng.standard_normal((count, size))
    return codes(lengths[:, np.newaxis] * (units[rng.integers(0, 12, count)] + noise))


@pytest.mark.parametrize("source", ["SmolLM2", "synthetic", "collinear"])
def test_centres_are_those_of_algorithm_1_in_float64(source: str) -> None:
    """Compare with brute force; a cosine within FP16's rounding of the threshold may differ."""
    if source == "SmolLM2":
        keys = head_vectors("k", 64, layer=14)[:200]
    elif source == "synthetic":
        keys = codes(SyntheticTrace(head_size=64, length=300, directions=40).draw()[1])
    else:
        keys = collinear_keys(200, 64)
    centres, norms, ratios = decoded(keys)
    exact, exact_ratios = all_centres(values(keys))
    agree = np.mean(centres == exact)
    assert agree >= (1.0 if source == "collinear" else 0.98)
    same = centres == exact
    assert np.allclose(values(ratios)[same], exact_ratios[same], rtol=2.0**-9)
    assert np.allclose(values(norms), np.linalg.norm(values(keys), axis=1), rtol=2.0**-9)


def test_one_direction_has_one_centre() -> None:
    key = np.array([3.0, -4.0, 0.0])
    keys = codes(np.stack([key, 2 * key, -0.5 * key, [4.0, 3.0, 0.0]]))
    centres, norms, ratios = decoded(keys)
    assert centres.tolist() == [0, 0, 0, 3]
    assert values(norms).tolist() == [5, 10, 2.5, 5]
    assert values(ratios).tolist() == [1, 2, -0.5, 1]


def test_ties_of_cosines_resolve_to_first_centre() -> None:
    keys = codes(np.array([[1.0, 0, 0], [2.0, 0, 0], [-3.0, 0, 0]]))
    norms = codes(np.array([1.0, 2.0, 3.0]))
    found = key_centre(codes(np.array([6.0, 0, 0])), keys, [4, 7, 9], norms)
    assert (found.centre, values(found.ratio)) == (4, 6.0)


def test_keys_without_direction_are_centres() -> None:
    """Zero, NaN, and keys whose square overflows: all are defined, and none has another centre."""
    one, norms = codes(np.array([[1.0, 0]])), codes(np.array([1.0]))
    found = key_centre(codes(np.array([0.0, 0])), one, [0], norms)
    assert (found.centre, found.norm, found.ratio) == (-1, LEAST_NORM, ONE)
    for key in ([np.nan, 0], [300.0, 0]):
        found = key_centre(codes(np.array(key)), one, [0], norms)
        assert (found.centre, found.ratio) == (-1, ONE)
    # The converse: a key of norm 1 does not select them as centres.
    for bad in (np.nan, np.inf):
        found = key_centre(one[0], codes(np.array([[bad, 0]])), [0], codes(np.array([bad])))
        assert found.centre == -1


def test_largest_is_numpy_s() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 2, 3, 17):
        scores = codes(rng.standard_normal(size))
        assert values(largest(scores)) == values(scores).max()
    assert largest(np.array([0x8000, 0x0000], np.uint16)) == 0
    assert largest(np.array([0x3C00, 0xFE01], np.uint16)) == 0x7E00
    assert largest(np.array([0xFC00], np.uint16)) == 0xFC00


def test_scores_one_by_one() -> None:
    """Follow the text of Section IV-B (2): centres, then all positions, then M."""
    p = AttentionScoreModuleParameters(**{})
    rng = np.random.default_rng(8)
    for length in (1, 5, 40):
        step = random_step(p, rng, length)
        rows = np.append(step.fetched(p), length - 1)
        precise = step.precise(p)
        scored = attention_scores(
            step.query, step.keys[rows], step.centres, step.ratios, precise, rows
        )

        def exact(i: int, step: Any = step) -> int:
            only = np.ones(1, bool)
            one = step.keys[i : i + 1]
            return int(attention_scores(step.query, one, [0], [ONE], only, [0]).scores[0])

        for i in range(length):
            if precise[i]:
                expected = exact(i)
            else:
                with np.errstate(all="ignore"):
                    centre = np.uint16(exact(int(step.centres[i]))).view(np.float16)
                    product = centre * step.ratios[i].view(np.float16)
                expected = 0x7E00 if np.isnan(product) else int(product.view(np.uint16))
            assert scored.scores[i] == expected, i


def test_scores_of_real_keys_are_float64_s() -> None:
    """With real centres: exact scores where a key is its own centre, near ones elsewhere."""
    keys = head_vectors("k", 64, layer=14)[:200]
    query = codes(values(head_vectors("q", 64, layer=14)[199]) / 8)
    centres, _norms, ratios = decoded(keys)
    precise = large_modes(np.zeros(200, int), intervals=5, recent=16)
    rows = np.nonzero((centres == np.arange(200)) | precise)[0]
    scored = attention_scores(query, keys[rows], centres, ratios, precise, rows)
    exact = values(keys) @ values(query)
    own = centres == np.arange(200)
    scale = np.linalg.norm(values(keys), axis=1) * np.linalg.norm(values(query))
    assert np.all(np.abs(values(scored.scores) - exact)[own] < 2.0**-9 * scale[own])
    # cos > 0.98: the component across is below sin(acos(0.98)) = 0.2 of the key.
    assert np.all(np.abs(values(scored.scores) - exact) < 0.21 * scale)

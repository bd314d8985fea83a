"""AWQ against its equations: the function is kept, the searches find the smallest errors."""

from dataclasses import replace

import numpy as np
import pytest

from golden.arith import bitmod_fp4
from golden.p3llm.activation_aware import (
    POWERS,
    SHRINKS,
    Tensors,
    activation_aware,
    attended,
    best_scales,
    channel_scales,
    clipped,
    gated,
    normed,
    rounded,
)
from golden.p3llm.whole_model import LAYER_TENSORS, WeightMethod, WholeModel, quantised_model
from hdl.catalog import entry_named
from hdl.model_shape import ModelShape
from tests.generation.random_models import random_model
from tests.p3llm.test_whole_model import SHAPE, in_float64

GROUP = 16
SMALL = ModelShape(
    hidden_size=32,
    intermediate_size=48,
    heads=4,
    kv_heads=2,
    head_size=8,
    layers=1,
    vocabulary_size=10,
    context_length=64,
    rope_base=10_000.0,
    norm_epsilon=1e-5,
)


def drawn_tensors(shape: ModelShape) -> Tensors:
    rng = np.random.default_rng(shape.kv_heads)
    width, inner = shape.hidden_size, shape.intermediate_size
    heads, kv = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    sizes = {
        "query": (heads, width),
        "key": (kv, width),
        "value": (kv, width),
        "output": (width, heads),
        "gate": (inner, width),
        "up": (inner, width),
        "down": (width, inner),
    }
    tensors = {name: rng.normal(size=size) / 6 for name, size in sizes.items()}
    # Norms with outlier channels, as in language models.
    for name in ("input_norm", "feed_forward_norm"):
        tensors[name] = rng.exponential(size=width) ** 2 + 0.05
    return {name: own.astype(np.float32) for name, own in tensors.items()}


def layer_outputs(tensors: Tensors, states: np.ndarray, shape: ModelShape) -> np.ndarray:
    """Return what a layer adds to its states, in float64, straight from the equations."""
    t = {name: own.astype(np.float64) for name, own in tensors.items()}
    size, pairs = shape.head_size, np.arange(shape.head_size // 2)

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + shape.norm_epsilon) * weight

    def turned(x: np.ndarray) -> np.ndarray:
        x = x.reshape(len(x), -1, size // 2, 2)
        angle = np.arange(len(x))[:, np.newaxis] * shape.rope_base ** (-2 * pairs / size)
        whole = (x[..., 0] + 1j * x[..., 1]) * np.exp(1j * angle)[:, np.newaxis]
        return np.stack([whole.real, whole.imag], -1).reshape(len(x), -1, size)

    here = norm(states, t["input_norm"])
    queries, keys = turned(here @ t["query"].T), turned(here @ t["key"].T)
    values = (here @ t["value"].T).reshape(len(here), -1, size)
    heads = []
    for head in range(shape.heads):
        kv = head // (shape.heads // shape.kv_heads)
        rows = []
        for last in range(len(here)):
            scores = keys[: last + 1, kv] @ queries[last, head] / np.sqrt(size)
            powers = np.exp(scores - scores.max())
            rows.append(powers / powers.sum() @ values[: last + 1, kv])
        heads.append(np.array(rows))
    added = np.concatenate(heads, -1) @ t["output"].T
    here = norm(states + added, t["feed_forward_norm"])
    gate = here @ t["gate"].T
    return added + (gate / (1 + np.exp(-gate)) * (here @ t["up"].T)) @ t["down"].T


def test_a_module_is_that_of_the_equations() -> None:
    """The search compares outputs of the model's own attention and feed-forward modules."""
    rng = np.random.default_rng(5)
    t, states = drawn_tensors(SMALL), rng.normal(size=(9, 32)).astype(np.float32)
    here = normed(states, t["input_norm"], SMALL)
    added = attended(here, t["query"], t["key"], t["value"], SMALL) @ t["output"].T
    further = normed((states + added).astype(np.float32), t["feed_forward_norm"], SMALL)
    added = added + gated(further, t["gate"], t["up"]) @ t["down"].T
    exact = layer_outputs(t, states, SMALL)
    # Sums of float32 have errors in proportion to the largest terms.
    assert np.abs(added - exact).max() <= 16 * np.finfo(np.float32).eps * np.abs(exact).max()


@pytest.mark.parametrize("kv_heads", [2, 4])
def test_scales_do_not_change_the_layer(kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without clipping, the float64 layer is the same; norms, values and `up` take the scales."""
    rng = np.random.default_rng(5)
    monkeypatch.setattr("golden.p3llm.activation_aware.SHRINKS", (1.0,))
    shape = replace(SMALL, kv_heads=kv_heads)
    t, states = drawn_tensors(shape), rng.normal(size=(20, 32)).astype(np.float32)
    found = activation_aware(t, states, shape, GROUP)
    exact, scaled = (layer_outputs(own, states, shape) for own in (t, found))
    assert np.allclose(exact, scaled, rtol=1e-4, atol=1e-5)
    changed = {name for name in LAYER_TENSORS if not np.allclose(found[name], t[name])}
    always = {"input_norm", "query", "key", "value", "feed_forward_norm", "gate", "up", "down"}
    assert changed == always | ({"output"} if kv_heads == 4 else set())


def test_the_layer_is_nearer_after_rounding() -> None:
    rng = np.random.default_rng(5)
    t, states = drawn_tensors(SMALL), rng.normal(size=(60, 32)).astype(np.float32)
    exact = layer_outputs(t, states, SMALL)
    errors = []
    for tensors in (t, activation_aware(t, states, SMALL, GROUP)):
        stored = {
            name: own if own.ndim == 1 else rounded(own, GROUP) for name, own in tensors.items()
        }
        errors.append(((layer_outputs(stored, states, SMALL) - exact) ** 2).mean())
    assert errors[1] < 0.9 * errors[0]


def test_two_channels_by_hand() -> None:
    """Means 1 and 16: power 1/2 has the scales 1/2 and 2, power 0 has 1 and 1."""
    inputs = np.array([[0.5, -16], [-1.5, 16]], np.float32)
    assert np.allclose(channel_scales(inputs, 0.5), [0.5, 2])
    assert np.array_equal(channel_scales(inputs, 0), [1, 1])
    # 8 and 0.9 in one group: with +8 as special value, 0.9 is rounded to 1 and costs 1.6.
    weights = np.array([[8, 0.9]], np.float32)
    assert np.array_equal(rounded(weights, 2), np.array([[8, 1]], np.float32))
    scales = best_scales(inputs, [weights], lambda own: inputs @ own[0].T, 2)
    errors = {}
    for power in POWERS:
        own = np.array([16.0**-power, 16.0**power]) ** 0.5
        units = weights[0] * own
        # The set with 8 is exact for the largest weight; only the other one is rounded.
        candidates = []
        for top in (5, -5, 8, -8):
            step = np.abs(units).max() / max(6, abs(top))
            numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -6, -4, -3, -2, -1.5, -1, -0.5, top])
            nearest = numbers[np.abs(units[:, None] / step - numbers).argmin(-1)] * step
            candidates.append((((nearest - units) ** 2).sum(), nearest))
        nearest = min(candidates, key=lambda one: one[0])[1]
        errors[power] = ((inputs @ (nearest / own - weights[0])) ** 2).mean()
    power = min(errors, key=errors.__getitem__)
    assert power > 0
    assert np.allclose(scales, channel_scales(inputs, power))


def test_the_search_takes_the_smallest_error() -> None:
    """Of all powers, by the rounding that the paper specifies, in float64."""
    rng = np.random.default_rng(5)
    inputs = (rng.normal(size=(40, 32)) * rng.exponential(size=32) ** 2).astype(np.float32)
    weights = rng.normal(size=(24, 32)).astype(np.float32)
    errors = []
    for power in POWERS:
        scales = channel_scales(inputs.astype(np.float64), power)
        stored = bitmod_fp4.quantise(weights * scales, group_size=GROUP).values()
        off = stored.reshape(24, 32) / scales - weights
        errors.append(((inputs.astype(np.float64) @ off.T) ** 2).mean())
    best = int(np.argmin(errors))
    assert 0 < best < len(POWERS)
    found = best_scales(inputs, [weights], lambda own: inputs @ own[0].T, GROUP)
    assert np.allclose(found, channel_scales(inputs, POWERS[best]), rtol=1e-5)


def test_groups_are_clipped_for_their_own_outputs() -> None:
    """Each group's limit has the smallest error of the calibration's outputs, in float64."""
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(30, 32)).astype(np.float32)
    inputs[:, 3] *= 0.01
    weights = rng.normal(size=(6, 32)).astype(np.float32)
    weights[:, 3] = 6
    found = clipped(weights, inputs, GROUP)
    shrunk = 0
    for row in range(6):
        for part in (slice(0, 16), slice(16, 32)):
            own, x = weights[row, part], inputs[:, part].astype(np.float64)
            errors = []
            for shrink in SHRINKS:
                limit = np.abs(own).max() * np.float32(shrink)
                cut = np.clip(own, -limit, limit)[np.newaxis]
                stored = bitmod_fp4.quantise(cut, group_size=GROUP).values()[0, 0]
                errors.append(((x @ (stored.astype(np.float64) - own)) ** 2).mean())
            best = SHRINKS[int(np.argmin(errors))]
            limit = np.abs(own).max() * np.float32(best)
            assert np.array_equal(found[row, part], np.clip(own, -limit, limit))
            shrunk += best < 1
    assert shrunk >= 6


def test_a_layer_is_clipped_with_its_scaled_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each clipped matrix is that of `clipped` with the inputs of the scaled layer."""
    t, rng = drawn_tensors(SMALL), np.random.default_rng(5)
    states = rng.normal(size=(40, 32)).astype(np.float32)
    found = activation_aware(t, states, SMALL, GROUP)
    with monkeypatch.context() as patched:
        patched.setattr("golden.p3llm.activation_aware.SHRINKS", (1.0,))
        whole = activation_aware(t, states, SMALL, GROUP)
    here = normed(states, whole["input_norm"], SMALL)
    heads = attended(here, whole["query"], whole["key"], whole["value"], SMALL)
    after = (states + heads @ whole["output"].T).astype(np.float32)
    further = normed(after, whole["feed_forward_norm"], SMALL)
    middle = gated(further, whole["gate"], whole["up"])
    inputs = {"value": here, "output": heads, "gate": further, "up": further, "down": middle}
    for name, own in inputs.items():
        assert np.allclose(found[name], clipped(whole[name], own, GROUP)), name
        assert not np.allclose(found[name], whole[name])
    assert all(np.array_equal(found[name], whole[name]) for name in ("query", "key"))


def test_a_model_with_awq_is_nearer_than_with_plain_rounding() -> None:
    """The logits of the calibration text, by the bit-exact model against float64."""
    model = random_model(**SHAPE)
    tokens = np.random.default_rng(2).integers(0, 405, 24).tolist()
    p = entry_named("p3llm").presets["tiny"]
    exact, errors = in_float64(model, tokens), {}
    for method in (WeightMethod.PLAIN, WeightMethod.AWQ):
        quantised = quantised_model(model, tokens, p, method=method)
        sums = WholeModel(p, quantised).step(model.embedding[tokens]).sums
        assert sums is not None
        for own, wanted in zip(sums.astype(np.float64), exact, strict=True):
            assert np.corrcoef(own, wanted)[0, 1] > 0.95
        errors[method] = ((sums - exact) ** 2).mean()
    assert errors[WeightMethod.AWQ] < 0.8 * errors[WeightMethod.PLAIN]

"""QuaRot and QServe: rotation and smoothing change no output, rounding is as described."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golden.p3llm.gptq import DAMPING, gptq
from golden.p3llm.qserve import progressive, qserve_model, smooth
from golden.p3llm.quarot import clipped_steps, per_output, quarot_model
from golden.p3llm.rotated_model import FourBitAttention, rotate_inputs, rotated_model

TOKENS = 40


@pytest.fixture(scope="module")
def network() -> Any:
    """Return two random layers with outlier channels and norms that differ."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(5)
    config = LlamaConfig(
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=192,
        vocab_size=61,
        initializer_range=0.2,
    )
    model: Any = LlamaForCausalLM(config).eval()
    for layer in model.model.layers:
        layer.input_layernorm.weight.data.uniform_(0.5, 3)
        layer.post_attention_layernorm.weight.data.uniform_(0.5, 3)
        layer.self_attn.k_proj.weight.data[3] *= 6
        layer.mlp.up_proj.weight.data[7] *= 9
    model.model.norm.weight.data.uniform_(0.5, 3)
    return model


@pytest.fixture(scope="module")
def tokens() -> Tensor:
    return torch.tensor(np.random.default_rng(4).integers(0, 61, TOKENS))


def logits(model: Any, tokens: Tensor) -> Tensor:
    with torch.inference_mode():
        found: Tensor = model(input_ids=tokens[None], use_cache=False).logits[0]
    return found


def inputs_of(module: Any, model: Any, tokens: Tensor) -> Tensor:
    taken = []
    hook = module.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0]))
    logits(model, tokens)
    hook.remove()
    return taken[0].flatten(0, -2)


def test_rotations_change_channels_but_no_output(network: Any, tokens: Tensor) -> None:
    rotated = rotated_model(network)
    for layer in rotated.model.layers:
        rotate_inputs(layer.mlp.down_proj)
    assert torch.allclose(logits(rotated, tokens), logits(network, tokens), atol=2e-4)
    spread = [
        float(own.abs().amax(0).max() / own.abs().amax(0).median())
        for own in (
            inputs_of(model.model.layers[1].mlp.down_proj, model, tokens)
            for model in (network, rotated)
        )
    ]
    assert spread[1] < spread[0] / 2


def test_smoothing_changes_keys_and_inputs_but_no_output(network: Any, tokens: Tensor) -> None:
    rotated = rotated_model(network)
    before = rotated.model.layers[0].self_attn.k_proj.weight.data.clone()
    smooth(rotated, tokens)
    assert torch.allclose(logits(rotated, tokens), logits(network, tokens), atol=2e-4)
    # A key's factor is its largest magnitude to the power of one half; pairs of channels share it.
    ratio = (before / rotated.model.layers[0].self_attn.k_proj.weight.data)[:, 0].unflatten(
        0, (2, 2, 8)
    )
    assert torch.allclose(ratio[:, 0], ratio[:, 1], rtol=1e-4)
    assert float(ratio.max() / ratio.min()) > 1.2
    largest = inputs_of(rotated.model.layers[1].mlp.down_proj, rotated, tokens).abs().amax(0)
    assert torch.equal(largest, largest.sort(descending=True).values)


def explicit(weights: Tensor, products: Tensor, rounding: Callable[[Tensor], Tensor]) -> Tensor:
    """Round by the optimal brain surgeon's equations, with a new inverse for every column."""
    left, damped = weights.double().clone(), products.double().clone()
    damped += DAMPING * damped.diagonal().mean() * torch.eye(len(damped))
    for column in range(left.shape[1]):
        inverse = torch.linalg.inv(damped[column:, column:])
        rounded = rounding(left[:, column])
        change = (left[:, column] - rounded)[:, None] * inverse[0] / inverse[0, 0]
        left[:, column:] -= change
        left[:, column] = rounded
    return left


@pytest.mark.parametrize("columns", (5, 130))
def test_gptq_is_the_optimal_brain_surgeon(columns: int) -> None:
    generator = torch.Generator().manual_seed(columns)
    inputs = torch.randn((300, columns), generator=generator).double()
    inputs[:, 1:] += 0.8 * inputs[:, :-1]
    weights = torch.randn((7, columns), generator=generator)
    products = inputs.T @ inputs

    def rounding(column: Tensor) -> Tensor:
        return (column * 4).round() / 4

    found = gptq(weights, products, columns, lambda _: rounding)
    assert torch.allclose(found.double(), explicit(weights, products, rounding), atol=1e-6)
    plain = rounding(weights)

    def error(own: Tensor) -> float:
        return float(((own - weights).double() @ inputs.T).square().sum())

    assert error(found) < 0.8 * error(plain)


def test_gptq_gives_no_weight_to_inputs_that_are_always_zero() -> None:
    weights = torch.ones((2, 3))
    products = torch.diag(torch.tensor([2.0, 0.0, 3.0]))
    found = gptq(weights, products, 3, lambda _: torch.round)
    assert found.tolist() == [[1, 0, 1], [1, 0, 1]]


def test_groups_compute_scales_from_their_own_weights() -> None:
    seen = []

    def rounding(group: Tensor) -> Callable[[Tensor], Tensor]:
        seen.append(group.clone())
        return torch.round

    weights = torch.randn((3, 8), generator=torch.Generator().manual_seed(2))
    gptq(weights, torch.eye(8), 4, rounding)
    assert [own.shape for own in seen] == [(3, 4), (3, 4)]
    # With independent inputs no error moves to a later group.
    assert torch.allclose(torch.cat(seen, 1).float(), weights)


def test_two_levels_have_sixteen_codes_and_an_int8_product() -> None:
    weights = torch.randn((9, 256), generator=torch.Generator().manual_seed(3))
    weights[2] *= 50
    weights[4] = 0
    group, rounding = progressive(weights)
    assert group == 128
    steps = weights.double().abs().amax(1) / 119
    for first in (0, 128):
        own = weights[:, first : first + group].double()
        rounded = rounding(own)
        found = torch.stack([rounded(column) for column in own.T], 1)
        for row in range(len(weights)):
            assert len(found[row].unique()) <= 16
        integers = found / steps.clamp_min(1e-12)[:, None]
        assert torch.allclose(integers, integers.round(), atol=1e-6)
        assert integers.abs().max() <= 127
        codes = own / steps.clamp_min(1e-12)[:, None]
        step = (codes.amax(1).clamp_min(0) - codes.amin(1).clamp_max(0)) / 15
        assert ((integers - codes).abs() <= 0.5 * step[:, None] * 1.6 + 1.5).all()
    assert progressive(weights[:, :192])[0] == 64


def test_steps_of_outputs_are_the_best_of_the_grid() -> None:
    weights = torch.randn((5, 40), generator=torch.Generator().manual_seed(6)).double()
    weights[1, 3] = 9.0
    found = clipped_steps(weights)
    for row, own in zip(weights, found, strict=True):
        whole = float(row.abs().max()) / 7
        errors = {}
        for shrink in range(21, 101):
            step = whole * shrink / 100
            errors[step] = sum(
                abs(min(max(round(w / step), -8), 7) * step - w) ** 2.4 for w in row.tolist()
            )
        assert errors[min(errors, key=lambda step: abs(step - float(own)))] == pytest.approx(
            min(errors.values()), rel=1e-9
        )
    assert float(found[1]) < float(weights[1].abs().max()) / 7 * 0.95
    rounded = per_output(weights)
    assert torch.allclose(rounded(weights[:, 0]) / found, (rounded(weights[:, 0]) / found).round())


@pytest.mark.parametrize("rotated", (False, True))
def test_attention_has_keys_and_values_of_four_bits(rotated: bool) -> None:
    """Each value of a head and token is one of 16; the sums are those of float64."""
    generator = torch.Generator().manual_seed(8)
    query = torch.randn((1, 4, 5, 16), generator=generator).double()
    key, value = (torch.randn((1, 2, 5, 16), generator=generator).double() for _ in range(2))
    attention = FourBitAttention(clip=0.95, rotated=rotated)
    stored = attention._stored(value)
    for vector in stored.flatten(0, 2):
        assert len(vector.unique()) <= 16
    low, high = 0.95 * value.amin(-1), 0.95 * value.amax(-1)
    step = ((high - low) / 15)[..., None]
    inside = (value > low[..., None] + step) & (value < high[..., None] - step)
    assert ((stored - value).abs()[inside] <= (0.5001 * step.expand_as(value))[inside]).all()
    got, _ = attention(None, query, key, value, None, scaling=0.25)
    for head in range(4):
        asked, kept = query[0, head], key[0, head // 2]
        if rotated:
            from golden.arith.hadamard import hadamard

            basis = torch.tensor(hadamard(16))
            asked, kept = asked @ basis, kept @ basis
        scores = asked @ attention._stored(kept).T * 0.25
        scores = scores.masked_fill(torch.ones(5, 5).triu(1) > 0, -torch.inf)
        expected = scores.softmax(-1) @ stored[0, head // 2]
        assert torch.allclose(got[0, :, head], expected, atol=1e-9)


@pytest.mark.parametrize("quantised", (quarot_model, qserve_model))
def test_quantised_copies_change_no_model_and_lose_little(
    quantised: Callable[..., Any], network: Any, tokens: Tensor
) -> None:
    plain = logits(network, tokens)
    layers = []
    found = quantised(network, tokens, lambda: layers.append(1))
    assert len(layers) == 2
    assert torch.equal(logits(network, tokens), plain)
    off = float((logits(found, tokens) - plain).norm() / plain.norm())
    assert 0.02 < off < 0.5
    weights = found.model.layers[1].self_attn.o_proj.weight.data
    if quantised is quarot_model:
        assert max(len(row.unique()) for row in weights) <= 16

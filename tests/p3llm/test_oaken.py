"""Oaken's quantiser against its description, element by element in float64."""

from typing import Any

import numpy as np
import pytest
import torch

from golden.p3llm.oaken import (
    Thresholds,
    oaken,
    oaken_cache,
    projections,
    watched_projections,
)


def on_grid(element: float, group: list[float], bits: int) -> float:
    """Return an element on the grid of its group; the grid includes zero."""
    least, most = min(0.0, *group), max(0.0, *group)
    step = (most - least) / (2**bits - 1)
    return least + round((element - least) / step) * step if step else element


def described(vector: np.ndarray, outer: tuple[float, float], inner: tuple[float, float]) -> list:
    """Return a vector by the published description."""
    kinds, shifted = [], []
    for element in vector.tolist():
        if element <= outer[0] or element >= outer[1]:
            kinds.append("outer")
            shifted.append(element - (outer[1] if element > 0 else outer[0]))
        elif inner[0] < element < inner[1]:
            kinds.append("inner")
            shifted.append(element)
        else:
            kinds.append("middle")
            shifted.append(element - (inner[1] if element > 0 else inner[0]))
    found = []
    for kind, own, element in zip(kinds, shifted, vector.tolist(), strict=True):
        group = [other for at, other in zip(kinds, shifted, strict=True) if at == kind]
        code = on_grid(own, group, 4 if kind == "middle" else 5)
        edges = {"outer": outer, "middle": inner, "inner": (0.0, 0.0)}[kind]
        found.append(code + (edges[1] if element > 0 else edges[0]))
    return found


def test_vectors_are_quantised_as_described() -> None:
    elements = torch.randn((40, 48), generator=torch.Generator().manual_seed(3)).double()
    elements[:, 5] *= 6
    found = Thresholds.of(elements)
    got = oaken(elements, found).numpy()
    for vector, own in zip(elements.numpy(), got, strict=True):
        assert np.allclose(own, described(vector, found.outer, found.inner), atol=1e-9)
    inside = (elements > found.inner[0]) & (elements < found.inner[1])
    outside = (elements <= found.outer[0]) | (elements >= found.outer[1])
    assert float(inside.double().mean()) == pytest.approx(0.06, abs=0.005)
    assert float(outside.double().mean()) == pytest.approx(0.04, abs=0.005)


def test_a_vector_by_hand() -> None:
    """Middle: 0.5 to 2, shifted by 0.5 to 0 .. 1.5, a step of 0.1; outer: one exact element."""
    thresholds = Thresholds(outer=(-3.0, 3.0), inner=(-0.5, 0.5))
    vector = torch.tensor([0.5, 0.57, 1.26, 2.0, 7.0, 0.31, 0.0], dtype=torch.float64)
    got = oaken(vector[None], thresholds)[0]
    assert torch.allclose(got, torch.tensor([0.5, 0.6, 1.3, 2.0, 7.0, 0.31, 0.0]).double())


def test_only_keys_and_values_are_quantised() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        vocab_size=53,
    )
    model: Any = LlamaForCausalLM(config).eval()
    names = {name.rpartition(".")[2] for name in projections(model)}
    assert names == {"k_proj", "v_proj"} and len(projections(model)) == 4
    text = torch.arange(20)[None]
    with torch.inference_mode():
        with watched_projections(model) as thresholds:
            plain = model(input_ids=text).logits
        made = {}
        hook = model.model.layers[0].self_attn.k_proj.register_forward_hook(
            lambda _, __, own: made.update(before=own.clone())
        )
        with oaken_cache(model, thresholds):
            quantised = model(input_ids=text).logits
        hook.remove()
        assert torch.equal(model(input_ids=text).logits, plain)
    assert not torch.allclose(quantised, plain)
    own = thresholds["layers.0.self_attn.k_proj"]
    assert own == Thresholds.of(made["before"])

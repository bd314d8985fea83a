"""The modules inside models of `transformers`, and the example of `docs/pytorch.md`."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from golden.policies.scores import H2O
from golden.study.attention import ReplayedAttention, attending
from golden.torch_modules.attentions import Form, PolicyAttention
from golden.torch_modules.in_transformers import heads_of, replaced_attention, replaced_linears
from golden.torch_modules.linears import BitmodLinear, ExactLinear
from hdl.paths import ROOT

PAGE = ROOT / "docs" / "pytorch.md"


@pytest.fixture(scope="module")
def model() -> Any:
    """Return a model of two layers with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=64,
        vocab_size=97,
        initializer_range=0.3,
    )
    network = LlamaForCausalLM(config).eval()
    network.set_attn_implementation("eager")
    return network


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, 97, (2, 40)))


def logits(model: Any, tokens: torch.Tensor, **options: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=tokens, use_cache=False, **options).logits


def test_a_full_cache_gives_the_logits_of_the_model(model: Any, tokens: torch.Tensor) -> None:
    before = logits(model, tokens)
    with replaced_attention(model, [PolicyAttention("full_cache")] * 2):
        found = logits(model, tokens)
    assert torch.allclose(found, before, atol=1e-4)
    assert torch.equal(logits(model, tokens), before)


def test_a_policy_gives_the_logits_of_the_replayed_attention(
    model: Any, tokens: torch.Tensor
) -> None:
    policy = H2O(budget=16)
    with attending(model, ReplayedAttention([policy] * 2)):
        wanted = logits(model, tokens)
    with replaced_attention(model, [PolicyAttention(policy, Form.FAST)] * 2):
        found = logits(model, tokens)
    assert torch.allclose(found, wanted, atol=1e-4)
    assert not torch.allclose(found, logits(model, tokens), atol=1e-2)


def test_linear_layers_are_replaced_and_restored(model: Any, tokens: torch.Tensor) -> None:
    before = logits(model, tokens)
    originals = dict(model.named_modules())

    def make(name: str, linear: torch.nn.Linear) -> ExactLinear | None:
        return None if name.endswith("k_proj") else BitmodLinear.from_linear(linear, group_size=16)

    with replaced_linears(model, make) as made:
        assert len(made) == 2 * 6
        assert model.model.layers[1].mlp.down_proj is made["1.down_proj"]
        assert (
            model.model.layers[1].self_attn.k_proj is originals["model.layers.1.self_attn.k_proj"]
        )
        found = logits(model, tokens)
    assert 1e-3 < (found - before).abs().max() < before.abs().max()
    assert dict(model.named_modules()) == originals
    assert torch.equal(logits(model, tokens), before)


def test_heads_of_a_text_are_those_of_each_layer(model: Any, tokens: torch.Tensor) -> None:
    found = heads_of(model, tokens)
    assert [tuple(part.shape) for part in found[1]] == [(2, 6, 40, 8), (2, 2, 40, 8), (2, 2, 40, 8)]
    # The same queries and keys reach a module.
    asked: list[torch.Tensor] = []

    class Watched(PolicyAttention):
        def forward(self, *heads: torch.Tensor, **options: Any) -> torch.Tensor:
            asked.append(heads[0])
            return super().forward(*heads, **options)

    with replaced_attention(model, [Watched("full_cache")] * 2):
        logits(model, tokens)
    for one, (query, _key, _value) in zip(asked, found, strict=True):
        assert torch.allclose(one, query, atol=1e-4)


def test_wrong_uses_are_refused(model: Any, tokens: torch.Tensor) -> None:
    with (
        pytest.raises(ValueError, match="modules must be one per layer, 2, not 1"),
        replaced_attention(model, [PolicyAttention("h2o")]),
    ):
        pass
    with replaced_attention(model, [PolicyAttention("h2o")] * 2):
        mask = torch.ones_like(tokens)
        assert logits(model, tokens, attention_mask=mask).isfinite().all()
        mask[0, 0] = 0
        with pytest.raises(ValueError, match="the sequences of a batch must have no padding"):
            logits(model, tokens, attention_mask=mask)
        with pytest.raises(ValueError, match=r"call it within torch.no_grad\(\)"):
            model(input_ids=tokens, use_cache=False)
        with torch.no_grad():
            first = model(input_ids=tokens[:, :8], use_cache=True)
            with pytest.raises(ValueError, match="no cache of an earlier call"):
                model(input_ids=tokens[:, 8:9], past_key_values=first.past_key_values)


def examples() -> list[tuple[str, str]]:
    """Return the page's examples, and what they print."""
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == PAGE.read_text().count("```python") == 3
    return blocks


def test_the_example_of_a_quantiser_runs_outside_the_checkout(tmp_path: Path) -> None:
    source, wanted = examples()[0]
    (tmp_path / "quantised.py").write_text(source)
    child = subprocess.run(
        [sys.executable, "quantised.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout == wanted


@pytest.mark.full
def test_all_examples_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Run them in one namespace."""
    names: dict[str, Any] = {}
    for source, wanted in examples():
        exec(compile(source, str(PAGE), "exec"), names)
        assert capsys.readouterr().out == wanted

"""A replayed pass gives what decoding token by token with a cache gives."""

from typing import Any

import numpy as np
import pytest
import torch

from golden.llm.perplexity import perplexity
from golden.policies.protocol import CachePolicy
from golden.policies.scores import H2O, Aerp, FullCache, Source, StreamingLLM
from golden.policies.voting import Voting
from golden.study.losses import measure_losses, ordering, perplexity_of
from golden.study.retention import FlipRates, WordFormat, uniform

BUDGET = 36


def decoded_losses(
    model: Any, tokens: np.ndarray, *, source: Source, sinks: int, window: int
) -> np.ndarray:
    """Decode with a cache of `transformers` from which rows are removed, head by head."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    layers, kv_heads = model.config.num_hidden_layers, model.config.num_key_value_heads
    group = model.config.num_attention_heads // kv_heads
    positions = [[[] for _ in range(kv_heads)] for _ in range(layers)]
    importance = [[[] for _ in range(kv_heads)] for _ in range(layers)]
    losses = []
    with torch.inference_mode():
        for now in range(len(tokens) - 1):
            output = model(
                input_ids=torch.tensor([[tokens[now]]]),
                position_ids=torch.tensor([[now]]),
                past_key_values=cache,
                output_attentions=True,
            )
            expected = torch.tensor([tokens[now + 1]])
            losses.append(torch.nn.functional.cross_entropy(output.logits[0], expected).item())
            for layer in range(layers):
                weights = output.attentions[layer][0, :, 0].view(kv_heads, group, -1).sum(1)
                stored: Any = cache.layers[layer]
                keys, values = [], []
                for head in range(kv_heads):
                    where, score = positions[layer][head], importance[layer][head]
                    where.append(now)
                    score.append(0.0)
                    for slot, weight in enumerate(weights[head].tolist()):
                        score[slot] += weight if source is Source.PROB else 0.0
                    kept = list(range(len(where)))
                    if len(where) > BUDGET:
                        free = [
                            slot
                            for slot in kept
                            if where[slot] >= sinks and where[slot] <= now - window
                        ]
                        victim = min(free, key=lambda slot: score[slot])
                        kept.remove(victim)
                        del where[victim], score[victim]
                    keys.append(stored.keys[:, head, kept])
                    values.append(stored.values[:, head, kept])
                stored.keys, stored.values = torch.stack(keys, 1), torch.stack(values, 1)
    return np.array(losses)


@pytest.mark.parametrize(
    ("policy", "source", "sinks", "window"),
    [
        (Aerp(budget=BUDGET), Source.PROB, 9, 18),
        (H2O(budget=BUDGET), Source.PROB, 0, 18),
        (StreamingLLM(budget=BUDGET), Source.NONE, 4, 1),
    ],
)
def test_a_pass_is_decoding_with_a_cache(
    model: Any, windows: np.ndarray, policy: CachePolicy, source: Source, sinks: int, window: int
) -> None:
    losses = measure_losses(model, windows, [FullCache(), policy])
    decoded = decoded_losses(model, windows[0], source=source, sinks=sinks, window=window)
    np.testing.assert_allclose(losses[1, 0], decoded, atol=2e-4)
    assert np.abs(losses[0, 0] - decoded)[BUDGET + 2 :].max() > 1e-2


def test_full_cache_is_the_model_itself(model: Any, windows: np.ndarray) -> None:
    losses = measure_losses(model, windows, [FullCache()])
    truth = perplexity(model, windows[0], context=windows.shape[1])
    assert perplexity_of(losses) == pytest.approx(truth, rel=1e-5)
    assert model.config._attn_implementation == "eager"


def test_lanes_do_not_disturb_each_other(model: Any, windows: np.ndarray) -> None:
    policies: list[CachePolicy] = [
        Aerp(budget=40, source=Source.RAW),
        H2O(budget=56),
        Voting(budget=40),
        Aerp(budget=40),
    ]
    together = measure_losses(model, windows, policies)
    for lane, policy in enumerate(policies):
        alone = measure_losses(model, windows, [policy])
        np.testing.assert_allclose(together[lane], alone[0], atol=2e-4)


def test_no_errors_cost_nothing_and_errors_cost_something(model: Any, windows: np.ndarray) -> None:
    policies = [FullCache(source=Source.PROB)] * 4
    rates = [
        uniform(0.0),
        uniform(0.0, WordFormat.FP16),
        FlipRates(hst_lsb=0.05, lst_lsb=0.05),
        FlipRates(hst_msb=0.05, lst_msb=0.05),
    ]
    losses = measure_losses(model, windows, policies, rates=rates)
    plain = measure_losses(model, windows, policies[:1])
    changes = np.abs(losses - plain).mean((1, 2))
    assert changes[0] < 1e-3 and changes[1] < 5e-3
    assert 2 * changes[0] < changes[2] < changes[3] / 5


def test_an_ordering_needs_evidence() -> None:
    noise = np.random.default_rng(1).normal(0, 1, 1000)
    assert ordering(noise, noise + 0.5 + 0.1 * noise[::-1]) == "yes"
    assert ordering(noise + 0.5 + 0.1 * noise[::-1], noise) == "no"
    assert ordering(noise, noise[::-1]) == "not measurable"
    assert ordering(noise, noise) == "not measurable"

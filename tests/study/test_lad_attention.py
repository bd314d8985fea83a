"""LAD's attention for whole models: against the step-by-step head, and against plain loops."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golden.lad.locality_aware_attention import LocalityAwareHead
from golden.study.lad_attention import STATISTICS, LadAttention, Scheme
from golden.study.lad_rivals import HeavyHitters, Kv4
from hdl.lad.exp_intervals import IntervalParameters

LANES, KV_HEADS, GROUP, TOKENS, SIZE = 2, 2, 3, 150, 8
EIGHT = IntervalParameters(intervals=8)


@pytest.fixture(scope="module")
def tensors() -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values; most keys are near to an earlier one."""
    random = torch.Generator().manual_seed(1)

    def normal(heads: int) -> Tensor:
        shape = (LANES, heads, TOKENS, SIZE)
        return torch.randn(shape, generator=random, dtype=torch.float64)

    query, key, value = 3 * normal(KV_HEADS * GROUP), normal(KV_HEADS), normal(KV_HEADS)
    key[:, :, 30:] = -1.3 * key[:, :, :120] + 0.04 * normal(KV_HEADS)[:, :, :120]
    return query, key, value


def attend(attention: Any, tensors: tuple[Tensor, ...], *, split: int = TOKENS) -> np.ndarray:
    """Attend to `split` tokens at once, to the others one after the other."""
    query, key, value = tensors
    pieces = [(0, split), *((now, now + 1) for now in range(split, TOKENS))]
    outputs = [
        attention(
            SimpleNamespace(layer_idx=0),
            query[:, :, first:last],
            key[:, :, :last],
            value[:, :, :last],
            None,
            scaling=SIZE**-0.5,
        )[0]
        for first, last in pieces
    ]
    return torch.cat(outputs, 1).numpy()


@pytest.mark.parametrize("threshold", [None, 0.98, 0.7])
def test_every_head_is_the_step_by_step_head(
    tensors: tuple[Tensor, ...], threshold: float | None
) -> None:
    """Outputs, J, U, M and centres, in each step of some heads."""
    found: list[Tensor] = []
    attention = LadAttention(
        Scheme(intervals=EIGHT, threshold=threshold),
        capacity=TOKENS,
        observe=lambda layer, n, counts: found.append(counts),
    )
    output = attend(attention, tensors)
    statistics = torch.stack(found).numpy()
    query, key, value = (part.numpy() for part in tensors)
    for lane, number in ((0, 0), (0, 4), (1, 5)):
        kv_head = number // GROUP
        head = LocalityAwareHead(
            intervals=EIGHT, size=SIZE, threshold=np.inf if threshold is None else threshold
        )
        for now in range(TOKENS):
            step = head.step(
                query[lane, number, now] * SIZE**-0.5,
                key[lane, kv_head, now],
                value[lane, kv_head, now],
            )
            assert np.allclose(output[lane, now, number], step.output, rtol=1e-8, atol=1e-10)
            counts = dict(
                zip(
                    STATISTICS,
                    statistics[now, lane, kv_head, number % GROUP].tolist(),
                    strict=True,
                )
            )
            assert counts["active"] == len(step.active)
            assert counts["changed"] == len(step.changed)
            assert counts["exact"] == len(step.precise)
            assert counts["centres"] == len(head.centres.members)
        if threshold:
            assert len(head.centres.members) < TOKENS


@pytest.mark.parametrize("threshold", [None, 0.9])
def test_generation_continues_a_prompt(
    tensors: tuple[Tensor, ...], threshold: float | None
) -> None:
    scheme = Scheme(intervals=EIGHT, threshold=threshold, caches=torch.float16)
    whole, part = (
        attend(LadAttention(scheme, capacity=TOKENS), tensors, split=split)
        for split in (TOKENS, 100)
    )
    # Matrix products of other shapes are added up in another order.
    assert np.allclose(whole, part, rtol=1e-9, atol=1e-11)


def test_exact_caches_change_nothing(tensors: tuple[Tensor, ...]) -> None:
    """Float64 caches equal the modes' coefficients; without an observer no mode is computed."""
    direct = attend(LadAttention(Scheme(intervals=EIGHT), capacity=TOKENS), tensors)
    cached = LadAttention(Scheme(intervals=EIGHT, caches=torch.float64), capacity=TOKENS)
    assert np.allclose(attend(cached, tensors), direct, rtol=1e-9, atol=1e-11)
    rough = LadAttention(Scheme(intervals=EIGHT, caches=torch.float16), capacity=TOKENS)
    errors = [np.abs(attend(rough, tensors) - direct).max()]
    rebuilt = Scheme(intervals=EIGHT, caches=torch.float16, period=4)
    errors.append(np.abs(attend(LadAttention(rebuilt, capacity=TOKENS), tensors) - direct).max())
    assert errors[0] > errors[1] > 1e-4


def test_caches_in_fp16_are_those_of_a_plain_loop(tensors: tuple[Tensor, ...]) -> None:
    """A and C of one head, rounded after each operation in the order of Algorithm 2."""
    scheme = Scheme(intervals=EIGHT, caches=torch.float16)
    attention = LadAttention(scheme, capacity=TOKENS)
    attend(attention, tensors)
    query, key, value = (part.numpy() for part in tensors)
    head = LocalityAwareHead(intervals=EIGHT, size=SIZE, threshold=np.inf)
    half = np.float16
    matrix, intercepts = np.zeros((SIZE, SIZE), half), np.zeros(SIZE, half)
    lines = head.lines
    for now in range(TOKENS):
        before = [*head.modes, 0]
        step = head.step(query[1, 2, now] * SIZE**-0.5, key[1, 0, now], value[1, 0, now])
        terms = []
        for place in step.changed:
            new, old = head.modes[place], before[place]
            slope = half(lines.slopes[new] - lines.slopes[old])
            intercept = half(lines.intercepts[new] - lines.intercepts[old])
            k, v = key[1, 0, place].astype(half), value[1, 0, place].astype(half)
            terms.append((np.outer(k, slope * v), intercept * v))
        for first in range(0, len(terms), 3):
            three = [*terms[first : first + 3], *[(half(0), half(0))] * 2][:3]
            matrix = matrix + ((three[0][0] + three[1][0]) + three[2][0])
            intercepts = intercepts + ((three[0][1] + three[1][1]) + three[2][1])
    caches = attention.layers[0].caches
    assert caches is not None
    assert np.array_equal(caches.matrix[1, 0, 2, :-1, :-1].numpy(), matrix)
    assert np.array_equal(caches.vector[1, 0, 2, :-1].numpy(), intercepts)
    assert np.abs(matrix).max() > 0.01


def test_heavy_hitters_by_a_plain_loop(tensors: tuple[Tensor, ...]) -> None:
    """One key/value head: who is kept, step by step."""
    prompt = 100
    output = attend(HeavyHitters(), tensors, split=prompt)
    query, key, value = (part.numpy() for part in tensors)
    queries, keys, values = query[0, :GROUP] * SIZE**-0.5, key[0, 0], value[0, 0]
    mass, kept = np.zeros(TOKENS), list(range(prompt))
    for now in range(TOKENS):
        seen = [*range(now + 1)] if now < prompt else [*kept, now]
        weights = np.exp(queries[:, now] @ keys[seen].T)
        weights /= weights.sum(1, keepdims=True)
        assert np.allclose(output[0, now, :GROUP], weights @ values[seen])
        mass[seen] += weights.sum(0)
        if now >= prompt - 1:
            recent = [place for place in range(now - 9, now + 1) if place in seen]
            older = [place for place in seen if place <= now - 10]
            older = sorted(older, key=lambda place: -mass[place])[:10]
            kept = sorted({*recent, *older})
    assert len(kept) == 20


def test_four_bits_are_nearly_exact_attention(tensors: tuple[Tensor, ...]) -> None:
    query, key, value = tensors
    output = attend(Kv4(), tensors)
    scores = (query[:, 0] * SIZE**-0.5) @ key[:, 0].mT
    later = torch.ones(TOKENS, TOKENS).triu(1).bool()
    exact = (scores.masked_fill(later, -torch.inf).softmax(-1) @ value[:, 0]).numpy()
    error = np.abs(output[:, :, 0] - exact)
    assert 1e-4 < error.mean() < 0.1

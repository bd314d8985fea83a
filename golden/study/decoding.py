"""Text generation by a `transformers` model in float32, whose caches evict by a policy."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from golden.policies.cache import Cache
from golden.policies.protocol import CachePolicy
from golden.study.attention import BLOCK, Observer, ReplayedAttention, attending


@dataclass
class _Layer:
    """The cache of a layer, and the keys and values of the text so far.

    Evicted keys and values remain in memory, since other caches of the layer may hold their tokens.
    """

    cache: Cache
    key: Tensor
    value: Tensor


class DecodedAttention(ReplayedAttention):
    """The attention of `ReplayedAttention` for one text that arrives in blocks of tokens.

    Parameters
    ----------
    policy : CachePolicy
        The policy of all layers.
    longest : int
        Maximum length of the text.
    observer : Observer, optional
        Receives scores and steps.

    Members
    -------
    evicted : int
        Evictions of all caches so far.
    """

    def __init__(
        self, policy: CachePolicy, longest: int, *, observer: Observer | None = None
    ) -> None:
        super().__init__([policy], observer=observer)
        self._longest = longest
        self._layers: dict[int, _Layer] = {}

    @property
    def evicted(self) -> int:
        """Number of evicted tokens, each counted once per cache."""
        found = 0
        for layer in self._layers.values():
            kept = layer.cache.kept()
            found += layer.key.shape[2] * kept.shape[1] - int(kept.sum())
        return found

    def __call__(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        scaling: float,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Attend: query [1, heads, tokens, size] of the block; key, value with fewer heads."""
        layer = self._arrived(module.layer_idx, query.shape[1], key, value)
        _lanes, kv_heads, count, size = key.shape
        first = layer.key.shape[2] - count
        queries = (query * scaling).view(1, kv_heads, -1, count, size)
        outputs = []
        for start in range(0, count, BLOCK):
            block = queries[..., start : start + BLOCK, :]
            rows = slice(first + start, first + start + block.shape[-2])
            seen = slice(0, rows.stop)
            scores = block @ layer.key[:, :, None, seen].mT
            (shares,) = self._rows(module.layer_idx, rows, [layer.cache], [scores.flatten(1, 2)])
            outputs.append(shares.unflatten(1, (kv_heads, -1)) @ layer.value[:, :, None, seen])
        output = torch.cat(outputs, dim=-2).view(1, -1, count, size)
        return output.transpose(1, 2), None

    def _arrived(self, number: int, heads: int, key: Tensor, value: Tensor) -> _Layer:
        """Return a layer after the keys and values of a block have been appended."""
        if number not in self._layers:
            (policy,) = self.policies
            cache = Cache(policy, 1, policy.unit.caches(heads, key.shape[1]), self._longest)
            self._layers[number] = _Layer(cache, key, value)
        else:
            layer = self._layers[number]
            layer.key = torch.cat([layer.key, key], dim=2)
            layer.value = torch.cat([layer.value, value], dim=2)
        return self._layers[number]


class Decoder:
    """A language model that processes one text, block by block.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    attention : DecodedAttention
        The attention of all layers, which has processed no token.
    """

    def __init__(self, model: Any, attention: DecodedAttention) -> None:
        self._model, self._attention = model, attention
        self._processed = 0

    def step(self, tokens: list[int]) -> int:
        """Process the next tokens of the text; return the most probable token after them."""
        positions = torch.arange(self._processed, self._processed + len(tokens))
        with torch.inference_mode(), attending(self._model, self._attention):
            states = self._model.model(
                input_ids=torch.tensor([tokens]), position_ids=positions[None], use_cache=False
            ).last_hidden_state
            logits = self._model.lm_head(states[0, -1])
        self._processed += len(tokens)
        return int(logits.argmax())

"""Typed views of the model's captured tensors."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from golden.llm.capture import LINEAR_INPUTS, NORM_WEIGHTS
from golden.llm.model import SMOLLM2
from golden.llm.store import TensorStore


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionTrace:
    """The tensors of one query head over a text of T tokens; head size 64, all float32.

    Members
    -------
    q, k, v : array [T, 64]
        Query, key and value; q and k after the rotary embedding; k and v of the KV head that the
        query head uses.
    q_before_rope, k_before_rope : array [T, 64]
        The outputs of the linear layers.
    output : array [T, 64]
        The head's output from the model: `probabilities` @ `v` within float32 error.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    q_before_rope: np.ndarray
    k_before_rope: np.ndarray
    output: np.ndarray

    @cached_property
    def scores(self) -> np.ndarray:
        """Raw scores q.k / sqrt(64) [T, T], -inf above the diagonal, each rounded once."""
        scores = self.q.astype(np.float64) @ self.k.T.astype(np.float64)
        scores /= np.sqrt(self.q.shape[1])
        scores[~np.tri(len(scores), dtype=bool)] = -np.inf
        return _frozen(scores.astype(np.float32))

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Softmax of each row of `scores` [T, T], computed in float64 and rounded once."""
        scores = self.scores.astype(np.float64)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        powers /= powers.sum(axis=1, keepdims=True)
        return _frozen(powers.astype(np.float32))


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """One linear layer without bias, float32: its output is `inputs` @ `weight`.T.

    Members
    -------
    weight : array [out, in]
        The weight, dequantised from the model file.
    inputs : array [T, in]
        The layer's inputs, one row per token.
    """

    weight: np.ndarray
    inputs: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """The tensors of selected layers of SmolLM2-135M over one text, read on first access.

    All arrays are read-only; ``torch.tensor(array)`` makes a tensor of one.

    Members
    -------
    tokens : int32 array [T]
        Token numbers of the text.
    layers : tuple of int
        The layers that this trace contains, in ascending order.
    """

    tokens: np.ndarray = field(repr=False)
    layers: tuple[int, ...]
    activations: TensorStore = field(repr=False)
    weights: TensorStore = field(repr=False)
    heads: int = SMOLLM2.heads
    kv_heads: int = SMOLLM2.kv_heads
    head_size: int = SMOLLM2.head_size
    hidden_size: int = SMOLLM2.hidden_size
    _read: dict[tuple[int, str], np.ndarray] = field(default_factory=dict, init=False, repr=False)

    def attention_trace(self, layer: int, head: int) -> AttentionTrace:
        """Return the tensors of query head `head` of `layer`.

        Raises
        ------
        ValueError
            The trace does not contain `layer`, or the model has no such head.
        """
        if not 0 <= head < self.heads:
            raise ValueError(f"head must be between 0 and {self.heads - 1}, not {head}")
        kv_head = head // (self.heads // self.kv_heads)
        outputs = self._activation(layer, "head_outputs").reshape(-1, self.heads, self.head_size)
        return AttentionTrace(
            q=_frozen(self._activation(layer, "q")[:, head]),
            k=_frozen(self._activation(layer, "k")[:, kv_head]),
            v=_frozen(self._activation(layer, "v")[:, kv_head]),
            q_before_rope=_frozen(self._activation(layer, "q_before_rope")[:, head]),
            k_before_rope=_frozen(self._activation(layer, "k_before_rope")[:, kv_head]),
            output=_frozen(outputs[:, head]),
        )

    def attention_output(self, layer: int) -> np.ndarray:
        """Return the output of the whole attention block [T, 576], after `o_proj`."""
        return self._activation(layer, "attention_output")

    def linear(self, layer: int, name: str) -> Linear:
        """Return a linear layer: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj or down_proj.

        Raises
        ------
        ValueError
            The trace does not contain `layer`, or there is no linear layer `name`.
        """
        _check_choice("linear layer", name, LINEAR_INPUTS)
        return Linear(
            weight=self._weight(layer, name),
            inputs=self._activation(layer, LINEAR_INPUTS[name]),
        )

    def hidden(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the hidden states into and out of `layer`, each [T, 576]."""
        return self._activation(layer, "states_in"), self._activation(layer, "states_out")

    def norm(self, layer: int, name: str) -> np.ndarray:
        """Return the weight [576] of an RMSNorm of `layer`: input or post_attention.

        Raises
        ------
        ValueError
            The trace does not contain `layer`, or there is no norm `name`.
        """
        _check_choice("norm", name, NORM_WEIGHTS)
        return self._weight(layer, name)

    def _activation(self, layer: int, name: str) -> np.ndarray:
        return self._tensor(self.activations, layer, name)

    def _weight(self, layer: int, name: str) -> np.ndarray:
        return self._tensor(self.weights, layer, name)

    def _tensor(self, store: TensorStore, layer: int, name: str) -> np.ndarray:
        """Return one array of `layer`, which the first access reads from the disk."""
        if layer not in self.layers:
            raise ValueError(f"layer must be one of the trace's layers {self.layers}, not {layer}")
        if (layer, name) not in self._read:
            self._read[layer, name] = store.read(group(layer), name)
        return self._read[layer, name]


def group(layer: int) -> str:
    """Return the name of the stored group that contains `layer`."""
    return f"layer_{layer:02}"


def _frozen(array: np.ndarray) -> np.ndarray:
    """Return a contiguous read-only array."""
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array


def _check_choice(what: str, name: str, choices: Iterable[str]) -> None:
    if name not in choices:
        raise ValueError(f"{what} must be one of {', '.join(choices)}, not {name}")

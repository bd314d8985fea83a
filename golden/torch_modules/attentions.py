"""Attention as modules: with eviction (VEDA, Kelle, any policy), LAD's, and P3-LLM's.

All modules have the same call. `query` is [batch, heads, tokens, head_size]; `key` and `value` are
[batch, kv_heads, tokens, head_size]. All are float16, or all float32. Adjacent query heads share a
key/value head. The output has shape and type of the query. Attention is causal; queries and keys
are those after the rotary embedding. Each call begins with an empty cache and processes each
sequence of the batch separately, token by token as in decoding.
"""

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden.arith.float_values import values
from golden.arith.requantiser import scale_and_shift
from golden.kelle.decoder_layer import LIMIT, PROBABILITY_FRACTION, SCORE_FRACTION, DecoderLayer
from golden.kelle.decoder_layer import integers as kelle_integers
from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import KelleModel
from golden.kelle.low_bits import lost, narrowed
from golden.lad.lad_tile import LadTile
from golden.lad.lad_tile import Step as LadStep
from golden.p3llm.p3llm import Cache
from golden.p3llm.quantisers.key_smoothing import smoothing_factors
from golden.p3llm.whole_model import MATRICES, FastLayer
from golden.policies.agreement import attended
from golden.policies.protocol import Attended, Policy
from golden.policies.registry import policy_named
from golden.torch_modules.exact_module import ExactModule
from golden.veda.functions.element_serial_softmax import LOG2_E
from golden.veda.veda import LayerModel
from golden.veda.veda import Step as VedaStep
from golden.veda.voting.vote_threshold import PAPER, ThresholdCoefficients
from golden.veda.whole_model import next_block
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.lad.parameters import LadTileParameters
from hdl.p3llm.parameters import P3llmParameters
from hdl.parameters import require, require_choice, require_range
from hdl.veda.parameters import VedaParameters

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]


class ExactAttention(ExactModule):
    """Base class of the modules: checks a batch, and attends in each sequence.

    Parameters
    ----------
    heads, kv_heads, head_size : int
        Query heads, key/value heads and elements of a head; 0 if the tensors decide.
    longest : int
        The longest sequence, in tokens; 0 for no limit.
    """

    def __init__(self, heads: int, kv_heads: int, head_size: int, longest: int = 0) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_size = heads, kv_heads, head_size
        self.longest = longest

    def attend(self, query: Reals, key: Reals, value: Reals, scaling: float) -> Reals:
        """Return the outputs [heads, tokens, head_size] of one sequence, float64."""
        raise NotImplementedError(f"{type(self).__name__} must define attend")

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, scaling: float | None = None
    ) -> Tensor:
        """Return the outputs; `scaling` is the factor of the scores, 1 / sqrt(head_size) if absent.

        Raises
        ------
        ValueError
            If a tensor has another device, type or shape, needs a gradient, or is not finite.
        """
        arrays = self._checked(query, key, value)
        factor = query.shape[-1] ** -0.5 if scaling is None else scaling
        outputs = [
            self.attend(queries, keys, vectors, factor)
            for queries, keys, vectors in zip(*arrays, strict=True)
        ]
        return torch.from_numpy(np.stack(outputs)).to(query.dtype)

    def _checked(self, query: Tensor, key: Tensor, value: Tensor) -> list[Reals]:
        """Return the tensors as arrays of finite numbers."""
        what = type(self).__name__
        named = {"query": query, "key": key, "value": value}
        arrays = [self._finite(name, tensor, 4) for name, tensor in named.items()]
        for name, tensor in named.items():
            rule = f"{name} of {what} must have the type of query, {query.dtype}"
            require(tensor.dtype == query.dtype, rule, tensor.dtype)
        batch, heads, tokens, size = query.shape
        kv_heads = key.shape[1]
        require(min(query.shape) > 0, f"query of {what} must not be empty", tuple(query.shape))
        for name, own, wanted in (
            ("query heads", heads, self.heads),
            ("key/value heads", kv_heads, self.kv_heads),
            ("head_size", size, self.head_size),
        ):
            require(wanted in (0, own), f"{name} of {what} must be {wanted}", own)
        for name in ("key", "value"):
            shape = (batch, kv_heads, tokens, size)
            rule = (
                f"{name} of {what} must have the shape {shape}, as a module has no cache of an "
                "earlier call"
            )
            require(tuple(named[name].shape) == shape, rule, tuple(named[name].shape))
        divides = kv_heads > 0 and heads % kv_heads == 0
        require(divides, f"key/value heads of {what} must divide the {heads} heads", kv_heads)
        if self.longest:
            rule = f"tokens of {what} must be at most {self.longest}"
            require(tokens <= self.longest, rule, tokens)
        return arrays


class VedaAttention(ExactAttention):
    """VEDA's attention in FP16, with eviction by votes; model: `golden.veda.veda.LayerModel`.

    Keys, values, and queries times ``scaling * log2(e)`` are rounded to FP16. Outputs are FP16. The
    schedule is that of generated tokens: a token that is not reserved votes, and the layer evicts a
    token when the next one would exceed the budget.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.
    budget : int
        Tokens that the layer caches, 2 to `slots`.
    reserved : int
        First tokens of a sequence that cast no votes.
    coefficients : ThresholdCoefficients
        Coefficients a and b of the voting threshold.
    """

    def __init__(
        self,
        parameters: VedaParameters,
        *,
        budget: int = 128,
        reserved: int = 32,
        coefficients: ThresholdCoefficients = PAPER,
    ) -> None:
        p = parameters
        super().__init__(p.heads, p.kv_heads, p.head_size, p.context_length)
        require_range("budget", budget, 2, p.slots)
        require_range("reserved", reserved, 0, p.context_length)
        self.p, self.budget, self.reserved = p, budget, reserved
        self.coefficients = coefficients

    def steps(self, query: Reals, key: Reals, value: Reals, scaling: float) -> Iterator[VedaStep]:
        """Yield the model's steps for one sequence: outputs, probabilities, victims, votes."""
        layer = LayerModel(self.p, coefficients=self.coefficients)
        queries = self._halves("query", query * (scaling * LOG2_E))
        keys, vectors = self._halves("key", key), self._halves("value", value)
        for position in range(query.shape[1]):
            block = next_block(
                position,
                cached=min(position, self.budget - 1),
                budget=self.budget,
                reserved=self.reserved,
            )
            yield layer.attend(
                queries[:, position],
                keys[:, position],
                vectors[:, position],
                vote=block.vote,
                evictions=block.evictions,
            )

    def attend(self, query: Reals, key: Reals, value: Reals, scaling: float) -> Reals:
        """Return the outputs of one sequence."""
        # Lanes after the last head compute queries of zero.
        rows = [
            step.outputs.reshape(-1, self.head_size)[: self.heads]
            for step in self.steps(query, key, value, scaling)
        ]
        return values(np.stack(rows, axis=1))


class LadAttention(ExactAttention):
    """LAD's attention in FP16, by intermediate caches; model: `golden.lad.lad_tile.LadTile`.

    Queries times `scaling`, keys and values are rounded to FP16. Outputs are FP16.

    Parameters
    ----------
    parameters : LadTileParameters
        Dimensions of a tile; its `slots` limit the tokens.
    heads, kv_heads : int
        Query and key/value heads.
    """

    def __init__(self, parameters: LadTileParameters, *, heads: int, kv_heads: int) -> None:
        super().__init__(heads, kv_heads, parameters.vector.head_size, parameters.slots)
        # The memory holds the heads of one sequence; sharing rows affects traffic only.
        self.p = replace(parameters, stored_heads=heads, shared=1, kept=0, prefetched=0)

    def steps(self, query: Reals, key: Reals, value: Reals, scaling: float) -> Iterator[LadStep]:
        """Yield the model's steps for one sequence, token by token and head by head."""
        tile = LadTile(parameters=self.p)
        queries = self._halves("query", query * scaling)
        keys, vectors = self._halves("key", key), self._halves("value", value)
        group = self.heads // self.kv_heads
        for position in range(query.shape[1]):
            for head in range(self.heads):
                own = head // group
                yield tile.step(
                    head, queries[head, position], keys[own, position], vectors[own, position]
                )

    def attend(self, query: Reals, key: Reals, value: Reals, scaling: float) -> Reals:
        """Return the outputs of one sequence."""
        rows = np.stack([step.output for step in self.steps(query, key, value, scaling)])
        return values(rows.reshape(-1, self.heads, self.head_size).swapaxes(0, 1))


class GivenHeads(KelleModel):
    """Kelle's model of a layer whose input vectors are the heads, which nothing projects.

    A vector is queries, keys and values of a token, one after the other. A recomputed token thus
    has the heads that it had when it arrived, as in the accelerator.

    Members
    -------
    context : numpy.ndarray
        int64 [heads * head_size], the attention of the last step.
    """

    context: Integers

    def _heads(self, vectors: Integers) -> list[Integers]:
        p = self.parameters
        heads = vectors.reshape(len(vectors), -1, p.head_size)
        return np.split(heads, [p.heads, p.heads + p.kv_heads], axis=1)

    def normalise(self, state: Integers) -> Integers:
        """Return the token's heads, which are the state."""
        return state

    def queries(self, vectors: Integers, positions: Integers) -> Integers:
        """Return the queries as operands."""
        return narrowed(self._heads(vectors)[0], Operation.SCORE, self.parameters)

    def keys_values(self, vectors: Integers, positions: Integers) -> tuple[Integers, Integers]:
        """Return the keys and values."""
        _queries, keys, vectors = self._heads(vectors)
        return keys, vectors

    def project(self, operation: Operation, vectors: Integers) -> Integers:
        """Keep the attention, the only vectors that the layer projects."""
        self.context = vectors[0]
        return np.zeros(1, np.int64)

    def feed_forward(self, x: Integers) -> Integers:
        """Return no change of the state."""
        return np.zeros(1, np.int64)


class KelleAttention(ExactAttention):
    """Kelle's attention in 16-bit integers, with AERP; model: `golden.kelle.kelle.KelleModel`.

    Queries times `scaling`, keys and values are rounded to integers of fixed steps, saturated at 16
    bits, and outputs are integers times the values' step. Eviction, recomputation of popular tokens
    and the integer softmax are the accelerator's. The first token is a prefill, which software
    computes: its output is its value.

    `calibrate` sets the steps; `state_dict` has them as `query_step`, `key_step` and `value_step`,
    float64.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator; `slots`, `window` and `sinks` define the cache.
    """

    STEPS: ClassVar = ("query_step", "key_step", "value_step")
    ROOM: ClassVar = (1.5, 1.5, 1.0)
    """Headroom of each step, as in `golden.kelle.decoder_layer`."""

    query_step: Tensor
    key_step: Tensor
    value_step: Tensor

    def __init__(self, parameters: KelleParameters) -> None:
        p = parameters
        super().__init__(p.heads, p.kv_heads, p.head_size, p.context_length)
        self.p = p
        for name in self.STEPS:
            self.register_buffer(name, torch.tensor(0.0, dtype=torch.float64))

    def calibrate(
        self, query: Tensor, key: Tensor, value: Tensor, *, scaling: float | None = None
    ) -> None:
        """Set the steps so that the largest magnitudes of these tensors fit, with headroom."""
        arrays = self._checked(query, key, value)
        arrays[0] *= query.shape[-1] ** -0.5 if scaling is None else scaling
        for name, room, array in zip(self.STEPS, self.ROOM, arrays, strict=True):
            step = room * float(np.abs(array).max()) / LIMIT
            require(step > 0, f"{name[:-5]} to calibrate KelleAttention must not be all zero", 0)
            setattr(self, name, torch.tensor(step, dtype=torch.float64))

    def model(self, first: Integers) -> GivenHeads:
        """Return the model of the layer after the prefill of a first vector."""
        p, none = self.p, np.zeros((0, 0))
        product = float(self.query_step) * float(self.key_step) * (1 << lost(Operation.SCORE, p))
        layer = DecoderLayer(
            states=none,
            quantised_states=none.astype(np.int64),
            inputs=none,
            quantised=first[np.newaxis],
            projections={},
            score=scale_and_shift(product * LOG2_E * (1 << SCORE_FRACTION)),
            attend=scale_and_shift(2.0 ** (lost(Operation.ATTEND, p) - PROBABILITY_FRACTION)),
            steps={},
            epsilon=0,
        )
        model = GivenHeads(p, layer)
        prefill(model, 1)
        return model

    def vectors(self, query: Reals, key: Reals, value: Reals, scaling: float) -> Integers:
        """Return each token's heads in integers, [tokens, (heads + 2 kv_heads) * head_size]."""
        steps = [float(getattr(self, name)) for name in self.STEPS]
        rule = "KelleAttention must be calibrated before it is called: its steps must be above 0"
        require(min(steps) > 0, rule, min(steps))
        parts = zip((query * scaling, key, value), steps, strict=True)
        heads = [kelle_integers(part, step) for part, step in parts]
        return np.concatenate(heads).swapaxes(0, 1).reshape(query.shape[1], -1)

    def attend(self, query: Reals, key: Reals, value: Reals, scaling: float) -> Reals:
        """Return the outputs of one sequence."""
        vectors = self.vectors(query, key, value, scaling)
        model = self.model(vectors[0])
        rows: list[Reals] = [np.repeat(value[:, 0], self.heads // self.kv_heads, axis=0)]
        for now, vector in enumerate(vectors[1:], start=1):
            step = model.step(now, vector)
            if step.store:
                position, stored = step.store
                model.inputs[stored] = vectors[position]
            context = model.context.reshape(self.heads, self.head_size).astype(np.float64)
            rows.append(context * float(self.value_step))
        return np.stack(rows, axis=1)


class P3llmAttention(ExactAttention):
    """P3-LLM's attention: INT4 keys and values (KV4), E4M3 queries, S0E4M4 probabilities.

    Models: `golden.p3llm.p3llm.attention`, and `golden.p3llm.whole_model.FastLayer`, which has the
    same results for all tokens at once. Nothing is evicted. Queries, keys and values are rounded to
    FP16; outputs are FP16. The scores are scaled by ``1 / sqrt(head_size)`` only.

    `calibrate` sets the smoothing factors of the keys; `state_dict` has them as `factors`, float16
    [kv_heads, 1, head_size].

    Parameters
    ----------
    parameters : P3llmParameters
        Dimensions of the system, whose `pre_rope` must be off.
    """

    factors: Tensor

    def __init__(self, parameters: P3llmParameters) -> None:
        p = parameters
        super().__init__(p.heads, p.kv_heads, p.head_size, p.context_length)
        require(not p.pre_rope, "pre_rope of P3llmAttention must be false", p.pre_rope)
        self.p = p
        ones = torch.ones(p.kv_heads, 1, p.head_size, dtype=torch.float16)
        self.register_buffer("factors", ones)

    def calibrate(self, key: Tensor) -> None:
        """Set the smoothing factors from the keys of a text (Equation 2).

        Parameters
        ----------
        key : Tensor
            [batch, kv_heads, tokens, head_size]
        """
        keys = self._finite("key", key, 4)
        shape = (self.kv_heads, keys.shape[2], self.head_size)
        rule = f"key to calibrate P3llmAttention must have the shape (batch, *{shape})"
        require(keys.shape[1:] == shape and keys.size > 0, rule, keys.shape)
        rows = self._halves("key", np.concatenate(list(keys), axis=1))
        self.factors = torch.from_numpy(smoothing_factors(rows).view(np.float16).copy())

    def cache(self, key: Reals, value: Reals) -> Cache:
        """Return the quantised keys and values of one sequence."""
        empty = Cache.empty(self.factors.numpy().view(np.uint16))
        return empty.extended(self._halves("key", key), self._halves("value", value))

    def attend(self, query: Reals, key: Reals, value: Reals, scaling: float) -> Reals:
        """Return the outputs of one sequence."""
        p = self.p
        usual = p.head_size**-0.5
        rule = f"scaling of P3llmAttention must be 1 / sqrt(head_size) = {usual}"
        require(bool(np.isclose(scaling, usual, rtol=1e-6)), rule, scaling)
        # Attention multiplies by no matrix.
        layer = FastLayer(cast(Any, dict.fromkeys(MATRICES)), cast(Any, ()), p)
        positions = np.arange(query.shape[1])
        rows = layer.attended(self._halves("query", query), self.cache(key, value), positions)
        return values(rows).reshape(len(rows), self.heads, self.head_size).swapaxes(0, 1)


class Form(Enum):
    """The form of a policy that decides; see `docs/policies.md`.

    Members
    -------
    EXACT : str
        The bit-exact model that the policy names.
    DOUBLE : str
        The policy's second source, in numpy and float64.
    FAST : str
        The policy's own members in torch and float32.
    """

    EXACT = "exact"
    DOUBLE = "double"
    FAST = "fast"


class PolicyAttention(ExactAttention):
    """Attention over a cache with any policy of `golden.policies`.

    Scores are computed in float64 and rounded to float32, as in the captured tensors. On these
    scores the policy decides which tokens each query attends to. Probabilities and outputs are
    float64, and rounded once to the type of the query.

    Parameters
    ----------
    policy : Policy or str
        The policy; or its name, or a file that ends in ``.py``, as the variable ``POLICY``.
    form : Form
        The form of the policy that decides; by default the bit-exact one if there is one, and
        otherwise the second source.
    """

    def __init__(self, policy: Policy | str, form: Form | None = None) -> None:
        super().__init__(0, 0, 0)
        own: Policy = policy_named(policy).policy if isinstance(policy, str) else policy
        self.policy = own
        self.form = (Form.EXACT if own.exact else Form.DOUBLE) if form is None else form
        require_choice("form", self.form, list(Form))
        has_form = self.form is not Form.EXACT or own.exact is not None
        require(has_form, "form of a policy without a bit-exact model must be another", form)

    def positions(self, scores: NDArray[np.float32]) -> Attended:
        """Yield the positions that each query of a cache attends to, ascending.

        Parameters
        ----------
        scores : numpy.ndarray
            [query heads of the cache, tokens, tokens]; minus infinity above the diagonal.
        """
        match self.form:
            case Form.EXACT:
                exact = self.policy.exact_form(scores)
                assert exact is not None
                yield from exact
            case Form.DOUBLE:
                yield from self.policy.second_source(scores)
            case Form.FAST:
                for positions in attended(self.policy, scores, torch.float32):
                    yield positions.copy()

    def scores(self, query: Reals, key: Reals, scaling: float) -> NDArray[np.float32]:
        """Return the scores of one sequence, [heads, tokens, tokens]."""
        keys = np.repeat(key, len(query) // len(key), axis=0)
        found = query @ keys.swapaxes(1, 2) * scaling
        found[:, ~np.tri(found.shape[1], dtype=bool)] = -np.inf
        return found.astype(np.float32)

    def attend(self, query: Reals, key: Reals, value: Reals, scaling: float) -> Reals:
        """Return the outputs of one sequence."""
        scores = self.scores(query, key, scaling)
        caches = self.policy.unit.caches(len(query), len(key))
        masked = np.full(scores.shape, -np.inf)
        for heads in np.split(np.arange(len(query)), caches):
            for now, positions in enumerate(self.positions(scores[heads])):
                places = np.ix_(heads, np.array([now]), positions)
                masked[places] = scores[places]
        powers = np.exp(masked - masked.max(axis=-1, keepdims=True))
        shares = powers / powers.sum(axis=-1, keepdims=True)
        return shares @ np.repeat(value, len(query) // len(value), axis=0)

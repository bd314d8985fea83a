"""Bit-exact model of the Kelle accelerator: decode steps of a layer, head by head.

The model is composed of the units' models. Tiles, byte passes and the order of the program do not
affect the results and are not modelled.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import requantised
from golden.kelle.decoder_layer import DecoderLayer
from golden.kelle.eviction.eviction_controller import EvictionModel, Placement, ScoreUpdate
from golden.kelle.low_bits import narrowed
from golden.nonlinear.activation_functions import activation
from golden.nonlinear.layer_norm import layer_norm
from golden.nonlinear.rms_norm import rms_norm
from golden.nonlinear.rotary_embedding import rotate
from golden.nonlinear.softmax import softmax
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.nonlinear.activation_functions import VALUE, Activation
from hdl.nonlinear.layer_norm import LayerNormParameters

Integers = NDArray[np.int64]


@dataclass
class Step:
    """Results of a decode step.

    Parameters
    ----------
    output : numpy.ndarray
        int64 [width], the output hidden state of the layer.
    normalised : numpy.ndarray
        int64 [width], the attention block's input.
    placements : list[Placement]
        Placement of the arriving token, by head.
    store : tuple[int, int] | None
        Position and vector of a token that became popular.
    score_updates : list[ScoreUpdate]
        Score updates for the refresh controllers.
    attended : list[numpy.ndarray]
        By head, the positions that took part in the token's attention.
    members : int
        Rows of the combined matrix: the token's own, and with the first token of a block those of
        the recomputed tokens.
    fetched : list[tuple[numpy.ndarray, numpy.ndarray]]
        By head, the slots whose keys, and those whose values, are read rather than computed.
    """

    output: Integers
    normalised: Integers
    placements: list[Placement]
    store: tuple[int, int] | None
    score_updates: list[ScoreUpdate] = field(default_factory=list)
    attended: list[Integers] = field(default_factory=list)
    members: int = 1
    fetched: list[tuple[Integers, Integers]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Computed:
    """Results of the projections of a block.

    Parameters
    ----------
    queries : numpy.ndarray
        int64 [tokens, query heads, head_size].
    keys, values : numpy.ndarray
        int64 [members, heads, head_size], of the arriving tokens, then of the recomputed ones.
    member : dict[int, int]
        Member of each vector whose token is recomputed.
    """

    queries: Integers
    keys: Integers
    values: Integers
    member: dict[int, int]


class KelleModel:
    """State of the accelerator between steps, for one layer.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.
    layer : DecoderLayer
        Weights and scales.
    number : int
        Index of the layer among the cached layers.

    Members
    -------
    eviction : EvictionModel
        Slots and stored vectors.
    keys, values : numpy.ndarray
        int64 [heads, slots, head_size], contents of the KV eDRAM.
    inputs : dict[int, numpy.ndarray]
        The stored input vectors.
    """

    def __init__(self, parameters: KelleParameters, layer: DecoderLayer, number: int = 0) -> None:
        self.parameters = p = parameters
        self.layer = layer
        self.eviction = EvictionModel(p.eviction, number)
        shape = (p.kv_heads, p.slots, p.head_size)
        self.keys, self.values = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.inputs: dict[int, Integers] = {}

    def clear(self) -> list[ScoreUpdate]:
        """End the text: all slots and stored vectors become free."""
        self.inputs = {}
        return self.eviction.clear()

    def project(self, operation: Operation, vectors: Integers) -> Integers:
        """Return x W of vectors, requantised, [vectors, heads, head_size]."""
        projection = self.layer.projections[operation]
        vectors = narrowed(vectors, operation, self.parameters)
        sums = vectors @ projection.weights + projection.bias
        results = requantised(sums, projection.scale, projection.shift)
        return results.reshape(len(vectors), -1, self.parameters.head_size)

    def rotate(self, heads: Integers, positions: Integers) -> Integers:
        """Return heads [vectors, heads, head_size], rotated with `rotary`."""
        p = self.parameters
        if not p.rotary:
            return heads
        rotated = [rotate(heads[:, h], positions, p.embedding) for h in range(heads.shape[1])]
        return np.stack(rotated, axis=1)

    def queries(self, vectors: Integers, positions: Integers) -> Integers:
        """Return the queries of tokens as operands, [vectors, query heads, head_size]."""
        heads = self.rotate(self.project(Operation.QUERY, vectors), positions)
        return narrowed(heads, Operation.SCORE, self.parameters)

    def keys_values(self, vectors: Integers, positions: Integers) -> tuple[Integers, Integers]:
        """Return the keys and values of tokens, each [vectors, heads, head_size]."""
        keys = self.rotate(self.project(Operation.KEY, vectors), positions)
        return keys, self.project(Operation.VALUE, vectors)

    def normalise(self, state: Integers) -> Integers:
        """Return a hidden state normalised, [width]; the norm's weights are in the matrices."""
        return normalised(state, self.layer.epsilon, self.parameters)

    def feed_forward(self, x: Integers) -> Integers:
        """Return the feed-forward block's output, [width]."""
        p = self.parameters
        up = self.project(Operation.UP, x[np.newaxis]).reshape(1, -1)
        if p.gated:
            gates = activated(self.project(Operation.GATE, x[np.newaxis]).reshape(1, -1), p)
            products = requantised(gates * up, 1, VALUE.fraction_bits)
        else:
            products = activated(up, p)
        return self.project(Operation.DOWN, products).reshape(-1)

    def step(self, now: int, state: Integers) -> Step:
        """Decode the token at position `now` with the layer's input hidden state."""
        return self.block(now, state[np.newaxis])[0]

    def block(self, first: int, states: Integers) -> list[Step]:
        """Decode consecutive tokens from position `first` on, with their states [tokens, width].

        One combined matrix has the inputs of all of them, and of the tokens that are recomputed
        before the first one. A token that becomes popular in the block keeps its stored key and
        value until the block ends.
        """
        listed = [(v, owner[0]) for v, owner in enumerate(self.eviction.vectors) if owner]
        inputs = [self.normalise(state) for state in states]
        tokens = [*range(first, first + len(states))]
        vectors = np.stack([*inputs, *(self.inputs[v] for v, _position in listed)])
        positions = np.array([*tokens, *(position for _v, position in listed)])
        computed = Computed(
            self.queries(vectors[: len(states)], positions[: len(states)]),
            *self.keys_values(vectors, positions),
            {v: number for number, (v, _position) in enumerate(listed, start=len(states))},
        )
        steps = []
        for number, (now, state, x) in enumerate(zip(tokens, states, inputs, strict=True)):
            step = Step(np.empty(0, np.int64), x, [], None)
            step.members += len(listed) if number == 0 else 0
            context = self._attend(step, number, now, computed)
            between = added(state, self.project(Operation.OUTPUT, context).reshape(-1))
            step.output = added(between, self.feed_forward(self.normalise(between)))
            steps.append(step)
        return steps

    def _attend(self, step: Step, number: int, now: int, computed: Computed) -> Integers:
        """Compute the attention of a block's token, and place the token; return its context."""
        p, eviction, member = self.parameters, self.eviction, computed.member
        keys, values = computed.keys, computed.values
        contexts = []
        for head in range(p.kv_heads):
            slots = eviction.heads[head]
            used = slots.positions >= 0
            step.attended.append(np.append(slots.positions[used], now))
            group = computed.queries[number, head * p.group_size : (head + 1) * p.group_size]

            read = np.flatnonzero(used & ~np.isin(slots.recomputed, [*member]))
            cached = self._cached(self.keys[head], slots.recomputed, keys[:, head], member)
            scores = np.where(used, requantised(group @ cached.T, *self.layer.score), 0)
            own = requantised(group @ keys[number, head], *self.layer.score)
            step.score_updates += eviction.search(head, scores, now)
            formats = slots.recomputed.copy()
            step.fetched.append((read, np.flatnonzero(used & ~np.isin(formats, [*member]))))
            placement, score_updates = eviction.place(now, head)
            step.placements.append(placement)
            step.score_updates += score_updates + eviction.own(head, placement.slot, own)

            weights, own_weight = self._probabilities(scores, own, used)
            cached = self._cached(self.values[head], formats, values[:, head], member)
            sums = weights @ np.where(used[:, np.newaxis], cached, 0)
            sums += own_weight[:, np.newaxis] * values[number, head]
            contexts.append(requantised(sums, *self.layer.attend))
            self.keys[head, placement.slot] = keys[number, head]
            self.values[head, placement.slot] = values[number, head]
        decision = eviction.decide(now, step.placements)
        step.store, step.score_updates = decision.store, step.score_updates + decision.score_updates
        if step.store:
            # The vector may have been that of another token, which no head has any more.
            member.pop(step.store[1], None)
        return np.concatenate(contexts).reshape(1, -1)

    def _cached(
        self, stored: Integers, formats: Integers, computed: Integers, member: dict[int, int]
    ) -> Integers:
        """Return a head's cached keys or values, [slots, head_size]: stored, or just computed."""
        cached = stored.copy()
        for slot in np.flatnonzero(np.isin(formats, [*member])):
            cached[slot] = computed[member[int(formats[slot])]]
        return cached

    def _probabilities(
        self, scores: Integers, own: Integers, used: NDArray[np.bool_]
    ) -> tuple[Integers, Integers]:
        """Return the weights of the cached tokens [queries, slots] and of the arriving one."""
        p = self.parameters
        last = np.zeros((p.group_size, p.rows), np.int64)
        last[:, 0] = own
        keep = np.zeros(p.slots + p.rows, bool)
        keep[: p.slots], keep[p.slots] = used, True
        rows = np.concatenate([scores, last], axis=1)
        probabilities = softmax(rows, np.broadcast_to(keep, rows.shape), p.softmax)
        halved = narrowed((probabilities + 1) >> 1, Operation.ATTEND, p)
        return halved[:, : p.slots], halved[:, p.slots]


def activated(values: Integers, p: KelleParameters) -> Integers:
    """Return the activation of values, in Q6.10 unless it is ReLU."""
    if p.activation is Activation.RELU:
        return np.maximum(values, 0)
    return activation(values, p.activation.value, p.functions)


def normalised(state: Integers, epsilon: int, p: KelleParameters) -> Integers:
    """Return a hidden state normalised by RMSNorm or layer norm, as the parameters select."""
    norm = p.norm
    weights = np.full(norm.width, 1 << norm.weight_fraction)
    rows, epsilons = state[np.newaxis], np.array([epsilon])
    if isinstance(norm, LayerNormParameters):
        return layer_norm(rows, epsilons, weights, np.zeros_like(weights), norm)[0]
    return rms_norm(rows, epsilons, weights, norm)[0]


def added(state: Integers, block: Integers) -> Integers:
    """Return a hidden state with a block's output, clamped."""
    return np.clip(state + block, -(1 << 15), (1 << 15) - 1)

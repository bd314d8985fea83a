"""VEDA's attention: the truth in float64, and the bit-exact model composed of the units' models."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_convert import float_convert
from golden.veda.array.flexible_pe_array import inner_products, outer_product
from golden.veda.functions.element_serial_softmax import softmax
from golden.veda.voting.vote_threshold import PAPER, ThresholdCoefficients
from golden.veda.voting.voting_engine import LayerStep, process_step
from hdl.arith.float_format import BINARY16
from hdl.veda.parameters import VedaParameters

Codes = NDArray[np.uint16]


def exact_attention(
    queries: NDArray[np.float64], keys: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return softmax(q.K^T).V of each head in float64, and the hardware's error bound.

    The softmax is to the base 2. The error of a score has two parts, its rounding to FP16 and that
    of its sum in FP29; it scales every probability. The error of a probability also includes that
    of `ElementSerialSoftmax`. The error of an output includes its probabilities' errors and its own
    rounding.

    Parameters
    ----------
    queries : numpy.ndarray
        Shape (heads, head_size), scaled, log2(e) included.
    keys, values : numpy.ndarray
        Shape (kv_heads, tokens, head_size); ``heads / kv_heads`` adjacent query heads share one.
    """
    members = len(queries) // len(keys)
    keys, values = np.repeat(keys, members, axis=0), np.repeat(values, members, axis=0)
    scores = np.einsum("hd,hld->hl", queries, keys)
    distance = scores.max(axis=1, keepdims=True) - scores
    powers = np.exp2(-distance)
    powers /= powers.sum(axis=1, keepdims=True)
    outputs = np.einsum("hl,hld->hd", powers, values)

    products = np.einsum("hd,hld->hl", abs(queries), abs(keys))
    off = abs(scores) * 2.0**-11 + products * 2.0**-18 + 2.0**-25
    factor = np.exp2(2 * off.max(axis=1, keepdims=True)) - 1
    away = powers * 2.0**-8 + 2.0**-24
    off = powers * factor + away * (1 + factor)
    lengths = keys.shape[1]
    bound = np.einsum("hl,hld->hd", off + (powers + off) * lengths * 2.0**-22, abs(values))
    return outputs, bound + (abs(outputs) + bound) * 2.0**-11 + 2.0**-25


@dataclass(frozen=True, eq=False)
class Step:
    """Results of one token's attention in one layer.

    Members
    -------
    slot : int
        Slot of the token's keys and values.
    length : int
        Number of cached tokens, this one included.
    outputs : numpy.ndarray
        FP16 codes, shape (rounds, lanes, head_size); a lane without a head contains the output for
        queries of zero.
    probabilities : numpy.ndarray
        FP16 codes, shape (heads, length).
    victims : list[int]
        Slots that are evicted, in the order in which they are found.
    counts : numpy.ndarray
        Vote counts that are stored: of each slot, or the remaining ones if there are several
        victims.
    """

    slot: int
    length: int
    outputs: Codes
    probabilities: Codes
    victims: list[int]
    counts: NDArray[np.int64]


@dataclass(eq=False)
class LayerModel:
    """A layer's cache, its slots, and its attention.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    coefficients : ThresholdCoefficients
        Coefficients a and b of the voting threshold.

    Members
    -------
    keys, values : numpy.ndarray
        FP16 codes, shape (kv_heads, slots, head_size).
    counts : numpy.ndarray
        Vote count of each slot, shape (slots,).
    length : int
        Number of cached tokens.
    victim : int | None
        The victim's slot, which the next token takes, if there is one.
    stepped : bool
        Whether a token has been processed since the layer was filled.
    """

    parameters: VedaParameters
    length: int = 0
    victim: int | None = None
    stepped: bool = False
    coefficients: ThresholdCoefficients = PAPER
    counts: NDArray[np.int64] = field(init=False)
    keys: Codes = field(init=False)
    values: Codes = field(init=False)

    def __post_init__(self) -> None:
        """Start with an empty cache."""
        p = self.parameters
        shape = (p.kv_heads, p.slots, p.head_size)
        self.counts = np.zeros(p.slots, np.int64)
        self.keys, self.values = np.zeros(shape, np.uint16), np.zeros(shape, np.uint16)

    def fill(self, keys: Codes, values: Codes, counts: NDArray[np.int64] | None = None) -> None:
        """Fill the cache with tokens, shape (kv_heads, tokens, head_size), and vote counts."""
        self.length, self.victim, self.stepped = keys.shape[1], None, False
        self.keys[:, : self.length], self.values[:, : self.length] = keys, values
        self.counts[: self.length] = 0 if counts is None else counts

    def attend(
        self, queries: Codes, key: Codes, value: Codes, *, vote: bool = False, evictions: int = 0
    ) -> Step:
        """Store a token's keys and values, attend to all cached tokens, vote and evict.

        Parameters
        ----------
        queries : numpy.ndarray
            FP16 codes, shape (heads, head_size), scaled, log2(e) included.
        key, value : numpy.ndarray
            FP16 codes, shape (kv_heads, head_size).
        vote : bool
            Whether the token votes.
        evictions : int
            Number of victims to find. After more than one, the layer must be filled again.
        """
        p = self.parameters
        self.stepped = True
        slot = min(self.length, p.slots - 1) if self.victim is None else self.victim
        self.length = max(self.length, slot + 1)
        self.victim = None
        self.keys[:, slot], self.values[:, slot] = key, value
        rows = lane_rows(queries, p).reshape(p.rounds, p.copies, p.array.width)
        outputs, probabilities = [], []
        for head_round in range(p.rounds):
            for copy in range(p.copies):
                scalars = self._probabilities(head_round, copy, rows[head_round, copy])
                probabilities += list(scalars[:: p.vector_lines])
                weights = self._rows(self.values, head_round, copy)
                outputs.append(outer_product(p.array, scalars.T.astype(np.uint64), weights))
        heads = np.array(probabilities[: p.heads], np.uint16)
        step = LayerStep(length=self.length, vote=vote, new_slot=slot, evictions=evictions)
        codes = heads.astype(np.int64)
        result = process_step(step, codes, self.counts[: self.length], p.voting, self.coefficients)
        self.counts[: self.length] = result.counts
        victims = [victim.slot for victim in result.victims if victim.found]
        if evictions == 1:
            (self.victim,) = victims
        lanes = np.array(outputs, np.uint16).reshape(p.rounds, p.lanes, p.head_size)
        return Step(slot, self.length, lanes, heads, victims, result.sent)

    def _probabilities(self, head_round: int, copy: int, query: Codes) -> Codes:
        """Return the probabilities that multiply each plane, shape (planes, length)."""
        p = self.parameters
        weights = self._rows(self.keys, head_round, copy)
        vectors = np.broadcast_to(query.astype(np.uint64), weights.shape)
        sums = inner_products(p.array, vectors, weights, np.full(self.length, int(p.split)))
        scores = float_convert(p.array.sum_format, BINARY16, sums)
        planes = range(p.array.planes)
        lanes = [scores[:, plane if p.split else 0].astype(np.uint16) for plane in planes]
        return softmax(np.array(lanes), p.softmax)

    def _rows(self, cache: Codes, head_round: int, copy: int) -> NDArray[np.uint64]:
        """Return the lines of a cache that one array reads in a round, shape (length, width)."""
        p = self.parameters
        first = head_round * p.lanes + copy * p.array_lanes
        heads = np.minimum(np.arange(first, first + p.array_lanes), p.heads - 1)
        kv_heads = heads // (p.heads // p.kv_heads)
        rows = [cache[kv_head, : self.length] for kv_head in kv_heads]
        return np.concatenate(rows, axis=1).astype(np.uint64)


def lane_rows(heads: Codes, p: VedaParameters) -> Codes:
    """Return heads as beats of all lanes, padded with zeros, shape (beats, lanes * head_size)."""
    beats = -(-len(heads) // p.lanes)
    rows = np.zeros((beats * p.lanes, p.head_size), np.uint16)
    rows[: len(heads)] = heads
    return rows.reshape(beats, -1)

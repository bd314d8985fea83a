"""Texts and random steps as work for VEDA's testbench."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.veda.veda import Codes
from golden.veda.voting.vote_threshold import PAPER, ThresholdCoefficients
from hdl.veda.parameters import VedaParameters
from testbenches.veda.decode_work import (
    LAYERS,
    DecodeWork,
    Tokens,
    open_tokens,
    random_tokens,
    real_tokens,
)
from testbenches.veda.layer_weights import real_states, real_weights


def text_layers(p: VedaParameters, most: int = len(LAYERS)) -> tuple[int, ...]:
    """Return SmolLM2's numbers of the layers that a test uses: as many as the accelerator has."""
    return LAYERS[: min(most, p.layers)]


def past_of(tokens: Tokens, count: int) -> tuple[Codes, Codes, NDArray[np.int64]]:
    """Return the initial keys, values and vote counts of a layer: those of the first tokens."""
    keys, values = (past[:count].swapaxes(0, 1) for past in (tokens.keys, tokens.values))
    return keys, values, np.zeros(count, np.int64)


def some_evictions(rng: np.random.Generator, length: int, *, several: bool) -> int:
    """Return a random number of victims: one, or `several`, at most half of the cached tokens.

    A layer must be loaded again after several victims, so they occur in its last step.
    """
    return int(rng.integers(2, length // 2 + 1)) if several and length >= 4 else 1


def mixed(rng: np.random.Generator, p: VedaParameters, steps: int) -> DecodeWork:
    """Return random steps of all layers in rotation, of all lengths, with and without votes."""
    coefficients = ThresholdCoefficients(int(rng.integers(1 << 13)), int(rng.integers(1 << 13)))
    work = DecodeWork(p, coefficients=coefficients)
    longest = min(p.slots, 40)
    tokens = random_tokens(rng, p, longest + steps + p.block)
    layers = len(text_layers(p))
    for layer in range(layers):
        keys, values, counts = past_of(tokens, int(rng.integers(0, longest)))
        work.load(layer, keys, values, rng.integers(0, 1 << 16, counts.shape))
    for step in range(steps):
        layer = step % layers
        model = work.models[layer]
        count = min(int(rng.integers(1, p.block + 1)), max(1, longest - model.length))
        evict = model.length + count >= longest or bool(rng.integers(2))
        several = step >= steps - layers
        evictions = some_evictions(rng, model.length + count, several=several) if evict else 0
        options = {"vote": evict or bool(rng.integers(2)), "evictions": evictions}
        work.add(layer, tokens, longest + step, count=count, **options)
    return work


def layered(
    p: VedaParameters,
    cached: int,
    count: int,
    layers: int,
    *,
    coefficients: ThresholdCoefficients = PAPER,
) -> DecodeWork:
    """Return tokens that pass through consecutive layers of SmolLM2; each evicts one token.

    The positions are those after the cached tokens. Fewer than `cached` tokens are cached if the
    slots or the positions do not suffice.
    """
    work = DecodeWork(p, coefficients=coefficients)
    trace, numbers = open_tokens(), text_layers(p, layers)
    cached = min(cached, p.slots - 1, p.context_length - count)
    for layer, number in enumerate(numbers):
        work.load(layer, *past_of(real_tokens(p, number), cached))
        work.give(layer, real_weights(p, trace, number))
    states = real_states(p, trace, numbers[0])
    for index in range(cached, cached + count):
        for layer in range(len(numbers)):
            last = layer == len(numbers) - 1
            work.add_layer(
                layer, states[index : index + 1], index, vote=True, evictions=1, leave=last
            )
    return work


def prompt(
    p: VedaParameters,
    tokens: int,
    target: int,
    reserved: int,
    layers: int,
    *,
    coefficients: ThresholdCoefficients = PAPER,
) -> DecodeWork:
    """Return a text that layers of SmolLM2 process in blocks, and whose end trims the cache.

    The text has at most as many tokens as the cache has slots, and the end evicts at least one.
    """
    work = DecodeWork(p, coefficients=coefficients)
    trace, numbers = open_tokens(), text_layers(p, layers)
    tokens = min(tokens, p.slots)
    target = min(target, tokens - 1)
    for layer, number in enumerate(numbers):
        work.load(layer, *past_of(real_tokens(p, number), 0))
        work.give(layer, real_weights(p, trace, number))
    states = real_states(p, trace, numbers[0])[:tokens]
    for first in range(0, tokens, p.block):
        block = states[first : first + p.block]
        closes = first + len(block) == tokens
        for layer in range(len(numbers)):
            work.add_layer(
                layer,
                block,
                first,
                vote=first >= reserved,
                evictions=tokens - target if closes else 0,
                leave=layer == len(numbers) - 1,
            )
    return work


def random_vocabulary(rng: np.random.Generator, p: VedaParameters) -> Codes | None:
    """Return an LM head of normal numbers, in which some tokens have equal columns."""
    if not p.vocabulary_size:
        return None
    columns = rng.integers(0, p.vocabulary_size, p.vocabulary_size)
    return codes(rng.normal(size=(p.row_lines, p.vocabulary_size)))[:, columns]


def states_of_all_sizes(rng: np.random.Generator, p: VedaParameters, tokens: int) -> Codes:
    """Return random hidden states, shape (tokens, hidden_size), with magnitudes of wide range."""
    size = (tokens, p.hidden_size)
    states = rng.normal(size=size) * np.exp2(rng.uniform(-16, 6, size))
    return codes(np.where(rng.random(size) < 0.1, 0, states))


def mixed_layers(
    rng: np.random.Generator,
    p: VedaParameters,
    steps: int,
    *,
    states: Codes | None = None,
    coefficients: ThresholdCoefficients = PAPER,
) -> DecodeWork:
    """Return whole layers and attention alone in random order, with and without votes.

    Hidden states are SmolLM2's unless others are given: for as many tokens as there are steps, and
    one block more.
    """
    work = DecodeWork(p, coefficients=coefficients)
    longest = min(p.slots, 40)
    work.vocabulary = random_vocabulary(rng, p)
    trace, tokens = open_tokens(), random_tokens(rng, p, longest + steps + p.block)
    numbers = text_layers(p)
    for layer, number in enumerate(numbers):
        keys, values, counts = past_of(tokens, int(rng.integers(0, longest)))
        work.load(layer, keys, values, rng.integers(0, 1 << 16, counts.shape))
        work.give(layer, real_weights(p, trace, number))
    states = real_states(p, trace, numbers[0]) if states is None else states

    def room(layer: int) -> int:
        """Return how many tokens fit into a layer; one always finds a slot, or a victim's."""
        return max(1, longest - work.models[layer].length)

    for step in range(steps):
        inside = 0 if work.states is None else len(work.states)
        fits = [layer for layer in range(len(numbers)) if room(layer) >= inside]
        layer = fits[int(rng.integers(len(fits)))]
        # States inside the accelerator must find room in some layer.
        alone = inside < 2 and rng.integers(4) == 0
        count = min(int(rng.integers(1, p.block + 1)), room(layer))
        if inside and not alone:
            count = inside
        full = work.models[layer].length + count >= longest
        evict = full or bool(rng.integers(2))
        length, several = work.models[layer].length + count, step == steps - 1
        evictions = some_evictions(rng, length, several=several) if evict else 0
        options = {"vote": evict or bool(rng.integers(2)), "evictions": evictions}
        if alone:
            work.add(layer, tokens, longest + step, count=count, **options)
            continue
        position = int(rng.integers(p.context_length if p.context_length < 100 else 100))
        position = min(position, p.context_length - count)
        # After the last layer only the output of the state remains.
        others = any(room(other) >= count for other in range(len(numbers)) if other != layer)
        leave = bool(rng.integers(2)) or step == steps - 1 or not others
        states_in = states[step : step + count]
        predict = bool(p.vocabulary_size) and leave and bool(rng.integers(2))
        work.add_layer(layer, states_in, position, **options, leave=leave, predict=predict)
    return work

"""VEDA's whole language model: all layers, the final norm, the LM head, and the argmax."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.llm.layers import LayerWeights
from golden.nonlinear.argmax import argmax
from golden.veda.array.flexible_pe_array import outer_sums
from golden.veda.decoder_layer import DecoderLayer, row_operands
from golden.veda.functions.element_serial_rotary import angles
from golden.veda.veda import Codes, Step
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from hdl.veda.parameters import VedaParameters


@dataclass(frozen=True, kw_only=True)
class Block:
    """Tokens of a text that pass through all layers together.

    Parameters
    ----------
    first, count : int
        The position of the first token, and the number of tokens.
    vote : bool
        Whether the tokens vote.
    evictions : int
        Victims that the last token finds in each layer.
    predict : bool
        Whether the LM head follows.
    """

    first: int
    count: int
    vote: bool
    evictions: int
    predict: bool


def prompt_blocks(prompt: int, *, block: int, budget: int, reserved: int) -> list[Block]:
    """Return the blocks of a prompt; its last token is a block by itself, which predicts.

    Parameters
    ----------
    prompt : int
        Tokens of the prompt.
    block : int
        Maximum number of tokens of a block.
    budget : int
        Tokens that a layer caches during generation; excess tokens of the prompt are evicted at its
        end.
    reserved : int
        The first tokens of a text, which cast no votes.
    """
    blocks = []
    first = 0
    while first < prompt:
        count = min(block, prompt - 1 - first) or 1
        # A block votes as a whole or not at all.
        if first < reserved:
            count = min(count, reserved - first)
        predict = first == prompt - 1
        evictions = max(0, prompt + 1 - budget) if predict else 0
        blocks.append(
            Block(
                first=first,
                count=count,
                vote=first >= reserved,
                evictions=evictions,
                predict=predict,
            )
        )
        first += count
    return blocks


def next_block(position: int, *, cached: int, budget: int, reserved: int) -> Block:
    """Return a generated token's block; it evicts a token if the next one would exceed the budget.

    `cached` is the number of tokens that each layer holds before this one, excluding a victim.
    """
    return Block(
        first=position,
        count=1,
        vote=position >= reserved,
        evictions=int(cached + 1 >= budget),
        predict=True,
    )


@dataclass(frozen=True, eq=False)
class BlockResult:
    """Results of a block.

    Members
    -------
    states : numpy.ndarray
        Hidden states before the first layer and after each layer, FP16 codes, shape (layers + 1,
        tokens, hidden_size).
    steps : list[list[Step]]
        The attention of each layer, of each token.
    token : int | None
        The next token, if the block predicts.
    logits : numpy.ndarray | None
        The logits before rounding, as codes of the sum format.
    """

    states: Codes
    steps: list[list[Step]]
    token: int | None
    logits: NDArray[np.uint64] | None


@dataclass(eq=False)
class WholeModel:
    """All layers and the LM head.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.
    weights : Sequence[LayerWeights]
        Each layer's matrices, as FP16 codes.
    vocabulary : numpy.ndarray
        The LM head with the final norm's weights folded in, FP16 codes, shape (hidden_size,
        vocabulary_size); with biases, these are its first row.
    rope_base : float
        Base of the rotary angles.

    Members
    -------
    layers : list[DecoderLayer]
        The layers with their caches.
    """

    parameters: VedaParameters
    weights: Sequence[LayerWeights]
    vocabulary: Codes
    rope_base: float
    layers: list[DecoderLayer] = field(init=False)

    def __post_init__(self) -> None:
        """Start with empty caches."""
        self.layers = [DecoderLayer(self.parameters, weights) for weights in self.weights]

    def step(self, block: Block, states: Codes) -> BlockResult:
        """Execute all layers for a block's hidden states, shape (tokens, hidden_size)."""
        p = self.parameters
        behind, steps = [states], []
        cosines, sines = angles(block.first + block.count, p.head_size, self.rope_base)
        for layer in self.layers:
            results = []
            for number, state in enumerate(behind[-1]):
                position = block.first + number
                results.append(
                    layer.step(
                        state,
                        cosines[position],
                        sines[position],
                        vote=block.vote,
                        evictions=block.evictions if number == block.count - 1 else 0,
                    )
                )
            behind.append(np.stack([result.state for result in results]))
            steps.append([result.attention for result in results])
            if block.evictions > 1:
                close_gaps(layer, steps[-1][-1])
        if not block.predict:
            return BlockResult(np.stack(behind), steps, None, None)
        logits = vocabulary_sums(p, behind[-1][-1], self.vocabulary)
        return BlockResult(np.stack(behind), steps, argmax(p.array.sum_format, logits)[0], logits)


def close_gaps(layer: DecoderLayer, step: Step) -> None:
    """Compact the remaining slots of a trimmed cache, in the order of the slots."""
    cache = layer.cache
    keys, values = (
        np.delete(part[:, : cache.length], step.victims, axis=1)
        for part in (cache.keys, cache.values)
    )
    cache.fill(keys, values, step.counts)


def vocabulary_sums(p: VedaParameters, state: Codes, vocabulary: Codes) -> NDArray[np.uint64]:
    """Return the normalised state times the LM head, as sums before rounding."""
    array: FlexiblePeArrayParameters = p.array
    normalised = row_operands(p, state)
    columns = -(-vocabulary.shape[1] // array.planes) * array.planes
    padded = np.pad(vocabulary, ((0, 0), (0, columns - vocabulary.shape[1])))
    scalars = np.repeat(normalised[:, np.newaxis], array.planes, axis=1)
    return outer_sums(array, scalars, padded)[: vocabulary.shape[1]]

"""A real attention block as the accelerator holds it: integer weights, scales, steps."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.arith.int_symmetric import quantise
from golden.arith.requantiser import scale_and_shift
from golden.llm import Trace, layers
from golden.llm.layers import rotary_angles, rotated
from golden.nonlinear.rotary_embedding import paired
from hdl.kelle.parameters import KelleParameters, Operation

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

SCORE_FRACTION = 10
PROBABILITY_FRACTION = 15


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear layer of the block.

    Parameters
    ----------
    exact : numpy.ndarray
        float64 [inputs, outputs].
    weights : numpy.ndarray
        int64 [inputs, outputs], 8 bits, a scale an output.
    scale, shift : numpy.ndarray
        int64 [outputs], of the requantiser.
    """

    exact: Reals
    weights: Integers
    scale: Integers
    shift: Integers


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """A block with the inputs of a text.

    Parameters
    ----------
    inputs : numpy.ndarray
        float64 [tokens, width], what the projections were given.
    quantised : numpy.ndarray
        int64 [tokens, width], the same in 16 bits.
    projections : dict
        `Projection` by operation.
    score, attend : tuple[int, int]
        Scale and shift of scores and of what the attention gives.
    steps : dict
        What a unit of an operation's results is worth.
    """

    inputs: Reals
    quantised: Integers
    projections: dict[Operation, Projection]
    score: tuple[int, int]
    attend: tuple[int, int]
    steps: dict[Operation, float]

    def word(self, p: KelleParameters, operation: Operation, slice_: int) -> tuple[list, list]:
        """Return the scales and shifts of a slice of results, one a lane."""
        if operation in self.projections:
            here = slice(slice_ * p.rows, (slice_ + 1) * p.rows)
            projection = self.projections[operation]
            return list(projection.scale[here]), list(projection.shift[here])
        scale, shift = self.score if operation is Operation.SCORE else self.attend
        return [scale] * p.rows, [shift] * p.rows


def exact_heads(layer: AttentionLayer, p: KelleParameters) -> tuple[Reals, Reals, Reals]:
    """Return rotated queries and keys, and values, of the whole text in float64.

    Returns
    -------
    tuple
        [tokens, query heads, head_size], and twice [tokens, heads, head_size].
    """
    q, k, v = (
        (layer.inputs @ layer.projections[which].exact).reshape(len(layer.inputs), -1, p.head_size)
        for which in (Operation.QUERY, Operation.KEY, Operation.VALUE)
    )
    angles = rotary_angles(np.arange(len(q)), p.head_size, p.base)[:, np.newaxis]
    query, key = (rotated(heads, np.cos(angles), np.sin(angles)) for heads in (q, k))
    return query, key, v


def exact_output(
    layer: AttentionLayer,
    p: KelleParameters,
    heads: tuple[Reals, Reals, Reals],
    now: int,
    attended: list[Integers],
) -> Reals:
    """Return the block's output for one token, by Equations 1 and 2, in float64.

    Parameters
    ----------
    layer : AttentionLayer
        The block.
    p : KelleParameters
        Dimensions.
    heads : tuple
        What `exact_heads` returned.
    now : int
        The arriving token.
    attended : list[numpy.ndarray]
        For each key/value head the positions that the token attends to, its own included.
    """
    q, k, v = heads
    contexts = []
    for query in range(p.query_heads):
        head = query // p.queries
        own, scale = attended[head], np.sqrt(p.head_size)
        contexts.append(
            layers.attended(
                q[now, [query]] / scale, k[own, head][np.newaxis], v[own, head][np.newaxis]
            )
        )
    return np.concatenate(contexts, axis=None) @ layer.projections[Operation.OUTPUT].exact


def real_layer(trace: Trace, number: int, p: KelleParameters) -> AttentionLayer:
    """Quantise a layer of SmolLM2, cut to size where the accelerator is smaller.

    Steps are those of the whole text, so that a token's key is the same whenever it is computed.
    """
    names = {
        Operation.QUERY: "q_proj",
        Operation.KEY: "k_proj",
        Operation.VALUE: "v_proj",
        Operation.OUTPUT: "o_proj",
    }
    outputs = {Operation.KEY: p.heads * p.head_size, Operation.VALUE: p.heads * p.head_size}
    inputs = trace.linear(number, "q_proj").inputs[:, : p.width].astype(np.float64)
    exact = {}
    for which, name in names.items():
        weight = trace.linear(number, name).weight[: outputs.get(which, p.width), : p.width]
        exact[which] = weight.T.astype(np.float64)
        if which in (Operation.QUERY, Operation.KEY):
            # Channels i and i + size / 2 become neighbours.
            heads = exact[which].reshape(p.width, -1, p.head_size)
            exact[which] = paired(heads).reshape(exact[which].shape)

    quantised, input_step = quantise(inputs, bits=16, axis=None)
    made: dict[Operation, Reals] = {
        which: inputs @ exact[which] for which in names if which is not Operation.OUTPUT
    }
    # A rotated pair can be longer than either of its channels; outputs are bounded by values.
    steps = {
        which: float(np.abs(values).max()) * (1.0 if which is Operation.VALUE else 1.5) / 32767
        for which, values in made.items()
    }
    steps[Operation.ATTEND] = steps[Operation.VALUE]
    steps[Operation.OUTPUT] = _output_range(made, exact[Operation.OUTPUT], p) / 32767
    projections = {}
    for which, matrix in exact.items():
        weights, weight_steps = quantise(matrix, bits=8, axis=0)
        given = steps[Operation.ATTEND] if which is Operation.OUTPUT else float(input_step.item())
        pairs = [
            scale_and_shift(given * float(step) / steps[which]) for step in weight_steps.reshape(-1)
        ]
        scale, shift = np.array(pairs, np.int64).T
        projections[which] = Projection(matrix, weights.astype(np.int64), scale, shift)
    product = steps[Operation.QUERY] * steps[Operation.KEY] / np.sqrt(p.head_size)
    return AttentionLayer(
        inputs=inputs,
        quantised=quantised.astype(np.int64),
        projections=projections,
        score=scale_and_shift(product * np.log2(np.e) * (1 << SCORE_FRACTION)),
        attend=scale_and_shift(2.0**-PROBABILITY_FRACTION),
        steps=steps,
    )


def _output_range(made: dict[Operation, Reals], matrix: Reals, p: KelleParameters) -> float:
    """Bound the outputs by those that any token's own values alone would give, and some more."""
    values = made[Operation.VALUE].reshape(-1, p.heads, 1, p.head_size)
    own = np.broadcast_to(values, (len(values), p.heads, p.queries, p.head_size))
    return float(np.abs(own.reshape(len(values), -1) @ matrix).max()) * 1.1

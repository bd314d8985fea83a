"""Bit-exact model of the accelerator: decoder layers in INT8 from hidden states to hidden states.

The model follows the equations of a layer. The order of the accelerator's instructions, and the
dataflow of attention (pipeline or stage by stage), do not change any value.
"""

from dataclasses import dataclass

import numpy as np

from golden.meadow.control.combiner import activated, added, narrowed
from golden.meadow.layer_quantisation import IntegerLayer
from golden.meadow.tile.hybrid_tile import AttentionBlock, LinearBlock, attend, linear
from golden.meadow.tile.requantisation import Integers, narrowed_rows, to_int8
from golden.nonlinear.layer_norm import layer_norm
from golden.nonlinear.rms_norm import rms_norm
from hdl.meadow.parameters import NORM_DROP, MeadowParameters
from hdl.nonlinear.layer_norm import LayerNormParameters
from hdl.nonlinear.row_norm import STATE as NORM_STATE


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerResult:
    """Results of a layer for several tokens.

    Members
    -------
    states : numpy.ndarray
        Hidden states after the layer [tokens, hidden_size].
    keys, values : numpy.ndarray
        The cache after the layer, INT8 [kv_heads, cached, size].
    stages : dict[str, numpy.ndarray]
        Values between the stages [tokens, elements].
    """

    states: Integers
    keys: Integers
    values: Integers
    stages: dict[str, Integers]


def run_layer(
    layer: IntegerLayer, states: Integers, cache: tuple[Integers, Integers], p: MeadowParameters
) -> LayerResult:
    """Compute a layer for several tokens.

    Parameters
    ----------
    layer : IntegerLayer
        The layer.
    states : numpy.ndarray
        Hidden states [tokens, hidden_size] of 24 bits, at the positions after the cached ones.
    cache : tuple
        Keys and values, INT8 [kv_heads, cached, size].
    p : MeadowParameters
        Dimensions of model and accelerator.
    """
    context = cache[0].shape[1] + len(states)

    def gemm(
        name: str,
        operand: tuple[Integers, Integers | None],
        *,
        rotate: bool = False,
        wide: bool = False,
    ) -> Integers:
        rows, exponents = operand
        block = LinearBlock(
            tokens=rows,
            weights=layer.matrices[name],
            context=context,
            rotate=rotate and p.rotary,
            factor=layer.factor(name),
            wide=wide,
            bias=layer.biases.get(name),
            exponents=exponents,
        )
        return linear(block, p.tile)

    def normalised(number: int, rows: Integers) -> tuple[Integers, Integers | None]:
        bias = layer.norm_biases[number] if p.layer_norm else None
        return operands(norm(rows, layer.norms[number], layer.epsilon, p, bias), p)

    here = normalised(0, states)
    keys, values = (
        np.concatenate([old, new], axis=1)
        for old, new in zip(
            cache, (gemm("key", here, rotate=True), gemm("value", here)), strict=True
        )
    )
    block = AttentionBlock(
        tokens=here[0],
        query=layer.matrices["query"],
        keys=keys,
        values=values,
        causal=p.causal,
        skip=False,
        factors=tuple(layer.factor(name) for name in ("query", "score", "attended")),
        table=layer.table,
        steps={},
        bias=layer.biases.get("query"),
        exponents=here[1],
    )
    heads = by_token(attend(block, p.tile))
    output = by_token(gemm("output", operands(heads, p), wide=True))
    middle = added(states, output, layer.lifts["output"])
    there = normalised(1, middle)
    up = by_token(gemm("up", there, wide=True))
    # Without a gate, the result of the activation is multiplied by a constant to get INT8.
    gate = by_token(gemm("gate", there, wide=True)) if p.gated else up
    factor = up if p.gated else layer.activated_scale
    product = narrowed(activated(gate, p.activation), factor, wide=p.token_exponents)
    down = by_token(gemm("down", operands(product, p), wide=True))
    stages = {"input": here[0], "heads": heads, "states": middle, "middle": there[0]}
    return LayerResult(
        states=added(middle, down, layer.lifts["down"]),
        keys=keys,
        values=values,
        stages=stages | {"gate": gate, "product": product},
    )


def operands(rows: Integers, p: MeadowParameters) -> tuple[Integers, Integers | None]:
    """Return the input rows of a linear layer in INT8, and their exponents if they have any."""
    return narrowed_rows(rows) if p.token_exponents else (rows, None)


def by_token(tiles: Integers) -> Integers:
    """Concatenate tiles [tiles, tokens, size] to rows [tokens, tiles * size]."""
    return tiles.swapaxes(0, 1).reshape(tiles.shape[1], -1)


def norm(
    states: Integers,
    weights: Integers,
    epsilon: int,
    p: MeadowParameters,
    bias: Integers | None = None,
) -> Integers:
    """Return rows divided by their root mean square or standard deviation, times weights, in INT8.

    Layer norm subtracts the mean first and adds the bias. Each row is shifted to 16 bits, rounded
    down; epsilon is shifted by twice the amount. With token exponents the result keeps its 16 bits,
    in steps that are smaller by ``2**NORM_DROP``.
    """
    magnitudes = np.where(states < 0, ~states, states).max(axis=1)
    # A row of n bits and a sign keeps its upper 15 bits and the sign.
    exponents = np.frexp(magnitudes.astype(np.float64))[1].astype(np.int64)
    shift = np.maximum(exponents - (NORM_STATE.width - 1), 0)
    rows = states >> shift[:, np.newaxis]
    if isinstance(p.norm, LayerNormParameters):
        assert bias is not None
        normalised = layer_norm(rows, epsilon >> 2 * shift, weights, bias, p.norm)
    else:
        normalised = rms_norm(rows, epsilon >> 2 * shift, weights, p.norm)
    return normalised if p.token_exponents else to_int8(normalised, 1, NORM_DROP)

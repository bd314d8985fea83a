"""SmolLM2's tensors in P3-LLM's formats: operands of the compute units in a decode step."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from golden.arith import bitmod_fp4, fp8_e4m3, fp8_s0e4m4, int4_asym
from golden.llm import Trace, open_trace
from hdl.p3llm.pim.operand_decoder import Mode

LAYERS = (0, 14, 29)
TOKENS = 640


@dataclass(frozen=True, kw_only=True)
class Operands:
    """One matrix product as codes: inputs [n, k], columns' codes [outputs, k].

    Members
    -------
    mode : Mode
        Formats of the operands.
    inputs : numpy.ndarray
        E4M3 or S0E4M4 codes, shape (inputs, k).
    codes, group_bits : numpy.ndarray
        4-bit codes and the metadata of each, shape (outputs, k).
    """

    mode: Mode
    inputs: np.ndarray
    codes: np.ndarray
    group_bits: np.ndarray


@cache
def trace() -> Trace:
    """Return the captured model."""
    return open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def linear(
    layer: int, name: str, *, outputs: int, inputs: int, tokens: int, group: int = 64
) -> Operands:
    """Return the first outputs of a linear layer for the text's last tokens."""
    real = trace().linear(layer, name)
    quantised = bitmod_fp4.quantise(real.weight[:outputs], group_size=group)
    selects = np.repeat(quantised.selects, group, axis=-1)[:, :inputs]
    activations, _scales = fp8_e4m3.quantise(real.inputs[-tokens:])
    return Operands(
        mode=Mode.LINEAR,
        inputs=activations[:, :inputs],
        codes=quantised.codes.reshape(len(quantised.codes), -1)[:, :inputs],
        group_bits=selects,
    )


def group_scales(
    layer: int, name: str, *, outputs: int, inputs: int, group: int = 64
) -> np.ndarray:
    """Return the 8-bit scales of the groups of `linear`, shape (outputs, groups)."""
    weight = trace().linear(layer, name).weight[:outputs]
    steps, _rows = bitmod_fp4.quantise_scales(bitmod_fp4.quantise(weight, group_size=group).scales)
    return steps[:, : inputs // group]


def smoothing(keys: np.ndarray) -> np.ndarray:
    """Return each channel's largest magnitude over the prompt; 1 for a channel of zeros."""
    largest = np.abs(keys).max(axis=0)
    return np.where(largest == 0, np.float32(1), largest)


def queries_and_keys(layer: int, kv_head: int, *, tokens: int, heads: int) -> Operands:
    """Return the last token's queries of a group of heads, and the cached keys."""
    shared = trace().heads // trace().kv_heads
    attention = [trace().attention_trace(layer, kv_head * shared + i) for i in range(heads)]
    keys = attention[0].k[:tokens]
    factors = smoothing(keys)
    quantised = int4_asym.quantise(keys / factors)
    queries, _ = fp8_e4m3.quantise(np.stack([one.q[tokens - 1] * factors for one in attention]))
    return Operands(
        mode=Mode.QK,
        inputs=queries,
        codes=quantised.codes,
        group_bits=np.broadcast_to(quantised.zero_points, quantised.codes.shape),
    )


def probabilities_and_values(layer: int, kv_head: int, *, tokens: int, heads: int) -> Operands:
    """Return the last token's probabilities of a group of heads, and the cached values.

    The values' scales, divided by their maximum, are multiplied into the probabilities.
    """
    shared = trace().heads // trace().kv_heads
    attention = [trace().attention_trace(layer, kv_head * shared + i) for i in range(heads)]
    quantised = int4_asym.quantise(attention[0].v[:tokens])
    scales = (quantised.scales / quantised.scales.max())[:, 0].astype(np.float16)
    rows = np.stack([one.probabilities[tokens - 1, :tokens] for one in attention])
    scaled = rows.astype(np.float16) * scales
    zero_points = np.broadcast_to(quantised.zero_points, quantised.codes.shape)
    return Operands(
        mode=Mode.PV,
        inputs=fp8_s0e4m4.encode(scaled.view(np.uint16)),
        codes=quantised.codes.T,
        group_bits=zero_points.T,
    )

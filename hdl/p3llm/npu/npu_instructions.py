"""Instructions of the NPU side, one vector each."""

from amaranth.lib import data, enum
from amaranth.utils import bits_for

from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.places import Places


class NpuOperation(enum.Enum, shape=4):
    """Operation on a vector.

    Members
    -------
    LOAD, LEAVE
        Input or output a hidden state.
    NORM
        Normalise a hidden state, and quantise it as inputs of a linear layer.
    SCALE, RESIDUAL
        Scale a linear layer's sums to binary32; store them, or add them to a hidden state.
    GATED
        SwiGLU: scale the sums, multiply them by SiLU of the gate, and quantise the products.
    FACTORS
        Load the smoothing factors of a head into the smoothing unit.
    QUERY, KEY
        Rotate a head by its position and smooth it; quantise it as inputs, or for the cache.
    VALUE
        Quantise a head for the cache.
    SCORES
        Compute scores, probabilities, and their products with the values' scales; quantise them as
        inputs.
    HEAD
        Scale a head's sums to binary32.
    ACTIVATE
        Quantise numbers as inputs.
    COMPARE
        Scale sums of the LM head to logits, and update the argmax.
    PREDICT
        Output the argmax, and clear it.
    WEIGH
        With `residual`: multiply the newest token's value by its probability, in FP16.
    """

    LOAD = 0
    LEAVE = 1
    NORM = 2
    SCALE = 3
    RESIDUAL = 4
    GATED = 5
    FACTORS = 6
    QUERY = 7
    KEY = 8
    VALUE = 9
    SCORES = 10
    HEAD = 11
    ACTIVATE = 12
    COMPARE = 13
    PREDICT = 14
    WEIGH = 15


READS_SUMS = (
    NpuOperation.SCALE,
    NpuOperation.RESIDUAL,
    NpuOperation.GATED,
    NpuOperation.SCORES,
    NpuOperation.HEAD,
)
"""Operations that read sums of the compute units."""

READS_FACTORS = (
    NpuOperation.NORM,
    NpuOperation.SCALE,
    NpuOperation.RESIDUAL,
    NpuOperation.GATED,
    NpuOperation.FACTORS,
    NpuOperation.SCORES,
)
"""Operations that read FP16 numbers from the banks."""

READS_NUMBERS = (
    NpuOperation.LEAVE,
    NpuOperation.NORM,
    NpuOperation.RESIDUAL,
    NpuOperation.GATED,
    NpuOperation.QUERY,
    NpuOperation.KEY,
    NpuOperation.VALUE,
    NpuOperation.ACTIVATE,
)
"""Operations that read binary32 numbers."""


def npu_instruction(p: P3llmParameters) -> data.StructLayout:
    """Return the layout of an instruction.

    All places are in slices. ``count`` is the number of slices; for `SCORES` it follows from the
    number of cached tokens. ``source`` and ``target`` are places of binary32 numbers; ``target`` of
    a quantised result is a place of inputs. ``factors`` and ``value_scales`` are places of FP16
    numbers. ``scalar`` selects the scale of inputs, and the largest scale of values, that the
    operation writes or reads.

    With `pre_rope`, a head's keys are at ``source`` of `SCORES`, their zero points at ``sums``, and
    its smoothing factors at ``factors`` of `QUERY`; `QUERY` passes the rotated query to `SCORES`.
    With `residual`, the newest token's key is at ``target`` of `KEY` and at ``factors`` of `QUERY`;
    `HEAD` is added to the result of `WEIGH` at ``source``.
    """
    places = Places(p)
    place, factor = places.address_bits, places.factors_bits
    # If the NPU multiplies queries by keys, zero points use the field of the sums' place.
    zeros = bits_for(places.zeros(2)) if p.pre_rope else 0
    return data.StructLayout(
        {
            "operation": NpuOperation,
            "count": places.count_bits,
            "source": place,
            "target": place,
            "sums": max(places.sums_bits, zeros),
            "factors": factor,
            "value_scales": factor,
            "scalar": 2,
            "head": 5,
        }
    )

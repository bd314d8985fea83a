"""What the NPU is told, a vector at a time."""

from amaranth.lib import data, enum
from amaranth.utils import bits_for

from hdl.p3llm.npu.places import Places
from hdl.p3llm.parameters import P3llmParameters


class NpuOperation(enum.Enum, shape=4):
    """What becomes of a vector.

    Members
    -------
    LOAD, LEAVE
        A hidden state comes, goes.
    NORM
        A hidden state is normalised, and quantised as the inputs of a linear layer.
    SCALE, RESIDUAL
        A linear layer's sums become numbers; they are added to a hidden state.
    GATED
        The sums become numbers, are multiplied by SiLU of others, and quantised.
    FACTORS
        Smoothing factors of a head come to the units that use them.
    QUERY, KEY
        A head is turned by its position and smoothed; quantised as inputs, or for the cache.
    VALUE
        A head is quantised for the cache.
    SCORES
        Sums become scores, probabilities, and with the values' scales inputs.
    HEAD
        A head's sums become numbers.
    ACTIVATE
        Numbers are quantised as inputs.
    COMPARE
        Sums of the vocabulary become numbers, and the first of the largest is kept.
    PREDICT
        It leaves, and nothing is kept.
    WEIGH
        The newest token's value becomes numbers, FP16 times the probability of the token.
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
"""Operations that read FP16 numbers that came from the banks."""

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
"""Operations that read numbers."""


def npu_instruction(p: P3llmParameters) -> data.StructLayout:
    """Return the layout of an instruction.

    ``count`` in slices; of `SCORES` it follows from the cached tokens. ``source`` and ``target``
    are places of numbers or, of what is quantised, ``target`` is one of inputs; ``factors`` and
    ``value_scales`` places of FP16, all of them in slices. ``scalar`` is which input's scale, and
    which largest scale of values, is made or used. With `pre_rope` a head's keys stand at
    ``source`` of `SCORES`, their zero points at ``sums``; `QUERY` finds its head's smoothing
    factors at ``factors``, and both keep what they make between them. The newest token's key stands
    at ``target`` of `KEY`, at ``factors`` of `QUERY`; a `HEAD` is added to what `WEIGH` left at
    ``source``.
    """
    places = Places(p)
    place, factor = places.address_bits, places.factors_bits
    # Where the units do not meet the keys, zero points have the place of their sums.
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

"""Operands of a pseudo-channel's traces: SmolLM2's tensors on all units, and their metadata."""

import numpy as np

from golden.p3llm.dram_layout import pack_selects, pack_zero_points
from golden.p3llm.pim import real_operands
from golden.p3llm.pim.pim_processing_element import dot_products
from golden.p3llm.pim.real_operands import Operands
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import PimChannelParameters

PE_LANES = 4
BLOCKS = 3
"""Tiles per unit, stored sequentially in alternating banks."""


def operands_for(p: PimChannelParameters, mode: str) -> Operands:
    """Return operands with the outputs of all units and blocks, and as many terms as inputs fit."""
    outputs = BLOCKS * p.units * p.unit.elements
    room, heads = p.unit.steps * PE_LANES, p.unit.pumps
    if mode == "linear":
        return real_operands.linear(
            14, "down_proj", outputs=outputs, inputs=room, tokens=heads, group=group_of(p)
        )
    if mode == "keys":
        whole = real_operands.queries_and_keys(0, 1, tokens=outputs, heads=heads)
        terms = min(room, 64)
    else:
        whole = real_operands.probabilities_and_values(29, 0, tokens=320, heads=heads)
        terms = min(room, PE_LANES * p.unit.elements)
    # Channels are repeated until there are enough of them.
    return Operands(
        mode=whole.mode,
        inputs=whole.inputs[:, -terms:],
        codes=np.resize(whole.codes[:, -terms:], (outputs, terms)),
        group_bits=np.resize(whole.group_bits[:, -terms:], (outputs, terms)),
    )


def group_of(p: PimChannelParameters) -> int:
    """Return the inputs of the shortest groups whose sums are scaled without stalls."""
    return PE_LANES * p.unit.elements


def groups_of(p: PimChannelParameters, operands: Operands) -> int:
    """Return the number of groups per output that the units scale; 1 for keys and values."""
    return operands.codes.shape[1] // group_of(p) if operands.mode is Mode.LINEAR else 1


def scales_of(p: PimChannelParameters) -> np.ndarray:
    """Return 8-bit scales of two alternating groups, shape (2, units, elements)."""
    outputs = p.units * p.unit.elements
    scales = real_operands.group_scales(
        14, "down_proj", outputs=outputs, inputs=2 * group_of(p), group=group_of(p)
    )
    return scales.T.reshape(2, p.units, p.unit.elements)


def totals_of(p: PimChannelParameters, operands: Operands, pumps: int) -> np.ndarray:
    """Return the results of reads of totals: the words of each part, by input and unit.

    The groups of all blocks belong to the same outputs; each block uses the same inputs.
    """
    groups = groups_of(p, operands)
    parts = np.split(np.arange(operands.codes.shape[1]), groups)
    shape = (pumps, BLOCKS, p.units, p.unit.elements)
    totals = np.zeros((pumps, p.units, p.unit.elements), np.int64)
    for number, part in enumerate(parts):
        sums = dot_products(
            np.array(operands.mode.value),
            operands.inputs[:pumps, np.newaxis, part],
            operands.codes[:, part],
            operands.group_bits[:, part],
        ).reshape(shape)
        for block in range(BLOCKS):
            totals += sums[:, block] * scales_of(p)[(block * groups + number) % 2]
    above, half = totals >> 32 & 0xFFFF, p.unit.elements // 2
    words = [above[..., 0::2] | above[..., 1::2] << 16, totals[..., :half], totals[..., half:]]
    return np.stack(words, axis=2).astype(np.uint32).view(np.int32)


def metadata_of(p: PimChannelParameters, operands: Operands, unit: int) -> np.ndarray:
    """Return a unit's metadata: a group for each block, or the tokens of all columns."""
    elements = p.unit.elements
    blocks = operands.group_bits.reshape(BLOCKS, p.units, elements, -1)[:, unit]
    if operands.mode is Mode.LINEAR:
        of_groups = blocks[:, :, :: blocks.shape[2] // groups_of(p, operands)]
        return pack_selects(np.resize(of_groups.swapaxes(1, 2), (8, elements)))
    if operands.mode is Mode.QK:
        return pack_zero_points(np.resize(blocks[:, :, 0], (4, elements)))
    return pack_zero_points(np.resize(blocks[0, 0], elements * PE_LANES))

"""Hidden states of P3-LLM as payloads, results of a step, and the columns that it multiplies."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.p3llm.p3llm import Singles
from hdl.p3llm.matrix_place import MatrixPlace
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.dot_product import PE_LANES
from testbenches.packing import pack, unpack


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerRun:
    """Results of a step through a layer.

    Members
    -------
    state : numpy.ndarray
        The state after the layer, float32 [width].
    cycles : numpy.ndarray | None
        Cycle of each slice of the state, if it was observed.
    """

    state: Singles
    cycles: NDArray[np.int64] | None = None


def state_words(p: P3llmParameters, states: Singles) -> NDArray[np.uint8]:
    """Return hidden states [requests, hidden_size] as bits of slices [slices, bits]."""
    slices = states.view(np.uint32).reshape(-1, p.lanes).astype(np.int64)
    count = p.hidden_size // p.lanes
    last = np.arange(len(slices)) % count == count - 1
    return pack(p.state_layout, {"values": slices, "last": last.astype(np.int64)})


def state_of(p: P3llmParameters, words: NDArray[np.uint8]) -> Singles:
    """Return the elements of the bits of slices."""
    return unpack(p.state_layout, words)["values"].reshape(-1).astype(np.uint32).view(np.float32)


def multiplied_columns(p: P3llmParameters, layers: int, position: int) -> list[int]:
    """Return the columns that all units multiply: of each layer, and of the LM head."""
    tokens = position + 1

    def columns(matrices: list[MatrixPlace]) -> int:
        return sum(one.columns for one in matrices)

    pairs = p.kv_heads * -(-p.group_size // 2)
    # Keys that the NPU rotates are read unit by unit.
    keys = 0 if p.pre_rope else -(-tokens // p.block) * p.head_size // PE_LANES
    layer = columns(list(p.matrices.values())) + pairs * (keys + -(-tokens // PE_LANES))
    return [layer] * layers + [columns(p.projection)]

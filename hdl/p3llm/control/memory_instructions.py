"""What the memory's side is told: a product of all units, columns for the NPU, an append."""

from amaranth.lib import data, enum

from hdl.p3llm.npu.places import Places
from hdl.p3llm.parameters import POSITION_BITS, P3llmParameters
from hdl.p3llm.pim.operand_decoder import Mode


class MemoryOperation(enum.Enum, shape=1):
    """What the banks are used for.

    Members
    -------
    PRODUCT
        A stream of columns: products, and FP16 numbers that the NPU reads.
    APPEND
        A token's key and value of a head are written.
    """

    PRODUCT = 0
    APPEND = 1


def memory_instruction(p: P3llmParameters) -> data.StructLayout:
    """Return the layout of an instruction.

    ``base`` and, of an append, ``values`` are positions in a layer. Of `Mode.LINEAR` the numbers of
    groups, tiles a unit and columns of both are said; of the others they follow from the cached
    tokens. ``scaled``: the NPU has the scales of these keys and values already. ``tail`` positions
    of FP16 numbers come behind the products. ``both``: two inputs meet a column; ``inputs`` (in
    words), ``sums`` (in slices) of each; ``columns`` is where FP16 numbers go, of keys those of
    keys and those of values. With `pre_rope` ``inputs`` of keys is where their columns go, and
    those of their zero points.
    """
    places = data.ArrayLayout(Places(p).address_bits, 2)
    return data.StructLayout(
        {
            "operation": MemoryOperation,
            "mode": Mode,
            "both": 1,
            "scaled": 1,
            "base": POSITION_BITS,
            "values": POSITION_BITS,
            "outers": 12,
            "rounds": 12,
            "steps": 8,
            "tail": 12,
            "inputs": places,
            "sums": places,
            "columns": places,
        }
    )

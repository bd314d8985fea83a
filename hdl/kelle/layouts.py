"""What the parts of the Kelle accelerator tell each other."""

from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from hdl.kelle.operations import Operation
from hdl.kelle.parameters import KelleParameters


def operation_layout(p: KelleParameters) -> data.StructLayout:
    """Return an entry of the step's program."""
    return data.StructLayout(
        {"operation": Operation, "sequence": p.sequence_bits, "head": p.head_bits}
    )


def member_layout(p: KelleParameters) -> data.StructLayout:
    """Return a row of the combined matrix: where its token's vector is, and its position.

    The stored vectors are those of all sequences, one after the other; behind them are those of the
    arriving tokens.
    """
    return data.StructLayout({"vector": bits_for(p.members - 1), "position": p.position_bits})


def store_layout(p: KelleParameters) -> data.StructLayout:
    """Return a token that became popular in the step before, and in which sequence."""
    return data.StructLayout(p.eviction.promoted_layout.members | {"sequence": p.sequence_bits})


def placement_record(p: KelleParameters) -> data.StructLayout:
    """Return what is kept of a head's placement: the slot, and how its victim was stored."""
    return data.StructLayout(
        {
            "slot": p.eviction.evictor.index_width,
            "recomputed": 1,
            "vector": p.eviction.vector_bits,
        }
    )


def slice_write(p: KelleParameters, depth: int) -> data.StructLayout:
    """Return a slice on its way into a memory."""
    return data.StructLayout(
        {"strobe": 1, "address": ceil_log2(max(depth, 2)), "values": p.slice_layout}
    )


def computed_layout(p: KelleParameters) -> data.StructLayout:
    """Return a slice of a key or value just computed; its vector is as in `member_layout`."""
    return data.StructLayout(
        {
            "strobe": 1,
            "vector": bits_for(p.members - 1),
            "head": p.head_bits,
            "part": bits_for(p.slices - 1),
            "values": p.slice_layout,
        }
    )


def row_write(p: KelleParameters) -> data.StructLayout:
    """Return a row of keys and a row of values on their way into the KV eDRAM."""
    row = p.memory.edram.row_layout
    return data.StructLayout({"address": p.memory.edram.address_bits, "keys": row, "values": row})

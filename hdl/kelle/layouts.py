"""Payloads that the parts of the Kelle accelerator exchange."""

from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters


def operation_layout(p: KelleParameters) -> data.StructLayout:
    """Return the layout of one instruction of the step's program."""
    return data.StructLayout(
        {"operation": Operation, "sequence": p.sequence_bits, "head": p.head_bits}
    )


def member_layout(p: KelleParameters) -> data.StructLayout:
    """Return the layout of a row of the combined matrix: index and position of its token's vector.

    The stored vectors of all sequences have the lowest indices, sequence by sequence; the vectors
    of the arriving tokens follow them.
    """
    return data.StructLayout({"vector": bits_for(p.members - 1), "position": p.position_bits})


def store_layout(p: KelleParameters) -> data.StructLayout:
    """Return the layout of a token that became popular in the previous step, with its sequence."""
    return data.StructLayout(p.eviction.promoted_layout.members | {"sequence": p.sequence_bits})


def placement_record(p: KelleParameters) -> data.StructLayout:
    """Return the layout of a head's recorded placement: slot, and how its victim was stored."""
    return data.StructLayout(
        {
            "slot": p.eviction.evictor.index_width,
            "recomputed": 1,
            "vector": p.eviction.vector_bits,
        }
    )


def slice_write(p: KelleParameters, depth: int) -> data.StructLayout:
    """Return the layout of a write of one slice: `address` and `values`, valid while `strobe`."""
    return data.StructLayout(
        {"strobe": 1, "address": ceil_log2(max(depth, 2)), "values": p.slice_layout}
    )


def computed_layout(p: KelleParameters) -> data.StructLayout:
    """Return the layout of a slice of a computed key or value; `vector` as in `member_layout`."""
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
    """Return the layout of a row of keys and a row of values to write into the KV eDRAM."""
    row = p.memory.edram.row_layout
    return data.StructLayout({"address": p.memory.edram.address_bits, "keys": row, "values": row})

"""What packer and unpacker agree upon: kinds of packets, and the fields of a packet.

A packet is a word of fixed size; fields begin at its least significant bit, and so does each ID.

=========  ======================================================================================
`FIXED`    IDs of one width, that of mode 0; no mode field (the paper's naive packing)
`MODES`    a mode field, then IDs of the width that the matrix's table has for the mode
`CLASSES`  headers of classes, one an ID, each followed by packets of offsets, see below
=========  ======================================================================================

With `CLASSES` an ID is the base of its class and an offset of as many bits as its class has. A
header's mode field says how many packets of offsets follow it; the rest are classes. Offsets are
one row of bits that goes on from packet to packet of offsets, which have no mode field. Behind each
header but the last, there are just as many of them as hold all offsets of the headers before it: so
the unpacker has classes at hand while the offsets of those before come in.
"""

from amaranth.lib import enum

MODE_BITS = 4
"""Of a mode field."""

MODES = 1 << MODE_BITS

LONGEST_ID = 16
"""Bits of an ID at most: what table entries can say, and 2**16 unique chunks."""

CLASS_BITS = (2, 3)
"""Bits of a class. With one alone, a header might need more packets of offsets than it can say."""

MOST_CLASSES = 1 << CLASS_BITS[-1]

PACKETS = (64, 128, 256, 512, 1024)
"""Sizes of a packet, in bits."""


class PacketKind(enum.Enum, shape=2):
    """How a matrix's IDs lie in its packets."""

    FIXED = 0
    MODES = 1
    CLASSES = 2


def ids_in(payload: int, width: int) -> int:
    """Return how many IDs of a width fill a payload; none of a width of 0, which is no mode."""
    return payload // width if width else 0

"""What packer and unpacker agree upon: kinds of packets, and the fields of a packet.

A packet is a word of fixed size; fields begin at its least significant bit, and so does each ID.

=========  ======================================================================================
`FIXED`    IDs of one width, that of mode 0; no mode field (the paper's naive packing)
`MODES`    a mode field, then IDs of the width that the matrix's table has for the mode
`CLASSES`  headers of classes, one an ID, each followed by packets of offsets, see below
=========  ======================================================================================

With `CLASSES` an ID is the base of its class and an offset of as many bits as its class has. A
header holds ``packet_bits // class_bits`` classes. Behind it come just as many packets of offsets
as are needed to hold all offsets of the headers so far: offsets are one row of bits that goes on
from packet to packet. Nothing says how many they are, so nothing can say it wrongly.
"""

from amaranth.lib import enum

MODE_BITS = 4
"""Of a mode field."""

MODES = 1 << MODE_BITS

LONGEST_ID = 16
"""Bits of an ID at most: what table entries can say, and 2**16 unique chunks."""

CLASS_BITS = 3
"""Bits of a class at most."""

PACKETS = (64, 128, 256, 512)
"""Sizes of a packet, in bits."""


class PacketKind(enum.Enum, shape=2):
    """How a matrix's IDs lie in its packets."""

    FIXED = 0
    MODES = 1
    CLASSES = 2


def ids_in(payload: int, width: int) -> int:
    """Return how many IDs of a width fill a payload; none of a width of 0, which is no mode."""
    return payload // width if width else 0

"""Packet format, which packer and unpacker share: kinds of packets and their fields.

A packet is a word of fixed size. Its fields start at the least significant bit, and each ID starts
at its least significant bit.

=========  ======================================================================================
`FIXED`    IDs of one width, that of mode 0; no mode field (the paper's naive packing)
`MODES`    a mode field, then IDs of the width that the matrix's table has for the mode
`CLASSES`  headers with one class per ID, each followed by packets of offsets
=========  ======================================================================================

With `CLASSES`, an ID is the sum of the base of its class and an offset, whose width its class
specifies. The mode field of a header is the number of packets of offsets that follow it; the rest
of the header is classes. The offsets form one sequence of bits across packets of offsets, which
have no mode field. Each header except the last is followed by exactly the packets that complete the
offsets of all earlier headers. So the unpacker already has the next classes while it reads the
offsets of earlier ones.
"""

from amaranth.lib import enum

MODE_BITS = 4
"""Bits of a mode field."""

MODES = 1 << MODE_BITS
"""Number of modes."""

LONGEST_ID = 16
"""Maximum bits of an ID, limited by table entries of 5 bits and 2**16 unique chunks."""

CLASS_BITS = (2, 3)
"""Bits of a class. With 1 bit, a header could need more packets of offsets than it can specify."""

MOST_CLASSES = 1 << CLASS_BITS[-1]
"""Maximum number of classes."""

PACKETS = (64, 128, 256, 512, 1024)
"""Sizes of a packet, in bits."""


class PacketKind(enum.Enum, shape=2):
    """Format of a matrix's packets."""

    FIXED = 0
    MODES = 1
    CLASSES = 2


def ids_in(payload: int, width: int) -> int:
    """Return the number of IDs of a width in a payload; 0 for width 0, an undefined mode."""
    return payload // width if width else 0

"""Packing with one class per ID, which is nearer to the entropy than one width per packet.

The paper does not have this level. Frequent IDs are low. A class of width w is a range of 2^w IDs.
An ID is encoded as its class, with a fixed number of bits, and its offset in the range of the
class. The widths are chosen for each matrix. `hdl/meadow/wilu/packet_format.py` defines the layout
of classes and offsets in packets.
"""

from functools import cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from golden.meadow.packing.chunks import Ids
from golden.meadow.packing.packets import (
    CorruptedPackets,
    Words,
    get_fields,
    put_fields,
    width_of,
)
from hdl.meadow.wilu.packet_format import MODE_BITS, MODES, ids_in

Table = tuple[int, ...]
"""Widths of the classes' offsets in bits; the class of the lowest IDs is first."""


@cache
def _tables(classes: int, longest: int) -> NDArray[np.int8]:
    """Return all non-decreasing tables of widths.

    Lower IDs are more frequent, so that a larger width for them never saves bits.
    """
    rows = combinations_with_replacement(range(longest + 1), classes)
    return np.array(list(rows), np.int8)


def best_table(counts: NDArray[np.int64], class_bits: int) -> tuple[Table, int]:
    """Return the widths with which the IDs take the fewest bits, and the number of bits.

    Parameters
    ----------
    counts : numpy.ndarray
        Occurrences of each ID.
    class_bits : int
        Width of a class number in bits.
    """
    unique, total = len(counts), int(counts.sum())
    below = np.concatenate([[0], np.cumsum(counts)])
    tables = _tables(1 << class_bits, width_of(unique))
    starts = np.zeros(len(tables), np.int64)
    covered = np.zeros(len(tables), np.int64)
    bits = np.full(len(tables), class_bits * total, np.int64)
    for number in range(1 << class_bits):
        starts = np.minimum(starts + (1 << tables[:, number].astype(np.int64)), unique)
        bits += tables[:, number] * (below[starts] - covered)
        covered = below[starts]
    bits[starts < unique] = np.iinfo(np.int64).max
    best = int(bits.argmin())
    return tuple(int(width) for width in tables[best]), int(bits[best])


def bases(table: Table) -> NDArray[np.int64]:
    """Return the first ID of each class."""
    sizes = 1 << np.array(table, np.int64)
    return np.cumsum(sizes) - sizes


def pack_classes(ids: Ids, table: Table, class_bits: int, packet_bits: int) -> Words:
    """Pack IDs by classes: headers, each followed by packets of offsets."""
    begins, widths = bases(table), np.array(table, np.int64)
    limits = (begins + (1 << widths))[:-1]
    unique = int(ids.max()) + 1
    class_of = np.searchsorted(limits, np.arange(unique), side="right").astype(np.uint8)
    # A class with the same range as its predecessor never occurs: no ID passes its limit.
    classes = class_of[ids]
    offsets = ids - begins.astype(np.uint32)[classes]
    ends = np.cumsum(widths[classes])

    each = ids_in(packet_bits - MODE_BITS, class_bits)
    headers = -(-len(ids) // each)
    last = np.minimum(each * np.arange(1, headers + 1), len(ids)) - 1
    # The offsets of a header follow the next header, so that classes always precede offsets.
    supplied = np.concatenate([[0], -(-ends[last] // packet_bits)])
    supplied = np.append(supplied[:-2], supplied[-1])
    # The offsets of the last two headers follow the last one; its field may be too small for their
    # number of packets.
    if headers > 1:
        supplied[-2] = max(supplied[-2], supplied[-1] - (MODES - 1))
    before = np.concatenate([[0], supplied[:-1]])
    positions = np.arange(headers) + before
    packets = np.zeros((headers + int(supplied[-1]), packet_bits // 64), np.uint64)
    padded = np.zeros(headers * each, np.uint32)
    padded[: len(ids)] = classes
    fields = np.zeros((headers, packet_bits // 64), np.uint64)
    fields[:, 0] = supplied - before
    put_fields(fields, padded.reshape(headers, each), MODE_BITS, class_bits)
    packets[positions] = fields
    offset_packets = np.ones(len(packets), bool)
    offset_packets[positions] = False
    words = _concatenated_bits(
        offsets, ends - widths[classes], int(supplied[-1]) * packet_bits // 64
    )
    packets[offset_packets] = words.reshape(-1, packet_bits // 64)
    return packets


def _concatenated_bits(values: Ids, starts: NDArray[np.int64], words: int) -> Words:
    """Return words of 64 bits with each value at its start bit; values do not overlap."""
    row = np.zeros(words + 1, np.uint64)
    word, shift = starts >> 6, (starts & 63).astype(np.uint64)
    wide = values.astype(np.uint64)
    # No two values share a bit, so that the sum equals the bitwise OR.
    np.add.at(row, word, wide << shift)
    over = np.flatnonzero(shift > 48)
    np.add.at(row, word[over] + 1, wide[over] >> (np.uint64(64) - shift[over]))
    return row[:words]


def unpack_classes(packets: Words, table: Table, class_bits: int, count: int) -> Ids:
    """Return the IDs of packets by classes.

    Raises
    ------
    CorruptedPackets
        If there are too few packets, or too many.
    """
    packet_bits = 64 * packets.shape[1]
    each = ids_in(packet_bits - MODE_BITS, class_bits)
    widths = np.array(table, np.int64)
    headers = -(-count // each)
    following = (packets[:, 0] & np.uint64(MODES - 1)).astype(np.int64)
    positions, position = np.zeros(headers, np.int64), 0
    for header in range(headers):
        if position >= len(packets):
            raise CorruptedPackets(f"packets must hold {count} IDs; they end before")
        positions[header] = position
        position += 1 + following[position]
    if position != len(packets):
        raise CorruptedPackets(f"{count} IDs must fill {position} packets, not {len(packets)}")
    fields = get_fields(packets[positions], MODE_BITS, class_bits, each)
    classes = fields.reshape(-1)[:count]
    offset_packets = np.ones(len(packets), bool)
    offset_packets[positions] = False
    row = np.concatenate([packets[offset_packets].reshape(-1), np.zeros(1, np.uint64)])
    ends = np.cumsum(widths[classes])
    needed = -(-ends[np.minimum(each * np.arange(1, headers + 1), count) - 1] // packet_bits)
    present = np.cumsum(following[positions])
    if (present[1:] < needed[:-1]).any() or present[-1] != needed[-1]:
        raise CorruptedPackets(
            f"offsets must be {needed[-1]} packets, each before its use, not {present[-1]}"
        )
    starts = ends - widths[classes]
    word, shift = starts >> 6, (starts & 63).astype(np.uint64)
    low = row[word] >> shift
    # A shift by 64 is undefined; two shifts replace it.
    high = row[np.minimum(word + 1, len(row) - 1)] << (np.uint64(63) - shift) << np.uint64(1)
    masks = (np.uint64(1) << widths.astype(np.uint64)) - np.uint64(1)
    offsets = (low | high) & masks[classes]
    return (bases(table)[classes] + offsets.astype(np.int64)).astype(np.uint32)

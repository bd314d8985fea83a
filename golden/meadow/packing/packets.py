"""Packets of IDs of one width each: naive packing and packet-specific precision (Section 5.2)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from golden.meadow.packing.chunks import Ids
from hdl.meadow.wilu.packet_format import LONGEST_ID, MODE_BITS, MODES, ids_in
from hdl.parameters import require

Words = NDArray[np.uint64]
"""Packets, uint64 [packets, packet bits / 64], with the low word first."""


class CorruptedPackets(ValueError):
    """Packets that do not follow the format."""


def bits_of(ids: Ids) -> NDArray[np.uint8]:
    """Return the number of bits that each ID needs, at least 1."""
    lengths = np.array([max(i.bit_length(), 1) for i in range(1 << 8)], np.uint8)
    return np.where(ids >> 8, lengths[ids >> 8] + np.uint8(8), lengths[ids & 0xFF])


def width_of(unique: int) -> int:
    """Return the width of IDs below `unique` in bits, at least 1."""
    return max((unique - 1).bit_length(), 1)


def pack_fixed(ids: Ids, width: int, packet_bits: int) -> Words:
    """Pack IDs of one width, without mode fields."""
    count = ids_in(packet_bits, width)
    packets = np.zeros((-(-len(ids) // count), packet_bits // 64), np.uint64)
    padded = np.zeros(len(packets) * count, np.uint32)
    padded[: len(ids)] = ids
    put_fields(packets, padded.reshape(-1, count), 0, width)
    return packets


def unpack_fixed(packets: Words, width: int, count: int) -> Ids:
    """Return the IDs of packets of one width.

    Raises
    ------
    CorruptedPackets
        If there are too few packets, or too many.
    """
    each = ids_in(64 * packets.shape[1], width)
    if len(packets) != -(-count // each):
        raise CorruptedPackets(
            f"{count} IDs must fill {-(-count // each)} packets, not {len(packets)}"
        )
    return get_fields(packets, 0, width, each).reshape(-1)[:count]


def pack_modes(ids: Ids, widths: Sequence[int], packet_bits: int) -> Words:
    """Pack IDs, each packet with the smallest width that fits the IDs that fill it.

    The width determines the number of IDs in a packet, so that the decoder needs no other field;
    only the last packet of a matrix may hold fewer.
    """
    payload = packet_bits - MODE_BITS
    modes = _first_fits(bits_of(ids), widths, payload)
    steps = np.array([ids_in(payload, width) for width in widths], np.int64)
    # A packet begins where its predecessor ends, so that the starts form a chain.
    following = (np.arange(len(ids)) + steps[modes]).astype(np.int64)
    starts, start, jump = [], 0, memoryview(following.tobytes()).cast("q")
    while start < len(ids):
        starts.append(start)
        start = jump[start]
    begins = np.array(starts, np.int64)
    chosen = modes[begins]
    packets = np.zeros((len(begins), packet_bits // 64), np.uint64)
    packets[:, 0] = chosen
    padded = np.concatenate([ids, np.zeros(payload, np.uint32)])
    for mode, width in enumerate(widths):
        members = np.flatnonzero(chosen == mode)
        if len(members):
            indices = begins[members, np.newaxis] + np.arange(steps[mode])
            filled = packets[members]
            put_fields(filled, np.where(indices < len(ids), padded[indices], 0), MODE_BITS, width)
            packets[members] = filled
    return packets


def _first_fits(
    lengths: NDArray[np.uint8], widths: Sequence[int], payload: int
) -> NDArray[np.uint8]:
    """Return for each ID the mode with the smallest width of a packet that begins with this ID."""
    size = len(lengths)
    longest = {1: np.concatenate([lengths, np.zeros(payload, np.uint8)])}
    reach = 1
    while 2 * reach <= payload:
        # The maximum of 2n lengths is that of the first n and of the n that follow.
        before = longest[reach]
        longest[2 * reach] = np.maximum(
            before, np.concatenate([before[reach:], before[:reach] * 0])
        )
        reach *= 2
    modes = np.full(size, 0xFF, np.uint8)
    for mode in sorted(range(len(widths)), key=lambda mode: -widths[mode]):
        if (count := ids_in(payload, widths[mode])) == 0:
            continue
        span = 1 << count.bit_length() - 1
        half = longest[span]
        most = np.maximum(half[:size], half[count - span : count - span + size])
        modes[most <= widths[mode]] = mode
    require(bool((modes != 0xFF).all()), "widths must reach the longest ID", tuple(widths))
    return modes


def unpack_modes(packets: Words, widths: Sequence[int], count: int) -> Ids:
    """Return the IDs of packets with one mode per packet.

    Raises
    ------
    CorruptedPackets
        If a mode has no width, or the packets hold too few or too many IDs.
    """
    payload = 64 * packets.shape[1] - MODE_BITS
    table = np.array([ids_in(payload, width) for width in [*widths, *([0] * MODES)][:MODES]])
    modes = (packets[:, 0] & np.uint64(MODES - 1)).astype(np.int64)
    if (bad := np.flatnonzero(table[modes] == 0)).size:
        raise CorruptedPackets(f"packet {bad[0]} has mode {modes[bad[0]]}, which has no width")
    ends = np.cumsum(table[modes])
    if not len(ends) or ends[-1] < count or ends[-1] - table[modes[-1]] >= count:
        held = int(ends[-1]) if len(ends) else 0
        raise CorruptedPackets(f"packets must hold {count} IDs, not {held}")
    ids = np.zeros(ends[-1], np.uint32)
    begins = ends - table[modes]
    for mode, width in enumerate(widths):
        members = np.flatnonzero(modes == mode)
        fields = get_fields(packets[members], MODE_BITS, width, int(table[mode]))
        ids[begins[members, np.newaxis] + np.arange(int(table[mode]))] = fields
    return ids[:count]


def mode_widths(unique: int) -> tuple[int, ...]:
    """Return the table of widths by mode: one mode per width that the IDs can have."""
    return tuple(range(1, width_of(unique) + 1))


def put_fields(packets: Words, fields: Ids, low: int, width: int) -> None:
    """Write fields [packets, fields] of one width to zero bits, from bit `low` on."""
    for number in range(fields.shape[1]):
        word, shift = divmod(low + number * width, 64)
        value = fields[:, number].astype(np.uint64)
        packets[:, word] |= value << np.uint64(shift)
        if shift + width > 64:
            packets[:, word + 1] |= value >> np.uint64(64 - shift)


def get_fields(packets: Words, low: int, width: int, count: int) -> Ids:
    """Return `count` fields per packet: the inverse of `put_fields`."""
    assert 0 < width <= LONGEST_ID
    mask = np.uint64((1 << width) - 1)
    fields = np.empty((len(packets), count), np.uint32)
    for number in range(count):
        word, shift = divmod(low + number * width, 64)
        value = packets[:, word] >> np.uint64(shift)
        if shift + width > 64:
            value = value | packets[:, word + 1] << np.uint64(64 - shift)
        fields[:, number] = value & mask
    return fields

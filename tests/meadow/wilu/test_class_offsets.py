"""IDs from classes and offsets of any widths, held against the bits of the packets."""

from typing import Any

import numpy as np
import pytest

from hdl.meadow.wilu.class_offsets import ClassOffsets
from hdl.meadow.wilu.packet_format import MOST_CLASSES
from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from testbenches.packing import pack, to_integers
from testbenches.stream_trial import check_streams

P = UnpackerParameters(lanes=3, packet_bits=64, id_bits=9)


@pytest.mark.parametrize("last", range(1, P.lanes + 1))
def test_ids_are_bases_plus_offsets(last: int) -> None:
    """The last group has 1 to all lanes; lanes without an ID take no bits of the offsets."""
    rng = np.random.default_rng(last)
    groups = 40
    count = (groups - 1) * P.lanes + last
    # The first class has an offset too, and the class of an empty lane is the first.
    widths = rng.integers(0, P.id_bits, MOST_CLASSES)
    widths[0] = P.id_bits
    bases = rng.integers(0, (1 << P.id_bits) - (1 << widths) + 1)
    classes = np.zeros(groups * P.lanes, np.int64)
    classes[:count] = rng.integers(0, MOST_CLASSES, count)
    offsets = [int(rng.integers(0, 1 << widths[number])) for number in classes[:count]]
    ids = np.zeros_like(classes)
    ids[:count] = bases[classes[:count]] + offsets
    bits = "".join(
        # The lowest bit of an offset is the first in a packet.
        f"{offset:0{widths[number]}b}"[::-1] if widths[number] else ""
        for offset, number in zip(offsets, classes, strict=False)
    )
    # Bits after the last offset belong to no ID.
    bits += "1" * (-len(bits) % P.packet_bits)
    starts = range(0, len(bits), P.packet_bits)
    packets = [int(bits[at : at + P.packet_bits][::-1], 2) for at in starts]
    counts = np.full(groups, P.lanes)
    counts[-1] = last
    ends = np.arange(groups) == groups - 1
    unit = ClassOffsets(parameters=P)
    table = to_integers(pack(unit.widths_layout, widths[np.newaxis]))[0]
    first = to_integers(pack(unit.bases_layout, bases[np.newaxis]))[0]

    def cycle(ctx: Any, _received: Any) -> None:
        ctx.set(unit.active, 1)
        ctx.set(unit.widths.as_value(), table)
        ctx.set(unit.bases.as_value(), first)
        assert not ctx.get(unit.left_over)

    def payloads(values: Any) -> list[int]:
        fields = {"ids": values.reshape(groups, P.lanes), "count": counts, "last": ends}
        return to_integers(pack(P.group_layout, fields))

    check_streams(
        unit,
        {"classes": payloads(classes), "offsets": packets},
        {"groups": payloads(ids)},
        cycle=cycle,
    )

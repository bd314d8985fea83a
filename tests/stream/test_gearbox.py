"""The gearbox repacks packets, loses nothing, and keeps its narrower side busy."""

import random

import pytest

from hdl.stream.gearbox import Gearbox
from testbenches.stream_trial import check_streams, run_streams

BITS = 5
RATIOS = [(1, 1), (1, 4), (4, 1), (2, 3), (3, 2), (4, 6), (6, 4), (5, 7), (7, 5), (8, 8)]


def packed(items: list[int], width: int, *, last: bool) -> int:
    """Return a transfer whose unused items are ones: their values are undefined."""
    lanes = items + [(1 << BITS) - 1] * (width - len(items))
    words = sum(item << BITS * place for place, item in enumerate(lanes))
    count = len(items) if last else 0
    return words | count << BITS * width | last << BITS * width + width.bit_length()


def transfers(packet: list[int], width: int, *, late: bool = False) -> list[list[int]]:
    """Cut a packet into transfers; with `late`, its end is a separate empty transfer."""
    parts = [packet[start : start + width] for start in range(0, len(packet), width)]
    return [*parts, []] if late or not parts else parts


def unpacked(word: int, width: int) -> tuple[list[int], int]:
    """Return the valid items of a transfer, and whether it is the last."""
    lanes = [word >> BITS * place & (1 << BITS) - 1 for place in range(width)]
    count = word >> BITS * width & (1 << width.bit_length()) - 1
    return lanes[:count], word >> BITS * width + width.bit_length()


@pytest.mark.parametrize(("items_in", "items_out"), RATIOS)
@pytest.mark.parametrize("seed", range(6))
def test_packets_are_repacked(items_in: int, items_out: int, seed: int) -> None:
    rng = random.Random(seed)
    sent, expected = [], []
    for _ in range(20):
        packet = [rng.randrange(1 << BITS) for _ in range(rng.choice([0, 1, 3, 12, 24, 31]))]
        whole = len(packet) % items_in == 0
        parts = transfers(packet, items_in, late=whole and rng.random() < 0.5)
        sent += [packed(part, items_in, last=part is parts[-1]) for part in parts]
        expected.append(packet)
    pauses = ["none", "random", "bursty", "adversarial"][seed % 4]
    enough = sum(len(transfers(packet, items_out)) for packet in expected)
    given = run_streams(
        Gearbox(shape=BITS, items_in=items_in, items_out=items_out),
        {"source": sent},
        {"sink": enough},
        seed=seed,
        pauses=pauses,
    )["sink"]
    packets: list[list[int]] = [[]]
    for word in given:
        items, last = unpacked(word, items_out)
        assert last or len(items) == items_out
        packets[-1] += items
        if last:
            packets.append([])
    assert packets == [*expected, []]


def test_repacks_full_transfers_after_reset() -> None:
    """With full transfers only, the expected words are known exactly."""
    items = list(range(24))
    wide = transfers(items, 6)
    sent = [packed(part, 6, last=part is wide[-1]) for part in wide]
    given = [
        packed(items[start : start + 2], 2, last=start == 22) | (2 << 2 * BITS)
        for start in range(0, 24, 2)
    ]
    check_streams(Gearbox(shape=BITS, items_in=6, items_out=2), {"source": sent}, {"sink": given})


@pytest.mark.parametrize(("items_in", "items_out"), RATIOS)
def test_narrower_side_never_pauses(items_in: int, items_out: int) -> None:
    """Three packets whose length fills both sides lose no cycle, also between packets."""
    length = 2 * items_in * items_out
    sent = []
    for _ in range(3):
        parts = transfers([7] * length, items_in)
        sent += [packed(part, items_in, last=part is parts[-1]) for part in parts]
    cycles = 0

    def count(ctx: object) -> None:
        nonlocal cycles
        cycles += 1

    unit = Gearbox(shape=BITS, items_in=items_in, items_out=items_out)
    enough = 3 * length // items_out
    run_streams(unit, {"source": sent}, {"sink": enough}, seed=0, pauses="none", cycle=count)
    fill = -(-items_out // items_in)
    drain = -(-items_in // items_out) - 1
    assert cycles - 19 <= 3 * length // min(items_in, items_out) + fill + drain


def test_rejects_widths_out_of_range() -> None:
    with pytest.raises(ValueError, match="items_in must be an integer from 1 to 256, not 0"):
        Gearbox(shape=8, items_in=0, items_out=1)
    with pytest.raises(ValueError, match="items_out must be an integer from 1 to 256, not 300"):
        Gearbox(shape=8, items_in=1, items_out=300)

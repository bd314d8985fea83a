"""The weight memory: order of the beats with any stalls, and its capacity."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.kelle.parameters import KelleParameters
from hdl.kelle.weight_memory import WeightMemory

TINY: KelleParameters = entry_named("kelle").parameters("tiny_memory")
PAPER: KelleParameters = entry_named("kelle").parameters("paper")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight_memory": 1}, "weight_memory must be 0, or 2 or more, not 1"),
        (
            {"weight_memory": 64, "channel_bytes": 256},
            "channel_bytes must be at most beat_bytes = 128, and beat_bytes at most 256, not 256",
        ),
        ({"channel_bytes": 48}, "channel_bytes must be a power of two between 1 and 256, not 48"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        replace(PAPER, **change)
    assert message in str(error.value)


def test_the_published_memory_holds_two_megabytes() -> None:
    p = replace(PAPER, weight_memory=16384)
    assert p.weight_memory * p.beat_bytes == 2 << 20
    assert p.channel_layout.size == 8 * 64


@pytest.mark.parametrize(
    ("channel_bytes", "weight_bits", "depth"), [(4, 8, 5), (8, 8, 2), (1, 8, 48), (4, 4, 7)]
)
@pytest.mark.parametrize(("gives", "takes"), [(0.9, 0.3), (0.3, 0.9), (0.6, 0.6), (1.0, 1.0)])
def test_beats_are_the_words_in_their_order(
    channel_bytes: int, weight_bits: int, depth: int, gives: float, takes: float
) -> None:
    bands = 2 if weight_bits == 8 else 1
    p = replace(
        TINY,
        channel_bytes=channel_bytes,
        weight_bits=weight_bits,
        bands=bands,
        weight_memory=depth,
    )
    unit, rng = WeightMemory(parameters=p), np.random.default_rng(depth)
    beats = 60
    byte_values = rng.integers(0, 256, (beats, p.beat_bytes))
    words = byte_values.astype(np.uint8).reshape(-1, channel_bytes)
    payloads = [int.from_bytes(word.tobytes(), "little") for word in words]
    got: list[int] = []
    held = [0]

    async def bench(context: Any) -> None:
        given, offers = 0, False
        # Nothing is read at first: the memory fills, and then is not ready.
        for _cycle in range(100_000):
            if len(got) == beats:
                break
            offers = offers or (given < len(payloads) and rng.random() < gives)
            full = given == len(payloads) or given * channel_bytes >= depth * p.beat_bytes
            context.set(unit.words.valid, offers)
            if offers:
                context.set(unit.words.payload, p.channel_layout.from_bits(payloads[given]))
            context.set(unit.beats.ready, (full or got != []) and rng.random() < takes)
            if context.get(unit.beats.valid) and context.get(unit.beats.ready):
                got.append(context.get(unit.beats.payload.as_value()))
            if offers and context.get(unit.words.ready):
                given, offers = given + 1, False
            held[0] = max(held[0], given * channel_bytes // p.beat_bytes - len(got))
            await context.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert got == [
        int.from_bytes(beat.tobytes(), "little") for beat in byte_values.astype(np.uint8)
    ]
    # The stated number of beats, and those in the registers at the outputs.
    assert depth <= held[0] <= depth + 2

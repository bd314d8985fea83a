"""Running argmax: ties resolve to the lowest index, with idle cycles and clears."""

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from hdl.arith.running_argmax import RunningArgmax


@pytest.mark.parametrize("kind", ["any", "equal", "negative", "least"])
@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_ties_resolve_to_lowest_index(lanes: int, kind: str) -> None:
    rng = np.random.default_rng(lanes)
    unit = RunningArgmax(lanes=lanes, width=9, number_bits=7)
    low, high = {"any": (-256, 256), "equal": (-2, 1), "negative": (-256, -250)}.get(
        kind, (-256, -255)
    )
    found: list[tuple[int, int]] = []
    wanted: list[tuple[int, int]] = []

    async def bench(context: Any) -> None:
        for _ in range(12):
            groups = rng.integers(low, high, (rng.integers(1, 128 // lanes + 1), lanes))
            for group in groups:
                context.set(unit.values, group.tolist())
                context.set(unit.strobe, 1)
                await context.tick()
                context.set(unit.strobe, 0)
                # Values without a strobe are larger than all others.
                context.set(unit.values, [255] * lanes)
                for _gap in range(rng.integers(0, 3)):
                    await context.tick()
            for _level in range(lanes.bit_length()):
                await context.tick()
            found.append((context.get(unit.number), context.get(unit.largest)))
            values = groups.reshape(-1)
            wanted.append((int(values.argmax()), int(values.max())))
            context.set(unit.clear, 1)
            await context.tick()
            context.set(unit.clear, 0)
            assert context.get(unit.number) == 0

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == wanted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 3}, "lanes must be a power of two between 1 and 64, not 3"),
        ({"width": 1}, "width must be an integer from 2 to 64, not 1"),
        ({"lanes": 8, "number_bits": 2}, "number_bits must be an integer from 3 to 32, not 2"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunningArgmax(**{"lanes": 2, "width": 8, "number_bits": 8} | change)

"""Each lane of a skew buffer is delayed by its index times the step."""

import random
from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.stream.skew_buffer import SkewBuffer


@pytest.mark.parametrize(("lanes", "step"), [(2, 1), (4, 2), (3, 3)])
def test_lane_n_is_delayed_by_n_steps(lanes: int, step: int) -> None:
    unit = SkewBuffer(shape=5, lanes=lanes, step=step)
    rng = random.Random(lanes)
    vectors = [[rng.randrange(32) for _ in range(lanes)] for _ in range(40)]

    async def bench(ctx: Any) -> None:
        for cycle, vector in enumerate(vectors):
            ctx.set(unit.aligned, vector)
            await ctx.delay(1e-10)
            for lane in range(lanes):
                if (sent := cycle - lane * step) >= 0:
                    assert ctx.get(unit.skewed[lane]) == vectors[sent][lane]
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lanes": 65}, "lanes must be an integer from 1 to 64, not 65"),
        ({"step": 0}, "step must be an integer from 1 to 64, not 0"),
    ],
)
def test_rejects_numbers_out_of_range(changed: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SkewBuffer(**{"shape": 8, "lanes": 4} | changed)

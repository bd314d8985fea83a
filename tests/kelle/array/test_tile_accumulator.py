"""The accumulators' model and unit, with any order of vectors, repeated vectors included."""

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.kelle.array.tile_accumulator import TileAccumulatorModel
from hdl.kelle.array.tile_accumulator import TileAccumulator, TileAccumulatorParameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sum_width": 33}, "sum_width must be an integer from 8 to 32, not 33"),
        ({"width": 49}, "width must be an integer from 16 to 48, not 49"),
        ({"width": 36}, r"width must be at least sum_width \+ 8 = 37, not 36"),
        ({"vectors": 1}, "vectors must be an integer from 2 to 1024, not 1"),
        ({"bias_bits": 49}, "bias_bits must be an integer from 0 to 48, not 49"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TileAccumulatorParameters(**change)


def test_model_adds_tiles_and_bytes() -> None:
    model = TileAccumulatorModel(TileAccumulatorParameters(), lanes=2)
    model.add(np.array([3, -5]), index=1, first=True, high=True)
    model.add(np.array([9, 9]), index=0, first=True, high=False)
    total = model.add(np.array([1, 2]), index=1, first=False, high=False)
    assert total.tolist() == [3 * 256 + 1, -5 * 256 + 2]


def test_width_holds_2048_of_the_longest_tiles() -> None:
    p = TileAccumulatorParameters()
    assert 2048 * 256 * (1 << p.sum_width - 1) <= 1 << p.width - 1


@pytest.mark.parametrize(("vectors", "bias_bits"), [(2, 0), (3, 32), (16, 0)])
def test_unit_equals_its_model(vectors: int, bias_bits: int) -> None:
    """Bursts of one vector, of two alternating vectors, and of all; bubbles; extreme sums."""
    p = TileAccumulatorParameters(vectors=vectors, bias_bits=bias_bits)
    unit, model = TileAccumulator(parameters=p), TileAccumulatorModel(p, 1)
    rng = np.random.default_rng(vectors)
    bound = 1 << p.sum_width - 1
    steps: list[tuple[int, int, int, int, int]] = []
    started: set[int] = set()
    while len(steps) < 3000:
        chosen = rng.integers(0, vectors, rng.integers(1, 4))
        for number in range(rng.integers(1, 9)):
            index = int(chosen[number % len(chosen)])
            valid = int(rng.random() < 0.8)
            first = int(index not in started or rng.random() < 0.1)
            if valid:
                started.add(index)
            value = int(rng.choice(np.array([-bound, bound - 1, rng.integers(-bound, bound)])))
            steps.append((index, valid, first, int(rng.integers(2)), value))

    async def bench(context: Any) -> None:
        for now, following in zip(steps, [*steps[1:], steps[0]], strict=True):
            index, valid, first, high, value = now
            context.set(unit.next_index, following[0])
            context.set(unit.step, {"first": first, "high": high, "index": index})
            context.set(unit.sum, value)
            context.set(unit.valid, valid)
            bias = int(rng.integers(-(1 << 31), 1 << 31)) if bias_bits else 0
            if bias_bits:
                context.set(unit.bias, bias)
            await context.tick()
            if valid:
                total = model.add(
                    np.array([value]), index=index, first=bool(first), high=bool(high), bias=bias
                )
                assert context.get(unit.total) == total[0]

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()

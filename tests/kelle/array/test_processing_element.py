"""The processing element, compared with integer arithmetic, in every mode and at range limits."""

import random
from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.kelle.array.processing_element import ProcessingElement
from hdl.target import Target, writing_for


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"moving_width": 3, "sum_width": 29}, "moving_width must be an integer from 4 to 16"),
        ({"moving_width": 16, "sum_width": 23}, "sum_width must be an integer from 24 to 32"),
    ],
)
def test_rejects_illegal_widths(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProcessingElement(**arguments)


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize(("moving_width", "sum_width"), [(16, 29), (9, 22), (8, 21), (4, 12)])
def test_multiply_add(moving_width: int, sum_width: int, target: Target) -> None:
    """A new operand, sum and mode in every cycle; a new weight of either kind in some cycles."""
    element = ProcessingElement(moving_width=moving_width, sum_width=sum_width)
    rng = random.Random(moving_width)
    bound, sum_bound = 1 << moving_width - 1, 1 << sum_width - 1

    def draw(limit: int) -> int:
        return rng.choice([-limit, limit - 1, 0, -1, 1, rng.randrange(-limit, limit)])

    def wrapped(total: int) -> int:
        return (total + sum_bound) % (2 * sum_bound) - sum_bound

    async def bench(context: Any) -> None:
        shadow = weight = product = taken = 0
        checked = 0
        for cycle in range(4000):
            left, top, sum_left, sum_top = (
                draw(bound),
                draw(bound),
                draw(sum_bound),
                draw(sum_bound),
            )
            transposed, adds_left = rng.randrange(2), rng.randrange(2)
            load, byte = rng.randrange(2), rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            swap, unsigned = cycle == 1 or rng.randrange(4) == 0, rng.randrange(2)
            load |= cycle == 0
            for port, value in (
                (element.moving_left, left),
                (element.moving_top, top),
                (element.sum_left, sum_left),
                (element.sum_top, sum_top),
                (element.transposed, transposed),
                (element.sum_transposed, adds_left),
                (element.load_in, load),
                (element.weight, byte),
                (element.swap, swap),
                (element.unsigned_weight, unsigned),
            ):
                context.set(port, value)
            await context.tick()
            total = wrapped(product + (sum_left if adds_left else sum_top))
            product = taken * weight
            taken = top if transposed else left
            if swap:
                weight = shadow if unsigned or shadow < 128 else shadow - 256
            shadow = byte if load else shadow
            assert context.get(element.moving_out) == taken
            assert context.get(element.load_out) == load
            if cycle > 3:
                assert context.get(element.sum_out) == total
                checked += 1
        assert checked > 3900

    with writing_for(target):
        simulator = Simulator(element)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()

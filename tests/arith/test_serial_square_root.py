"""Serial square roots and products: all small operands, large ones, stalls."""

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arith.serial_square_root import square_root
from hdl.arith.serial_multiplier import SerialMultiplier
from hdl.arith.serial_square_root import SerialSquareRoot


def run_stream(
    unit: Any, source: Any, operands: list[Any], *, offer: float, take: float
) -> tuple[list[int], int]:
    """Send operands with random stalls; return the results and the number of cycles."""
    random = np.random.default_rng(9)
    answers: list[int] = []
    cycles = 0

    async def drive(context: Any) -> None:
        for operand in operands:
            while random.random() >= offer:
                await context.tick()
            context.set(source.payload, operand)
            context.set(source.valid, 1)
            await context.tick().until(source.ready)
            context.set(source.valid, 0)
            # An invalid payload must not be read.
            context.set(source.payload, {"a": 0, "b": 0} if isinstance(operand, dict) else 0)

    async def receive(context: Any) -> None:
        nonlocal cycles
        held = None
        while len(answers) < len(operands):
            ready = random.random() < take
            context.set(unit.result.ready, ready)
            _, _, valid, answer = await context.tick().sample(
                unit.result.valid, unit.result.payload
            )
            cycles += 1
            assert held is None or (valid and answer == held)
            held = answer if valid and not ready else None
            if valid and ready:
                answers.append(answer)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.add_testbench(receive)
    simulator.run()
    return answers, cycles


STALLS = pytest.mark.parametrize(("offer", "take"), [(1, 1), (0.2, 1), (1, 0.2), (0.5, 0.5)])


@pytest.mark.parametrize("width", [2, 7, 8])
def test_every_small_root(width: int) -> None:
    unit = SerialSquareRoot(width=width)
    operands = np.arange(1 << width)
    roots, cycles = run_stream(unit, unit.operand, operands.tolist(), offer=1, take=1)
    assert roots == square_root(operands).tolist()
    # One root per (digits + 1) cycles, plus one cycle before the first is accepted.
    assert cycles == len(operands) * ((width + 1) // 2 + 1) + 1


@STALLS
def test_large_roots(offer: float, take: float) -> None:
    random = np.random.default_rng(1)
    roots = random.integers(0, 1 << 21, 20) >> random.integers(0, 21, 20)
    operands = np.concatenate([roots**2, np.maximum(roots**2 - 1, 0), [(1 << 42) - 1]])
    unit = SerialSquareRoot(width=42)
    answers, _ = run_stream(unit, unit.operand, operands.tolist(), offer=offer, take=take)
    assert answers == square_root(operands).tolist()


def test_model_is_the_floor() -> None:
    operands = np.array([0, 1, 3, 4, 8, 9, (1 << 62) - 1, 1 << 62, (1 << 63) - 1])
    roots = square_root(operands)
    for operand, root in zip(operands.tolist(), roots.tolist(), strict=True):
        assert root * root <= operand < (root + 1) * (root + 1)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(("a_width", "b_width"), [(41, 13), (3, 9), (1, 1)])
@STALLS
def test_products(a_width: int, b_width: int, overlap: bool, offer: float, take: float) -> None:
    random = np.random.default_rng(a_width)
    a = random.integers(0, 1 << a_width, 30) >> random.integers(0, a_width, 30)
    b = random.integers(0, 1 << b_width, 30)
    a[:2], b[:2] = (1 << a_width) - 1, ((1 << b_width) - 1, 0)
    unit = SerialMultiplier(a_width=a_width, b_width=b_width, overlap=overlap)
    operands = [{"a": int(x), "b": int(y)} for x, y in zip(a, b, strict=True)]
    products, cycles = run_stream(unit, unit.operands, operands, offer=offer, take=take)
    assert products == [int(x) * int(y) for x, y in zip(a, b, strict=True)]
    if offer == take == 1:
        idle = 1 if overlap else len(operands)
        assert cycles == len(operands) * (b_width + 1) + idle


def test_rejects_illegal_widths() -> None:
    with pytest.raises(ValueError, match="width must be an integer from 2 to 64, not 1"):
        SerialSquareRoot(width=1)
    with pytest.raises(ValueError, match="a_width must be an integer from 1 to 64, not 65"):
        SerialMultiplier(a_width=65, b_width=1)
    with pytest.raises(ValueError, match="b_width must be an integer from 1 to 64, not 0"):
        SerialMultiplier(a_width=1, b_width=0)

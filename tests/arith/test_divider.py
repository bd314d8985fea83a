"""Division: proof of the array, simulation of the iterative divider with stalls."""

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arith.divider import divide
from hdl.arith.divider import ContinuingDivider, IterativeDivider, PipelinedDivider
from testbenches.arith.equivalence import prove_equivalent
from testbenches.arith.step import run_steps


@pytest.mark.parametrize(("dividend", "divisor"), [(1, 1), (7, 4), (4, 7), (8, 8)])
def test_array_is_proved(dividend: int, divisor: int) -> None:
    """Compare with Verilog's division; division by zero is as documented."""
    prove_equivalent(
        PipelinedDivider(dividend_width=dividend, divisor_width=divisor),
        f"""
        module specification(
          input [{dividend - 1}:0] dividend, input [{divisor - 1}:0] divisor,
          output [{dividend - 1}:0] quotient, output [{divisor - 1}:0] remainder
        );
          wire [{divisor - 1}:0] safe = divisor == 0 ? 1 : divisor;
          assign quotient = divisor == 0 ? {{{dividend}{{1'b1}}}} : dividend / safe;
          assign remainder = divisor == 0 ? dividend : dividend % safe;
        endmodule
        """,
    )


def operand_sets(dividend_width: int, divisor_width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random operands of all magnitudes, including zeros and limits."""
    random = np.random.default_rng(dividend_width)
    dividend = random.integers(0, 1 << dividend_width, 60) >> random.integers(0, dividend_width, 60)
    divisor = random.integers(0, 1 << divisor_width, 60) >> random.integers(0, divisor_width, 60)
    dividend[:3], divisor[:3] = (1 << dividend_width) - 1, (0, 1, (1 << divisor_width) - 1)
    return dividend, divisor


@pytest.mark.parametrize(("stages", "enable"), [(1, False), (5, True), (40, False)])
def test_array_is_pipelined(stages: int, enable: bool) -> None:
    """Test fewer and more stages than rows."""
    dividend, divisor = operand_sets(24, 16)
    unit = PipelinedDivider(dividend_width=24, divisor_width=16, stages=stages, enable=enable)
    results = run_steps(unit, {"dividend": dividend, "divisor": divisor})
    quotient, remainder = divide(dividend, divisor, dividend_width=24, divisor_width=16)
    assert np.array_equal(results["quotient"], quotient)
    assert np.array_equal(results["remainder"], remainder)


def run_stream(
    unit: IterativeDivider, operands: list[dict[str, int]], *, offer: float, take: float
) -> tuple[list[tuple[int, int]], int]:
    """Divide with random stalls; return the results and the number of cycles."""
    random = np.random.default_rng(9)
    answers: list[tuple[int, int]] = []
    cycles = 0

    async def source(context: Any) -> None:
        for values in operands:
            while random.random() >= offer:
                await context.tick()
            context.set(unit.operands.payload, values)
            context.set(unit.operands.valid, 1)
            await context.tick().until(unit.operands.ready)
            context.set(unit.operands.valid, 0)
            # An invalid payload must not be read.
            context.set(unit.operands.payload, dict.fromkeys(values, 0))

    async def sink(context: Any) -> None:
        nonlocal cycles
        held = None
        while len(answers) < len(operands):
            ready = random.random() < take
            context.set(unit.result.ready, ready)
            _, _, valid, payload = await context.tick().sample(
                unit.result.valid, unit.result.payload
            )
            cycles += 1
            if held is not None:
                assert valid and (payload.quotient, payload.remainder) == held
            held = (payload.quotient, payload.remainder) if valid else None
            if valid and ready:
                answers.append((payload.quotient, payload.remainder))
                held = None

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(source)
    simulator.add_testbench(sink)
    simulator.run()
    return answers, cycles


@pytest.mark.parametrize("digits", [1, 3, 12])
@pytest.mark.parametrize(("offer", "take"), [(1, 1), (0.2, 1), (1, 0.2), (0.5, 0.5)])
def test_iterative(digits: int, offer: float, take: float) -> None:
    """Results do not depend on stalls; a result is held until its transfer."""
    dividend, divisor = operand_sets(12, 9)
    unit = IterativeDivider(dividend_width=12, divisor_width=9, digits_per_cycle=digits)
    operands = [
        {"dividend": int(a), "divisor": int(b)} for a, b in zip(dividend, divisor, strict=True)
    ]
    answers, cycles = run_stream(unit, operands, offer=offer, take=take)
    quotient, remainder = divide(dividend, divisor, dividend_width=12, divisor_width=9)
    assert answers == list(zip(quotient.tolist(), remainder.tolist(), strict=True))
    if offer == take == 1:
        # One division per (12 / digits + 1) cycles, plus one cycle before the first is accepted.
        assert cycles == len(operands) * (12 // digits + 1) + 1


def test_digits_must_divide_the_width() -> None:
    with pytest.raises(
        ValueError, match=r"digits_per_cycle must divide dividend_width \(8\), not 3"
    ):
        IterativeDivider(dividend_width=8, divisor_width=8, digits_per_cycle=3)


def test_division_continues_from_a_remainder() -> None:
    """The remainder of the upper digits enters the division of the lower digits."""
    random = np.random.default_rng(4)
    unit = ContinuingDivider(dividend_width=7, divisor_width=9)
    operands = []
    for divisor in random.integers(1, 1 << 9, 60):
        remainder, dividend = random.integers(0, divisor), random.integers(0, 1 << 7)
        fields = {"dividend": dividend, "divisor": divisor, "remainder": remainder}
        operands.append({name: int(value) for name, value in fields.items()})
    answers, _cycles = run_stream(unit, operands, offer=0.5, take=0.5)
    whole = [(one["remainder"] << 7) + one["dividend"] for one in operands]
    assert answers == [divmod(a, one["divisor"]) for a, one in zip(whole, operands, strict=True)]

"""Test the special function unit: its parameters, its operators, and its model without work."""

import re
from typing import Any

import numpy as np
import pytest

from golden.veda.functions.special_function_unit import Work, special_functions
from hdl.catalog import entry_named
from hdl.emit import Emission
from hdl.veda.functions.special_function_unit import (
    SpecialFunctionUnit,
    SpecialFunctionUnitParameters,
)
from testbenches.veda.functions.tb_special_function_unit import NOTHING, random_work, together


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 0}, "lanes must be an integer from 1 to 16, not 0"),
        ({"width": 1}, "width must be an integer from 2 to 65536, not 1"),
        ({"scores": 1 << 15}, "scores must be an integer from 2 to 16384, not 32768"),
        ({"exp_stages": 1}, "exp_stages must be an integer from 2 to 7, not 1"),
        ({"step_stages": 5}, "step_stages must be an integer from 1 to 4, not 5"),
        ({"divide_digits": 14}, "divide_digits must be an integer from 0 to 13, not 14"),
        ({"vectors": 0}, "vectors must be an integer from 1 to 16, not 0"),
        ({"rms": "no"}, "rms must be one of False, True, not 'no'"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SpecialFunctionUnitParameters(**change)


@pytest.mark.parametrize("preset", ["tiny", "tiny_lanes", "smollm2", "paper"])
def test_the_functions_share_their_operators(preset: str) -> None:
    """One set for all functions; each lane has an exponential unit, all but one a multiplier."""
    p = entry_named("special_function_unit").parameters(preset)
    emission = Emission(top=SpecialFunctionUnit(parameters=p), name="counted")
    cells = {
        module.name: re.findall(r"^ *cell \\(\w+) ", module.rtlil, re.MULTILINE)
        for module in emission.modules
    }

    def count(kind: str, module: str = "counted") -> int:
        below = sum(count(kind, cell) for cell in cells[module] if cell in cells)
        return below + sum(cell.startswith(kind) for cell in cells[module])

    lanes = p.lanes
    # A shared exponential unit and a shared adder; both stems begin with the same letters.
    assert count("float_exp2") == lanes
    assert count("float_exp") == lanes + 1
    assert count("float_add") == 1
    assert count("float_multiply") == 1 + lanes
    assert count("float_divide") + count("serial_float_divide") == 1
    assert count("deviation_reciprocal") == 1
    assert count("exponential_sum") == lanes


def test_no_work_has_no_outputs() -> None:
    p = entry_named("special_function_unit").parameters("tiny_lanes")
    answers = special_functions(Work(**NOTHING), p)
    assert answers.probabilities.shape == (0, 2)
    assert not len(answers.normalised) and not len(answers.activated)
    assert not len(answers.rotated[0])


def test_lanes_are_independent() -> None:
    """Outputs of heads in lock-step equal those of each head alone."""
    lock_step = entry_named("special_function_unit").parameters("tiny_lanes")
    rng = np.random.default_rng(4)
    heads = random_work(rng, lock_step, 6).heads
    both = special_functions(Work(**{**NOTHING, "heads": heads}), lock_step).probabilities
    alone = SpecialFunctionUnitParameters(scores=24, heads=2, width=12)
    for lane in range(2):
        single = together([head[lane] for head in heads], 1)
        answers = special_functions(Work(**{**NOTHING, "heads": single}), alone)
        assert np.array_equal(answers.probabilities[:, 0], both[:, lane])

"""Check the packing of instructions, and that a program refuses values that do not fit."""

from typing import Any

import numpy as np
import pytest
from amaranth.lib import data

from hdl.catalog import entry_named
from hdl.meadow.control.program import Program
from hdl.meadow.instructions import Combine, Kind, Matrix, instruction_layout, matrix_layout, packed
from testbenches.packing import pack, to_integers

PARAMETERS = entry_named("meadow").parameters("tiny_opt")


def random_values(layout: data.Layout, rng: np.random.Generator) -> Any:
    """Return random values of all fields; an enumeration has value 0."""
    values: dict[Any, Any] = {}
    for name, field in layout:
        if isinstance(field.shape, data.Layout):
            values[name] = random_values(field.shape, rng)
        else:
            values[name] = (
                0 if isinstance(field.shape, type) else int(rng.integers(1 << field.width))
            )
    return list(values.values()) if isinstance(layout, data.ArrayLayout) else values


def as_rows(values: Any) -> Any:
    """Return values as `pack` takes them: one item per array."""
    if isinstance(values, dict):
        return {name: as_rows(value) for name, value in values.items()}
    return np.array([values])


@pytest.mark.parametrize("layout", [instruction_layout(PARAMETERS), matrix_layout(PARAMETERS)])
def test_packed_fields_are_those_of_the_testbench(layout: data.StructLayout) -> None:
    """The testbench packs arrays of bits; the program packs one integer."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        values = random_values(layout, rng)
        assert [packed(layout, values)] == to_integers(pack(layout, as_rows(values)))


def test_enumerations_are_packed_by_value() -> None:
    layout = instruction_layout(PARAMETERS)
    given = {"kind": Kind.GEMM, "matrix": Matrix.VALUES, "combine": Combine.COMPARE}
    numbers = {name: value.value for name, value in given.items()}
    assert packed(layout, given) == packed(layout, numbers)
    assert packed(layout, {}) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lift": 16}, "lift must have 4 bits, not the value 16"),
        ({"words": -1}, "words must have 4 bits, not the value -1"),
        ({"wrods": 1}, r"fields must be among .*, not \['wrods'\]"),
    ],
)
def test_program_rejects_fields_that_do_not_fit(fields: dict[str, int], message: str) -> None:
    program = Program(PARAMETERS)
    with pytest.raises(ValueError, match=message):
        program.issue(Kind.GEMM, {"tokens": 1}, fields)
    with pytest.raises(ValueError, match="tokens must have"):
        program.load(PARAMETERS.tokens + 100, 0)


def test_an_array_field_may_be_a_numpy_array() -> None:
    layout = data.StructLayout({"widths": data.ArrayLayout(5, 3)})
    assert packed(layout, {"widths": np.array([1, 2, 3])}) == packed(layout, {"widths": [1, 2, 3]})


def test_a_record_is_not_a_number() -> None:
    layout = data.StructLayout({"widths": data.ArrayLayout(5, 3)})
    with pytest.raises(ValueError, match="widths must be a record, not 3"):
        packed(layout, {"widths": 3})
    with pytest.raises(ValueError, match=r"count must be an integer, not \[1\]"):
        packed(data.StructLayout({"count": 5}), {"count": [1]})

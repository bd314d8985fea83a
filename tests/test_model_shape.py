"""Rules of a model's shape, and the comparison of a model with an accelerator's parameters."""

from dataclasses import fields, replace
from typing import Annotated, Any

import numpy as np
import pytest

from hdl.model_shape import ModelDimensions, ModelShape, fitted
from hdl.parameters import Parameters, Range, parameter_object

SHAPE = ModelShape(
    hidden_size=24,
    intermediate_size=50,
    heads=6,
    kv_heads=2,
    head_size=4,
    layers=3,
    vocabulary_size=100,
    context_length=64,
    rope_base=10_000.0,
    norm_epsilon=1e-5,
)


@parameter_object
class Machine(ModelDimensions, Parameters):
    """An accelerator that derives the size of a hidden state from the heads."""

    intermediate_size: Annotated[int, Range(1, 64, "elements")] = 8
    heads: Annotated[int, Range(1, 8, "heads")] = 2
    kv_heads: Annotated[int, Range(1, 8, "heads")] = 2
    layers: Annotated[int, Range(1, 8, "layers")] = 1
    context_length: Annotated[int, Range(1, 32, "tokens")] = 16
    rope_base: Annotated[int, Range(2, 1 << 20, "ratio")] = 500
    rows: Annotated[int, Range(1, 8, "rows")] = 2

    @property
    def head_size(self) -> int:
        return 2 * self.rows

    @property
    def hidden_size(self) -> int:
        return self.query_size


def test_derived_numbers_follow_the_words() -> None:
    assert (SHAPE.group_size, SHAPE.query_size, SHAPE.kv_size) == (3, 24, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            ({one.name: value}, f"{one.name} must be a positive integer, not {value}")
            for one in fields(ModelShape)
            if one.type is int
            for value in (0, 2.5, True)
        ),
        ({"rope_base": -1.0}, "rope_base must be a positive finite number, not -1.0"),
        ({"norm_epsilon": float("inf")}, "norm_epsilon must be a positive finite number, not inf"),
        ({"norm_epsilon": True}, "norm_epsilon must be a positive finite number, not True"),
        ({"kv_heads": 4}, "kv_heads must divide heads = 6, not 4"),
        ({"head_size": 5}, "head_size must be even, not 5"),
    ],
)
def test_shape_refuses_values_outside_its_rules(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        replace(SHAPE, **change)
    assert str(error.value) == message


def test_integers_of_numpy_become_those_of_python() -> None:
    assert type(replace(SHAPE, heads=np.int64(6)).heads) is int


def test_fitted_parameters_have_the_words_of_the_model() -> None:
    found = fitted(Machine(), SHAPE, multiple=16)
    assert (found.heads, found.kv_heads, found.layers, found.rope_base) == (6, 2, 3, 10_000)
    assert found.intermediate_size == 64
    # The machine's tables keep their size.
    assert (found.context_length, found.rows) == (16, 2)


def test_fields_of_the_machine_take_precedence() -> None:
    found = fitted(Machine(), replace(SHAPE, head_size=8, hidden_size=48), rows=4, layers=8)
    assert (found.head_size, found.layers) == (8, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm_epsilon": 1e-6}, "norm_epsilon must be 1e-05, not 1e-06"),
        ({"rope_base": 10_000.5}, "rope_base must be an integer, not 10000.5"),
        ({"hidden_size": 30}, "hidden_size must be 24, not 30"),
        ({"head_size": 6}, "head_size must be 4, not 6"),
        ({"heads": 12}, "heads must be an integer from 1 to 8, not 12"),
        ({"intermediate_size": 65}, "intermediate_size must be an integer from 1 to 64, not 65"),
    ],
)
def test_model_that_the_machine_cannot_run_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        fitted(Machine(), replace(SHAPE, **change))
    assert str(error.value) == message

"""Rules of parameters: which integers they take, and that a unit of any is the same unit."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Annotated, Any

import numpy as np
import pytest
from amaranth.lib.wiring import Out

from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.catalog import CATALOG
from hdl.emit import Emission
from hdl.entry import Entry
from hdl.parameters import (
    Parameters,
    Range,
    option,
    parameter_object,
    require_power_of_two,
    require_range,
)
from hdl.unit import Unit


@pytest.mark.parametrize("rule", [require_range, require_power_of_two])
def test_integers_of_numpy_are_integers(rule: Callable[..., None]) -> None:
    for kind in (int, np.int8, np.uint8, np.int64):
        rule("rows", kind(8), 2, 64)
        with pytest.raises(ValueError, match=r"rows must be .* not 65"):
            rule("rows", kind(65), 2, 64)


@pytest.mark.parametrize("rule", [require_range, require_power_of_two])
@pytest.mark.parametrize("value", [True, np.True_, 8.0, np.float64(8), "8", None])
def test_what_is_no_integer_is_refused(rule: Callable[..., None], value: Any) -> None:
    with pytest.raises(ValueError, match="rows must be "):
        rule("rows", value, 0, 64)


def with_numpy(parameters: Any) -> Any:
    """Return equal parameters whose integers are numpy's."""
    changed = {}
    for member in fields(parameters):
        value: Any = getattr(parameters, member.name)
        if is_dataclass(value) and not isinstance(value, type):
            changed[member.name] = with_numpy(value)
        elif isinstance(value, int) and not isinstance(value, bool | Enum):
            changed[member.name] = np.int64(value)
    return replace(parameters, **changed)


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_every_unit_takes_integers_of_numpy_for_its_own(entry: Entry) -> None:
    plain = entry.parameters("tiny")
    assert repr(with_numpy(plain)) == repr(plain)


def test_a_unit_of_numpys_integers_is_the_same_module() -> None:
    emitted = [
        Emission(top=FloatMultiply(number_format=number_format, stages=stages)).modules
        for number_format, stages in ((BINARY16, 2), (with_numpy(BINARY16), np.int64(2)))
    ]
    assert [module.configuration for module in emitted[0]] == [
        module.configuration for module in emitted[1]
    ]
    assert repr(emitted[0][-1].configuration) == repr(emitted[1][-1].configuration)
    assert [module.rtlil.split("attribute")[0] for module in emitted[0]] == [
        module.rtlil.split("attribute")[0] for module in emitted[1]
    ]


@parameter_object
class Optional(Parameters):
    """Two options of the same values."""

    width: Annotated[int, Range(1, 8, "bits")] = 4
    first: bool = option(default=False)
    second: bool = option(default=False)


class WithOptions(Unit):
    """Has them in its name."""

    def __init__(self, *, parameters: Optional) -> None:
        super().__init__({"width": Out(parameters.width)})


def test_selected_option_is_in_the_name() -> None:
    named = {
        WithOptions(parameters=Optional(first=first, second=second)).module_name
        for first in (False, True)
        for second in (False, True)
    }
    assert named == {
        "with_options_4",
        "with_options_4_first_1",
        "with_options_4_second_1",
        "with_options_4_first_1_second_1",
    }
    assert repr(Optional(second=True)) == "Optional(width=4, second=True)"

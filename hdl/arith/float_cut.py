"""Special results of floating-point operators, and pipeline cuts for dataclasses of values."""

from dataclasses import Field, dataclass, replace
from typing import ClassVar, Protocol, TypeVarTuple, cast

from amaranth.hdl import Const, Value

from hdl.arith.float_unpack import Operand
from hdl.arith.operator import Pipeline

Steps = TypeVarTuple("Steps")


class _Step(Protocol):
    """A dataclass of values."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]


@dataclass(frozen=True)
class Special:
    """Results that the arithmetic does not compute: infinities and NaN."""

    infinite: Value
    infinite_sign: Value
    nan: Value


NEVER = Special(Const(0, 1), Const(0, 1), Const(0, 1))
"""No special result; for operators that saturate."""


def sum_special(a: Operand, b: Operand) -> Special:
    """Return the special results of ``a + b``."""
    return Special(
        infinite=a.infinite | b.infinite,
        infinite_sign=(a.infinite & a.sign) | (b.infinite & b.sign),
        nan=a.nan | b.nan | (a.infinite & b.infinite & (a.sign ^ b.sign)),
    )


def product_special(a: Operand, b: Operand) -> Special:
    """Return the special results of ``a * b``."""
    return Special(
        infinite=a.infinite | b.infinite,
        infinite_sign=a.sign ^ b.sign,
        nan=a.nan | b.nan | (a.infinite & b.zero) | (b.infinite & a.zero),
    )


def multiply_add_special(a: Operand, b: Operand, c: Operand) -> Special:
    """Return the special results of ``a * b + c``."""
    product = product_special(a, b)
    opposite = product.infinite_sign ^ c.sign
    return Special(
        infinite=product.infinite | c.infinite,
        infinite_sign=(product.infinite & product.infinite_sign) | (c.infinite & c.sign),
        nan=product.nan | c.nan | (product.infinite & c.infinite & opposite),
    )


def cut(pipeline: Pipeline, *steps: *Steps) -> tuple[*Steps]:
    """Return dataclasses of values after one cut; constants take no register."""
    given = cast("tuple[_Step, ...]", steps)
    values = [
        {name: value for name, value in vars(step).items() if not isinstance(value, Const)}
        for step in given
    ]
    registered = iter(pipeline.cut(*(value for of_step in values for value in of_step.values())))
    later = [
        replace(step, **{name: next(registered) for name in of_step})
        for step, of_step in zip(given, values, strict=True)
    ]
    return cast("tuple[*Steps]", tuple(later))

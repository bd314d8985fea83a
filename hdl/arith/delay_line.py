"""Delay lines that keep a value aligned with a pipeline of fixed depth."""

from contextlib import nullcontext
from typing import TypeVar, cast

from amaranth.hdl import Module, Signal, Value, ValueLike
from amaranth.lib import data

Delayed = TypeVar("Delayed", Signal, Value, data.View)


def delay_line(
    m: Module,
    value: Delayed,
    cycles: int,
    *,
    name: str,
    enable: ValueLike | None = None,
    reset: bool = False,
) -> tuple[Delayed, ...]:
    """Return a value with delays of 0 to `cycles` cycles.

    Parameters
    ----------
    m : Module
        Module that receives the registers.
    value : Value or data.View
        Value or view to delay; each returned item has its shape.
    cycles : int
        Number of registers, 0 or more.
    name : str
        Prefix of the registers' names, which are ``<name>_1`` to ``<name>_<cycles>``.
    enable : ValueLike, optional
        Registers load only in cycles in which it is 1; in every cycle if omitted.
    reset : bool
        Reset the registers. Valid bits need a reset; the data that they guard do not.
    """
    shape = value.shape() if hasattr(value, "shape") else Value.cast(value).shape()
    registers = tuple(
        cast("Delayed", Signal(shape, name=f"{name}_{cycle}", reset_less=not reset))
        for cycle in range(1, cycles + 1)
    )
    line = (value, *registers)
    with nullcontext() if enable is None else m.If(enable):
        m.d.sync += [later.eq(now) for now, later in zip(line, registers, strict=False)]
    return line

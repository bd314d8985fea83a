"""A value some cycles later: what accompanies a pipeline of fixed depth."""

from contextlib import nullcontext
from typing import Any

from amaranth.hdl import Module, Signal, Value, ValueLike


def delay_line(
    m: Module,
    value: Any,
    cycles: int,
    *,
    name: str,
    enable: ValueLike | None = None,
    reset: bool = False,
) -> tuple[Any, ...]:
    """Return a value now, one cycle later, and so on up to `cycles` cycles later.

    Parameters
    ----------
    m : Module
        Where the registers go.
    value : Any
        A value or a view; what is returned has its shape.
    cycles : int
        Number of registers, 0 or more.
    name : str
        Of the registers, which are ``<name>_1`` to ``<name>_<cycles>``.
    enable : ValueLike, optional
        The registers move only in cycles in which it is 1; always, if omitted.
    reset : bool
        Whether a reset clears them. Valid bits need it, the data that they guard do not.
    """
    shape = value.shape() if hasattr(value, "shape") else Value.cast(value).shape()
    registers = tuple(
        Signal(shape, name=f"{name}_{cycle}", reset_less=not reset)
        for cycle in range(1, cycles + 1)
    )
    line = (value, *registers)
    with nullcontext() if enable is None else m.If(enable):
        m.d.sync += [later.eq(now) for now, later in zip(line, registers, strict=False)]
    return line

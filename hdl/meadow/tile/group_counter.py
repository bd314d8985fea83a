"""Where a stage stands in the order of TPHS: a head's groups of tokens, one after the other."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike


def group_counter(
    m: Module, name: str, tokens: Value, lanes: int, *, ends: ValueLike
) -> tuple[Signal, Value]:
    """Return the first token of the group under way, and whether it is the head's last group.

    Parameters
    ----------
    m : Module
        Where the register goes.
    name : str
        Of the register.
    tokens : Value
        Tokens of the block.
    lanes : int
        Tokens of a group.
    ends : ValueLike
        The group is done with; the next one follows, behind the last the next head's first.
    """
    first: Any = Signal(len(tokens), name=name)
    # Tokens need be no multiple of the lanes: the last group is the first that reaches them.
    last = Signal(name=f"{name}_last")
    m.d.comb += last.eq(first + lanes >= tokens)
    with m.If(ends):
        m.d.sync += first.eq(Mux(last, 0, first + lanes))
    return first, last

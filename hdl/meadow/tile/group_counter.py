"""Position of a stage in the order of TPHS: the groups of tokens of a head, sequentially."""

from typing import NamedTuple

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike


class Group(NamedTuple):
    """The current group of tokens.

    Members
    -------
    first : Signal
        Index of its first token in the block.
    last : Signal
        It is the last group of the head.
    """

    first: Signal
    last: Signal


def group_counter(m: Module, name: str, tokens: Value, lanes: int, *, ends: ValueLike) -> Group:
    """Count the groups of tokens of each head.

    Parameters
    ----------
    m : Module
        Module that contains the register.
    name : str
        Name of the register.
    tokens : Value
        Tokens of the block.
    lanes : int
        Tokens of a group.
    ends : ValueLike
        The current group ends in this cycle. The next group of the head follows, or after the last
        group the first group of the next head.
    """
    first = Signal(len(tokens), name=name)
    # `tokens` may be no multiple of `lanes`: the last group is the first that reaches it.
    last = Signal(name=f"{name}_last")
    m.d.comb += last.eq(first + lanes >= tokens)
    with m.If(ends):
        m.d.sync += first.eq(Mux(last, 0, first + lanes))
    return Group(first, last)

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
    # A register holds the first token of the next group, so that no adder precedes the comparison.
    following = Signal(range((1 << len(tokens)) + lanes), init=lanes, name=f"{name}_following")
    # `tokens` may be no multiple of `lanes`: the last group is the first that reaches it.
    last = Signal(name=f"{name}_last")
    m.d.comb += last.eq(following >= tokens)
    with m.If(ends):
        m.d.sync += [
            first.eq(Mux(last, 0, following)),
            following.eq(Mux(last, lanes, following + lanes)),
        ]
    return Group(first, last)


def group_position(
    m: Module, name: str, base: Value, group: Group, lanes: int, *, ends: ValueLike
) -> Signal:
    """Return a register that holds `base` plus the index of the first token of the group.

    Parameters
    ----------
    m : Module
        Module that contains the register.
    name : str
        Name of the register.
    base : Value
        Value for the first group; it is constant during a block, from the cycle before the first
        use of the register on.
    group, lanes, ends
        As in `group_counter`.
    """
    position = Signal(len(base), name=name, reset_less=True)
    with m.If(ends):
        m.d.sync += position.eq(Mux(group.last, base, position + lanes))
    with m.Elif(group.first == 0):
        m.d.sync += position.eq(base)
    return position

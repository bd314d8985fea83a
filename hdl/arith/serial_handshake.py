"""The course of an operation that takes a digit a cycle: taken, worked on, kept until delivered."""

from typing import Any

from amaranth.hdl import Module, Signal, Value


def serial_handshake(
    m: Module, operands: Any, result: Any, *, steps: int, overlap: bool = True
) -> tuple[Value, Value]:
    """Take operands, allow `steps` steps, and offer the result until it is taken.

    Parameters
    ----------
    m : Module
        Of the component.
    operands, result : stream
        Its ports. The result's payload is the component's business, as is everything between.
    steps : int
        Cycles of work.
    overlap : bool
        Whether operands may be taken in the cycle in which the result is. Without it whether they
        are depends on registers alone.

    Returns
    -------
    tuple[Value, Value]
        Whether operands are taken, and whether a step is to be made, in this cycle. The new
        operands win over a step.
    """
    left = Signal(range(steps + 1))
    full = Signal()
    done = full & (left == 0)
    starts = operands.valid & operands.ready
    m.d.comb += [
        result.valid.eq(done),
        operands.ready.eq(~full | (done & result.ready & overlap)),
    ]
    with m.If(done & result.ready):
        m.d.sync += full.eq(0)
    with m.If(left != 0):
        m.d.sync += left.eq(left - 1)
    with m.If(starts):
        m.d.sync += [full.eq(1), left.eq(steps)]
    return starts, left != 0

"""Handshake of operations that take several cycles: accept, compute, hold until delivered."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import stream


def serial_handshake(
    m: Module,
    operands: stream.Interface,
    result: stream.Interface,
    *,
    steps: int,
    overlap: bool = True,
) -> tuple[Value, Value]:
    """Accept operands, run `steps` steps, and hold the result until it is transferred.

    Parameters
    ----------
    m : Module
        Module of the component.
    operands, result : stream.Interface
        Ports of the component, which drives the payload of the result itself.
    steps : int
        Number of compute cycles.
    overlap : bool
        Accept operands in the cycle that transfers the result. Without it, `ready` of the operands
        depends on registers only.

    Returns
    -------
    tuple[Value, Value]
        Whether operands are transferred, and whether a step executes, in this cycle. New operands
        take precedence over a step.
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

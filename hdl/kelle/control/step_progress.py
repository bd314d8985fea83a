"""Progress of a step: counters of completed heads, incremented by the last result of each.

Section 6 of the paper: an operation begins when its operands are available.
"""

from typing import Any

from amaranth.hdl import Module, Signal, Value

from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters


def count_progress(m: Module, p: KelleParameters, parts: Any, placed: Value) -> None:
    """Count the completed heads of each operation, and connect the counts to their consumers.

    Parameters
    ----------
    m : Module
        Module that receives the counters.
    p : KelleParameters
        Dimensions of the accelerator.
    parts : Parts
        Parts of the accelerator.
    placed : Value
        1 in the cycle in which the arriving token receives its slot in a head.
    """
    ended, start = parts.router.ended, parts.control.accepts
    progress = parts.scheduler.progress
    scored, finished = Signal(p.count_shape), Signal(p.count_shape)
    attends = ended[Operation.ATTEND.value] & parts.router.last_sequence
    # Heads complete in ascending order, so that a count identifies the completed heads.
    strobes = (
        (progress.queries, ended[Operation.QUERY.value]),
        (progress.keys, ended[Operation.KEY.value]),
        (progress["values"], ended[Operation.VALUE.value]),
        (progress.placed, placed),
        (progress.weighted, parts.softmax.ended),
        (parts.vector_issue.attended, attends),
        (parts.vector_issue.multiplied, parts.products.last_sequence),
        (scored, ended[Operation.OWN.value]),
        (finished, ended[Operation.DOWN.value]),
    )
    for number, (port, strobe) in enumerate(strobes):
        count = Signal(port.shape(), name=f"count_{number}")
        m.d.comb += port.eq(count)
        with m.If(strobe):
            m.d.sync += count.eq(count + 1)
        with m.If(start):
            m.d.sync += count.eq(0)
    m.d.comb += [
        progress.loaded.eq(parts.control.loaded),
        progress.begun.eq(parts.turns.begun),
        parts.turns.scored.eq(scored),
        parts.scheduler.start.eq(start),
        parts.softmax.start.eq(start),
        parts.softmax.scored.eq(scored),
        parts.control.finished.eq(finished == p.heads),
    ]

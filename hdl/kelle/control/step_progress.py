"""How far a step has come: the heads that have been done, counted where their last result is.

Section 6 of the paper: what an operation needs has to be there before it begins.
"""

from typing import Any

from amaranth.hdl import Module, Signal, Value

from hdl.kelle.operations import Operation
from hdl.kelle.parameters import KelleParameters


def count_progress(m: Module, p: KelleParameters, parts: Any, placed: Value) -> None:
    """Tell the scheduler, and who depends on it, how far the step has come.

    Parameters
    ----------
    m : Module
        Where the counts go.
    p : KelleParameters
        Dimensions.
    parts : Parts
        The accelerator's.
    placed : Value
        An arriving token has its slot in a head.
    """
    ended, start = parts.router.ended, parts.control.accepts
    progress = parts.scheduler.progress
    scored, finished = Signal(p.count_shape), Signal(p.count_shape)
    attends = ended[Operation.ATTEND.value] & parts.router.last_sequence
    # Heads are done in ascending order: a count says which.
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
        parts.control.finished.eq(finished == p.query_heads),
    ]

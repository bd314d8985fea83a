"""Arbitration of a tile's vector units between pipeline, linear layers and special functions."""

from typing import Any

from amaranth.hdl import Module, Signal, Value

from hdl.lad.control.unit_pool import Turn


def give_turns(m: Module, tile: Any, pause: Any, pool: Any, linear: Any, sfm: Any) -> Value:
    """Grant the vector units for one task or row at a time; return whether a step may begin.

    Parameters
    ----------
    tile : LadTile
        The tile with the streams of tasks and vectors, and of appends, with which a step begins.
    pause : PipelinePause
        Stops the pipeline, and reports when it uses no vector unit.
    pool : UnitPool
        The vector units.
    linear, sfm : LinearModule, SpecialFunctionModule
        The other users.
    """
    turn, begun, over, offered = Signal(Turn), Signal(), Signal(), Signal()
    # A valid `appends` must not be withdrawn: its step then begins before a task.
    m.d.sync += offered.eq(tile.appends.valid & ~tile.appends.ready)
    free = pause.idle & ~offered
    # One task per grant: the next one must not begin in parallel with the last products of this
    # one. A row ends when its results have been transferred; the next row is not accepted in that
    # cycle.
    tasked = (turn == Turn.LINEAR) & ~over
    rowed = (turn == Turn.FUNCTION) & (~begun | sfm.busy)
    for ours, theirs, selected in (
        (tile.tasks, linear.tasks, tasked),
        (tile.vectors, sfm.vectors, rowed),
    ):
        m.d.comb += [
            theirs.payload.eq(ours.payload),
            theirs.valid.eq(ours.valid & selected),
            ours.ready.eq(theirs.ready & selected),
        ]
    m.d.comb += pool.turn.eq(turn)
    with m.Switch(turn):
        with m.Case(Turn.ATTENTION), m.If(free):
            m.d.sync += [begun.eq(0), over.eq(0)]
            with m.If(tile.tasks.valid):
                m.d.sync += turn.eq(Turn.LINEAR)
            with m.Elif(tile.vectors.valid):
                m.d.sync += turn.eq(Turn.FUNCTION)
        # The grant of a task ends when its last sum has been added.
        with m.Case(Turn.LINEAR):
            with m.If(tile.tasks.valid & tile.tasks.ready):
                m.d.sync += over.eq(1)
            with m.If(over & ~linear.busy):
                m.d.sync += turn.eq(Turn.ATTENTION)
        # The grant of a row ends when its last result has been transferred.
        with m.Case(Turn.FUNCTION):
            with m.If(tile.vectors.valid & tile.vectors.ready):
                m.d.sync += begun.eq(1)
            with m.If(begun & ~sfm.busy):
                m.d.sync += turn.eq(Turn.ATTENTION)
    waits = tile.tasks.valid | tile.vectors.valid
    m.d.comb += pause.wanted.eq(waits | (turn != Turn.ATTENTION))
    return (turn == Turn.ATTENTION) & (~waits | offered)

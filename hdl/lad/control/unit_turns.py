"""Turns of those who have a tile's vector units: the pipeline, linear layers, functions."""

from typing import Any

from amaranth.hdl import Module, Signal, Value

from hdl.lad.control.unit_pool import Turn


def give_turns(m: Module, tile: Any, pause: Any, pool: Any, linear: Any, sfm: Any) -> Value:
    """Give turns, a task or a row at a time; return whether a step may begin.

    Parameters
    ----------
    tile : LadTile
        Has the streams of tasks and vectors, and that of appends, with which a step begins.
    pause : PipelinePause
        Lets the pipeline come to rest.
    pool : UnitPool
        The vector units.
    linear, sfm : LinearModule, SpecialFunctionModule
        Who has them between steps.
    """
    turn, begun, over, offered = Signal(Turn), Signal(), Signal(), Signal()
    # What was offered outside stands: then that step begins before a task.
    m.d.sync += offered.eq(tile.appends.valid & ~tile.appends.ready)
    free = pause.idle & ~offered
    # One task a turn: the next one must not begin beside the last products of this one. A row
    # is over when its results are gone; nothing of the next one is taken in that cycle.
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
        # A task's turn ends when its last sum is behind the adders.
        with m.Case(Turn.LINEAR):
            with m.If(tile.tasks.valid & tile.tasks.ready):
                m.d.sync += over.eq(1)
            with m.If(over & ~linear.busy):
                m.d.sync += turn.eq(Turn.ATTENTION)
        # A row's, when its last result is gone.
        with m.Case(Turn.FUNCTION):
            with m.If(tile.vectors.valid & tile.vectors.ready):
                m.d.sync += begun.eq(1)
            with m.If(begun & ~sfm.busy):
                m.d.sync += turn.eq(Turn.ATTENTION)
    waits = tile.tasks.valid | tile.vectors.valid
    m.d.comb += pause.wanted.eq(waits | (turn != Turn.ATTENTION))
    return (turn == Turn.ATTENTION) & (~waits | offered)

"""Proof that the victim is the argmin over unprotected tokens; ties resolve to the lowest slot.

For one slot that the solver chooses, the harness models the expected state of that slot's row. The
victim must be no worse than the slot if the slot was a candidate, and equal to it if the slot is
the victim. Since the slot is arbitrary, the two properties together prove that the victim is the
argmin. All inputs are free in every cycle; induction extends the proof to all cycles.
"""

from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Fragment, Module, Mux, Signal, signed
from amaranth.lib import data

from hdl.catalog import entry_named
from hdl.kelle.eviction.systolic_evictor import (
    EvictorRow,
    SystolicEvictor,
    SystolicEvictorParameters,
)
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from testbenches.formal import AnyConst, AnySeq, Assert, Assume, prove

TINY = entry_named("systolic_evictor").parameters("tiny")


class Collected:
    """A platform that records the units of a design while it elaborates flat."""

    def __init__(self) -> None:
        self.units: list[Unit] = []

    def boundary(self, unit: Unit) -> None:
        self.units.append(unit)

    def of(self, kind: type[Unit]) -> list[Any]:
        return [unit for unit in self.units if type(unit) is kind]


class ArgminHarness(Elaboratable):
    """The evictor, a model of one slot, and the properties that hold in every cycle."""

    def __init__(self, p: SystolicEvictorParameters) -> None:
        self.p = p

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self.p
        units = Collected()
        evictor = SystolicEvictor(parameters=p)
        m.submodules.evictor = Fragment.get(evictor, units)
        rows, (fifo,) = units.of(EvictorRow), units.of(Fifo)
        m.d.comb += [
            evictor.wavefronts.payload.as_value().eq(AnySeq(p.wavefront_layout.size)),
            evictor.wavefronts.valid.eq(AnySeq(1)),
            evictor.lanes.as_value().eq(AnySeq(evictor.lanes.as_value().shape().width)),
            evictor.victims.ready.eq(AnySeq(1)),
        ]
        slot = Signal(p.index_width)
        m.d.comb += slot.eq(AnyConst(p.index_width))
        slot_row, slot_tile = slot[: p.row_bits], slot[p.row_bits :]

        # State of a wavefront: its header, and the slot's score after the slot's row.
        wavefront_type = data.StructLayout(
            {
                "go": 1,
                "header": p.wavefront_layout,
                "candidate": 1,
                "score": signed(p.score_width),
            }
        )
        held = Signal(signed(p.score_width))
        head = Signal(wavefront_type)
        m.d.comb += [
            head.go.eq(evictor.wavefronts.valid & evictor.wavefronts.ready),
            head.header.eq(evictor.wavefronts.payload),
        ]
        above, ends = head, []
        for k, row in enumerate(rows):
            here, passed = (
                Signal(wavefront_type, name=f"here_{k}"),
                Signal(wavefront_type, name=f"passed_{k}"),
            )
            lane = evictor.lanes[k]
            start = Mux(above.header.load, Mux(lane.valid, lane.importance, 0), held)
            total = Signal(signed(p.input_width + p.score_width))
            low, high = -(1 << p.score_width - 1), (1 << p.score_width - 1) - 1
            m.d.comb += [here.eq(above), total.eq(start + (lane.score >> p.shift))]
            with m.If(slot_row == k):
                m.d.comb += [
                    here.candidate.eq(lane.valid & ~lane.protect),
                    here.score.eq(Mux(total < low, low, Mux(total > high, high, total))),
                ]
                with m.If(above.go):
                    m.d.sync += held.eq(here.score)
                m.d.comb += Assert(evictor.updates[k].importance == held)
                m.d.comb += Assert(evictor.updates[k].valid == passed.go)
            m.d.sync += passed.eq(here)

            minimum = row.minimum_out
            m.d.comb += Assert(row.strobe_out == passed.go)
            with m.If(passed.go):
                m.d.comb += Assert(row.wavefront_out == passed.header)
                m.d.comb += Assert(~minimum.found | (minimum.row <= k))
                with m.If(slot_row <= k):
                    no_worse = (minimum.importance < passed.score) | (
                        (minimum.importance == passed.score) & (minimum.row <= slot_row)
                    )
                    m.d.comb += Assert(~passed.candidate | (minimum.found & no_worse))
                    is_slot = minimum.found & (minimum.row == slot_row)
                    equal = passed.candidate & (minimum.importance == passed.score)
                    m.d.comb += Assert(~is_slot | equal)
            ends.append(passed.go & passed.header.compare & passed.header.last)
            above = passed

        # The search at the bottom: whether the slot has been a candidate in it, and its score.
        bottom = above
        compared = bottom.go & bottom.header.compare
        tile = Signal.like(evictor.tile)
        with m.If(compared):
            m.d.sync += tile.eq(Mux(bottom.header.last, 0, tile + 1))
        final_tile = p.slots // p.rows - 1
        m.d.comb += [
            Assert(evictor.tile == tile),
            Assume(~compared | bottom.header.last | (tile != final_tile)),
        ]
        seen, seen_score = Signal(), Signal(signed(p.score_width))
        now = Signal(data.StructLayout({"seen": 1, "score": signed(p.score_width)}))
        m.d.comb += [now.seen.eq(seen), now.score.eq(seen_score)]
        with m.If(tile == slot_tile):
            m.d.comb += [now.seen.eq(bottom.candidate), now.score.eq(bottom.score)]
        with m.If(compared):
            m.d.sync += [seen.eq(now.seen & ~bottom.header.last), seen_score.eq(now.score)]

        def wins(found: Any, least: Any, seen: Any, score: Any) -> Any:
            """Return whether a minimum is consistent with the slot."""
            no_worse = (least.importance < score) | (
                (least.importance == score) & (least.index <= slot)
            )
            equal = seen & (least.importance == score)
            return (~seen | (found & no_worse)) & (~(found & (least.index == slot)) | equal)

        m.d.comb += [
            Assert(wins(evictor.best_found, evictor.best, seen, seen_score)),
            Assert(~evictor.best_found | (evictor.best.index < tile * p.rows)),
            Assert(~seen | (slot_tile < tile)),
        ]
        victim = fifo.source.payload
        with m.If(compared):
            m.d.comb += Assert(wins(victim.found, victim, now.seen, now.score))
        m.d.comb += Assert(fifo.source.valid == (compared & bottom.header.last))

        # No victim is lost: there is room for every search that has been accepted.
        in_flight = sum(ends[1:], start=ends[0])
        m.d.comb += [
            Assert(evictor.in_flight == fifo.waiting + in_flight),
            Assert(evictor.in_flight <= p.victims),
            Assert(~fifo.source.valid | fifo.source.ready),
        ]
        return m


@pytest.mark.parametrize("victims", [1, 2])
def test_victim_is_the_argmin(victims: int) -> None:
    prove(ArgminHarness(replace(TINY, victims=victims)), inputs=[], depth=3)

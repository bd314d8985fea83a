"""Jobs fetch each part once, end when all is idle, and stop after errors: a bounded proof."""

import re
from typing import Any

import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal

from hdl.shell.job_control import JobControl
from testbenches.bounded import first_failure, prove_bounded
from testbenches.formal import AnySeq, Assert, Assume

PARTS, LONGEST, BITS = 2, 5, 4


class ControlRules(Elaboratable):
    """A job between a free host, free memory ports and a free accelerator."""

    def __init__(self, cover: str | None = None) -> None:
        self.cover = cover

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = JobControl(parts=PARTS, longest=LONGEST, token_bits=BITS)
        fetches = [unit.fetches[number] for number in range(PARTS)]
        inputs = [
            *(unit.start, unit.flush, unit.numbers.valid, unit.numbers.payload),
            *(unit.error, unit.clear_errors),
            *(unit.ports_idle, unit.outputs_idle, unit.core_idle),
            *(one.ready for one in fetches),
        ]
        m.d.comb += [one.eq(AnySeq(len(one))) for one in inputs]
        # The register block starts no job while one is in progress or flushed; a flush lasts until
        # the stop is complete. An error may end by itself: a stop resets the accelerator.
        busy, flushing = Signal(), Signal()
        with m.If(unit.finish | unit.flush):
            m.d.sync += busy.eq(0)
        with m.If(unit.start):
            m.d.sync += busy.eq(1)
        m.d.sync += flushing.eq(unit.flush & ~unit.idle)
        m.d.comb += [
            Assume(~(unit.start & (busy | unit.flush))),
            Assume(~flushing | unit.flush),
        ]
        moved = [one.valid & one.ready for one in fetches]
        done = Signal(PARTS)
        with m.If(unit.start):
            m.d.sync += done.eq(0)
        with m.Else():
            m.d.sync += done.eq(done | Cat(*moved))
        failed, before = Signal(), Signal()
        with m.If(unit.error | unit.clear_errors):
            m.d.sync += failed.eq(unit.error & ~unit.clear_errors)
        stops = unit.flush | unit.error | failed
        quiet = unit.ports_idle & unit.outputs_idle
        m.d.sync += before.eq(stops | (unit.stop & ~quiet))
        number = unit.numbers.payload
        wanted = Mux(number > LONGEST, LONGEST + 1, number)
        taken = unit.numbers.valid & unit.numbers.ready
        for place, (fetch, moves) in enumerate(zip(fetches, moved, strict=True)):
            m.d.comb += [
                # Each part once, in order, of a job in progress that no error stops.
                Assert(~fetch.valid | (busy & ~stops & ~unit.stop)),
                Assert(~fetch.valid | (done == (1 << place) - 1)),
                Assert(~fetch.valid | (fetch.payload == wanted)),
                Assert(~moves | taken),
            ]
        m.d.comb += [
            Assert(~taken | Cat(*moved).any() | unit.stop),
            Assert(~(unit.stop & unit.numbers.valid) | taken),
            Assert(~unit.finish | quiet),
            Assert(~(unit.finish & ~unit.stop & busy) | (unit.core_idle & done.all())),
            # A complete job ends as soon as everything is idle.
            Assert(~(busy & done.all() & quiet & unit.core_idle & ~stops) | unit.finish),
            Assert(unit.stop == before),
            Assert(unit.idle == (unit.stop & quiet)),
        ]
        recovered, ends = Signal(), unit.finish & busy & ~unit.stop
        with m.If(unit.clear_errors & failed):
            m.d.sync += recovered.eq(1)
        reached = {
            "the end of a job": ends,
            "a job after an error": ends & recovered,
            "a job that a stop ends": unit.finish & busy & unit.stop,
        }
        if self.cover:
            m.d.comb += Assert(~reached[self.cover])
        return m


def test_rules_hold_from_reset() -> None:
    prove_bounded(ControlRules(), depth=12)


@pytest.mark.parametrize(
    "event", ["the end of a job", "a job after an error", "a job that a stop ends"]
)
def test_the_proof_reaches(event: str) -> None:
    assert first_failure(ControlRules(event), depth=12) is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parts": 9}, "parts must be an integer from 1 to 8, not 9"),
        ({"token_bits": 33}, "token_bits must be an integer from 1 to 32, not 33"),
    ],
)
def test_rejects_illegal_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        JobControl(**({"parts": 2, "longest": 9, "token_bits": 8} | changes))

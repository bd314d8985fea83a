"""The splitter crosses no page and no limit of a burst: proved for all requests by induction."""

import re
from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Module, Signal

from hdl.shell.axi import PAGE_BYTES
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.burst_splitter import BurstSplitter
from testbenches.formal import AnySeq, Assert, prove

SMALL = {"address_bits": 6, "longest": 20, "axi_address_bits": 14}


class Cuts(Elaboratable):
    """Each burst is within its page; the bursts of a request follow each other to its end."""

    def __init__(self, parameters: AxiMasterParameters) -> None:
        self.parameters = parameters

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self.parameters
        m.submodules.unit = unit = BurstSplitter(parameters=p)
        request, burst = unit.requests.payload, unit.bursts.payload
        m.d.comb += [
            unit.base.eq(AnySeq(p.beat_address_bits)),
            unit.requests.valid.eq(AnySeq(1)),
            request.address.eq(AnySeq(p.address_bits)),
            request.length.eq(AnySeq(len(request.length))),
            unit.bursts.ready.eq(AnySeq(1)),
            unit.discard.eq(AnySeq(1)),
        ]
        beats = burst.more + 1
        address = burst.beat << p.byte_bits
        offset = address & (PAGE_BYTES - 1)
        valid, transfers = unit.bursts.valid, unit.bursts.valid & unit.bursts.ready
        # What is expected is computed from the request, independently of the unit's registers.
        left, expected = Signal.like(unit.left), Signal.like(unit.beat)
        first_byte = request.address * p.word_bytes
        last_byte = first_byte + request.length * p.word_bytes - 1
        with m.If(transfers):
            m.d.sync += [left.eq(left - beats), expected.eq(expected + beats)]
        with m.If(unit.requests.valid & unit.requests.ready):
            m.d.sync += [
                expected.eq(unit.base + (first_byte >> p.byte_bits)),
                left.eq(0),
            ]
            with m.If(request.length != 0):
                m.d.sync += left.eq((last_byte >> p.byte_bits) - (first_byte >> p.byte_bits) + 1)
        with m.If(unit.discard):
            m.d.sync += left.eq(0)
        m.d.comb += [
            Assert(left == unit.left),
            Assert((left == 0) | (expected == unit.beat)),
            Assert(valid == (left != 0)),
            Assert(~valid | (offset + beats * p.data_bytes <= PAGE_BYTES)),
            Assert(~valid | (beats <= p.burst_beats)),
            Assert(~valid | (beats <= left)),
            Assert(~valid | (burst.final == (beats == left))),
        ]
        return m


@pytest.mark.parametrize(
    "changes",
    [
        {"word_bytes": 8, "data_bytes": 4, "burst_beats": 16},
        {"word_bytes": 12, "data_bytes": 4},
        {"word_bytes": 64, "data_bytes": 64},
        {"word_bytes": 2, "data_bytes": 16, "burst_beats": 1},
        {"word_bytes": 1, "data_bytes": 64, "burst_beats": 256},
    ],
    ids=str,
)
def test_bursts_cover_each_request_within_pages(changes: dict[str, Any]) -> None:
    prove(Cuts(AxiMasterParameters(**(SMALL | changes))), inputs=[], depth=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"word_bytes": 24}, "word_bytes must be a multiple or a divisor of the 16 data_bytes"),
        ({"data_bytes": 12}, "data_bytes must be a power of two between 4 and 128, not 12"),
        ({"burst_beats": 512}, "burst_beats must be a power of two between 1 and 256, not 512"),
        ({"outstanding": 0}, "outstanding must be an integer from 1 to 32, not 0"),
        (
            {"address_bits": 35},
            "address_bits must address at most the 2**40 bytes of AXI4, not 35",
        ),
    ],
)
def test_rejects_illegal_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        AxiMasterParameters(**changes)

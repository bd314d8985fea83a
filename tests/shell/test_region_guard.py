"""A guard grants only requests inside its region: proved for all requests."""

from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Module, Signal, Value

from hdl.shell.axi import Cause
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.region_guard import RegionGuard
from testbenches.bounded import first_failure, prove_bounded
from testbenches.formal import AnySeq, Assert

SMALL = AxiMasterParameters(
    address_bits=6, word_bytes=12, longest=9, axi_address_bits=12, data_bytes=4
)


class Grants(Elaboratable):
    """Each byte of a granted request is in the region; a refused request stays an error."""

    def __init__(self, parameters: AxiMasterParameters, cover: str | None = None) -> None:
        self.parameters, self.cover = parameters, cover

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self.parameters
        m.submodules.unit = unit = RegionGuard(parameters=p)
        request = Value.cast(unit.requests.payload)
        m.d.comb += [
            unit.first.eq(AnySeq(p.axi_address_bits)),
            unit.end.eq(AnySeq(p.axi_address_bits)),
            unit.requests.valid.eq(AnySeq(1)),
            request.eq(AnySeq(len(request))),
            unit.granted.ready.eq(AnySeq(1)),
            unit.clear_error.eq(AnySeq(1)),
        ]
        address, length = unit.requests.payload.address, unit.requests.payload.length
        # Any byte of the request, computed without the unit's sum of address and length.
        word, byte = AnySeq(len(length)), AnySeq(4)
        place = unit.first + address * p.word_bytes + word * p.word_bytes + byte
        within = (word < length) & (byte < p.word_bytes)
        grants, takes = unit.granted.valid, unit.requests.valid & unit.requests.ready
        last = unit.first + (address + length) * p.word_bytes
        legal = (length <= p.longest) & (last <= unit.end)
        cause = Value.cast(unit.error.cause)
        expected, refused_at = Signal(), Signal(p.axi_address_bits)
        refused = unit.requests.valid & ~legal
        with m.If(unit.clear_error | ~expected):
            m.d.sync += [
                expected.eq(refused),
                refused_at.eq(unit.first + address * p.word_bytes),
            ]
        m.d.comb += [
            Assert(~(grants & within) | ((place >= unit.first) & (place < unit.end))),
            Assert(~grants | (length <= p.longest)),
            Assert(takes == (unit.granted.valid & unit.granted.ready)),
            Assert(~grants | (Value.cast(unit.granted.payload) == request)),
            # Every legal request is granted.
            Assert(~(unit.requests.valid & legal) | grants),
            Assert(cause == expected * Cause.DECERR.value),
            Assert(~expected | (unit.error.address == refused_at)),
        ]
        reached = {
            "the last word of the region": takes & (last == unit.end) & (length > 1),
            "an error": expected,
        }
        if self.cover:
            m.d.comb += Assert(~reached[self.cover])
        return m


@pytest.mark.parametrize(
    "changes",
    [{}, {"word_bytes": 2, "data_bytes": 8}, {"word_bytes": 4, "axi_address_bits": 40}],
    ids=str,
)
def test_grants_are_inside_the_region(changes: dict[str, Any]) -> None:
    prove_bounded(Grants(replace(SMALL, **changes)), depth=4)


@pytest.mark.parametrize("event", ["the last word of the region", "an error"])
def test_the_proof_reaches(event: str) -> None:
    assert first_failure(Grants(SMALL, event), depth=4) is not None

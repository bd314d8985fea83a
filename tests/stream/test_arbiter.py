"""The arbiter is fair, keeps each source's order, and does not split packets."""

import random
from itertools import pairwise

import pytest
from amaranth.hdl import Elaboratable, Module, Signal

from hdl.stream.arbiter import Arbiter
from testbenches.formal import AnySeq, Assert, prove
from testbenches.stream_trial import run_streams


@pytest.mark.parametrize("pauses", ["none", "random", "bursty", "adversarial"])
@pytest.mark.parametrize("packets", [False, True])
@pytest.mark.parametrize("sources", [2, 3, 5])
def test_order_and_packets(sources: int, pauses: str, *, packets: bool) -> None:
    rng = random.Random(f"{sources} {pauses}")
    sent = []
    for _ in range(sources):
        lengths = [rng.randint(1, 5) for _ in range(10)]
        ends = [place == length - 1 for length in lengths for place in range(length)]
        sent.append([rng.randrange(64) | (packets and end) << 6 for end in ends])
    total = sum(map(len, sent))
    given = run_streams(
        Arbiter(shape=6, sources=sources, packets=packets),
        {f"sources.{number}": items for number, items in enumerate(sent)},
        {"sink": total},
        seed=sources,
        pauses=pauses,
    )["sink"]
    bits = 6 + packets
    items = [(word >> bits, word & (1 << bits) - 1) for word in given]
    for number, own in enumerate(sent):
        assert [item for source, item in items if source == number] == own
    assert len(items) == total
    if packets:
        turns = [
            source
            for place, (source, _) in enumerate(items)
            if place == 0 or items[place - 1][1] >> 6
        ]
        assert len(turns) == 10 * sources
        inside = pairwise(items)
        assert all(one[0] == other[0] for one, other in inside if not one[1] >> 6)


def test_round_robin_without_pauses() -> None:
    """If all sources are always valid, they are served in order, one item per cycle."""
    cycles = 0

    def count(ctx) -> None:
        nonlocal cycles
        cycles += 1

    sources = {f"sources.{number}": [number] * 8 for number in range(3)}
    unit = Arbiter(shape=4, sources=3)
    given = run_streams(unit, sources, {"sink": 24}, seed=0, pauses="none", cycle=count)["sink"]
    assert given == [number | number << 4 for number in (0, 1, 2)] * 8
    assert cycles == 24 + 19


class Fairness(Elaboratable):
    """While one source is valid but not served, no other source is served twice."""

    def __init__(self, *, packets: bool) -> None:
        self.packets = packets

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = Arbiter(shape=1, sources=3, packets=self.packets)
        offered = Signal(3)
        for number, source in enumerate(dut.sources):
            # A valid item is held until its transfer.
            m.d.comb += source.valid.eq(offered[number] | AnySeq(1))
            m.d.comb += source.payload.as_value().eq(AnySeq(1 + self.packets))
            m.d.sync += offered[number].eq(source.valid & ~source.ready)
        m.d.comb += dut.sink.ready.eq(AnySeq(1))
        watched, others = dut.sources[0], dut.sources[1:]
        last = dut.sink.payload.last if self.packets else 1
        served = [Signal(name=f"served_{number}") for number in range(2)]
        inside = Signal()
        for other, before in zip(others, served, strict=True):
            turn = other.valid & other.ready
            with m.If(~watched.valid | watched.ready):
                m.d.sync += before.eq(0)
            with m.Elif(turn & last):
                m.d.sync += before.eq(1)
            m.d.comb += Assert(~(turn & before & offered[0]))
        with m.If(dut.sink.valid & dut.sink.ready):
            m.d.sync += inside.eq(~last)
        # A source served while the watched one waits is later in the order.
        granted, locked = dut.granted, dut.locked
        waits = (granted == 0) & locked
        m.d.comb += [
            Assert(granted < 3),
            Assert(~locked | inside | offered.bit_select(granted, 1)),
            Assert(~inside | locked),
            Assert(~(served[0] | served[1]) | offered[0]),
            Assert(~(offered[0] & (granted == 0)) | locked),
            Assert(~served[0] | ((granted == 1) & ~locked) | (granted == 2) | waits),
            Assert(~served[1] | ((granted == 2) & ~locked) | waits),
        ]
        return m


@pytest.mark.parametrize("packets", [False, True])
def test_fairness_is_proven(*, packets: bool) -> None:
    prove(Fairness(packets=packets), inputs=[], depth=3)


@pytest.mark.parametrize("sources", [1, 65])
def test_rejects_a_number_of_sources_out_of_range(sources: int) -> None:
    with pytest.raises(ValueError, match=f"sources must be an integer from 2 to 64, not {sources}"):
        Arbiter(shape=8, sources=sources)

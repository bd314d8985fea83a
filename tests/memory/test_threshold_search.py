"""The threshold is the k-th largest of the candidates, for all values of a small memory.

A search takes a known number of cycles, so a bounded proof is complete. It covers the first search
after reset; simulations of the units that use it run many in sequence.
"""

from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Module, Shape, Signal, signed, unsigned
from amaranth.lib import data

from hdl.arith.adder_tree import tree_sum
from hdl.memory.threshold_search import SEARCH_OVERHEAD, ThresholdSearch, up_to
from testbenches.formal import AnyConst, Assert, Assume, ProofError, prove

WIDTH, LANES, WORDS, MOST = 3, 2, 3, 4


class SearchHarness(Elaboratable):
    """One search over values, candidates and a k that the solver chooses.

    Parameters
    ----------
    shape : Shape
        Shape of a value.
    skipped : int
        Number of upper bits that no value uses and the search skips.
    more : int
        Error added to the expected number of ties; 0 is correct.
    """

    def __init__(self, shape: Shape, skipped: int = 0, more: int = 0) -> None:
        self.shape, self.skipped, self.more = shape, skipped, more

    @property
    def depth(self) -> int:
        """Cycles of the longest search, plus one for the assertions after it."""
        return (WIDTH - self.skipped) * (WORDS + SEARCH_OVERHEAD) + 4

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.search = search = ThresholdSearch(
            shape=self.shape, lanes=LANES, words=WORDS, most=MOST
        )
        values = Signal(data.ArrayLayout(data.ArrayLayout(self.shape, LANES), WORDS))
        inside = Signal(data.ArrayLayout(LANES, WORDS))
        last, wanted = Signal(range(WORDS)), Signal(range(MOST + 1))
        cycle, ended = Signal(8), Signal()
        took = (WIDTH - self.skipped) * (last + 1 + SEARCH_OVERHEAD)
        m.d.comb += [
            values.as_value().eq(AnyConst(values.as_value().shape().width)),
            inside.as_value().eq(AnyConst(inside.as_value().shape().width)),
            last.eq(AnyConst(len(last))),
            wanted.eq(AnyConst(len(wanted))),
            Assume((wanted >= 1) & (wanted <= MOST)),
            search.start.eq(cycle == 0),
            search.wanted.eq(wanted),
            search.last_word.eq(last),
            search.highest.eq(1 << WIDTH - 1 - self.skipped),
            search.candidates.eq(inside[search.read_address]),
            Assert(search.done == (cycle == took)),
        ]
        m.d.sync += [cycle.eq(cycle + 1), ended.eq(ended | search.done)]
        with m.If(search.read_enable):
            m.d.comb += Assert(search.read_address <= last)
            m.d.sync += search.word.eq(values[search.read_address])

        above, equal, candidates = [], [], []
        for place in range(LANES * WORDS):
            value = values[place // LANES][place % LANES]
            if self.skipped:
                m.d.comb += Assume(value < 1 << WIDTH - self.skipped)
            counts = inside[place // LANES][place % LANES] & (place // LANES <= last)
            candidates.append(counts)
            above.append(counts & (value > search.threshold))
            equal.append(counts & (value == search.threshold))
        enough = tree_sum(candidates) >= wanted
        with m.If(ended):
            m.d.comb += Assert(tree_sum(above) + search.ties == wanted + self.more)
            with m.If(enough):
                m.d.comb += Assert((search.ties > 0) & (search.ties <= tree_sum(equal)))
            with m.Else():
                lowest = -(1 << WIDTH - 1) if self.shape.signed else 0
                m.d.comb += Assert(search.threshold == lowest)
        return m


@pytest.mark.parametrize(
    ("shape", "skipped"), [(signed(WIDTH), 0), (unsigned(WIDTH), 0), (unsigned(WIDTH), 1)]
)
def test_the_threshold_is_the_kth_largest(shape: Shape, skipped: int) -> None:
    """Values above the threshold and ties add up to k; at least as many ties exist, and one."""
    harness = SearchHarness(shape, skipped)
    prove(harness, inputs=[], depth=harness.depth, induction=False)


def test_the_proof_reaches_the_end() -> None:
    harness = SearchHarness(unsigned(WIDTH), more=1)
    with pytest.raises(ProofError, match="failed"):
        prove(harness, inputs=[], depth=harness.depth, induction=False)


class UpToHarness(Elaboratable):
    """The bits of a word against their positions."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        position, word = Signal(4), Signal(2)
        m.d.comb += [position.eq(AnyConst(4)), word.eq(AnyConst(2))]
        for lane in range(4):
            within = word * 4 + lane <= position
            m.d.comb += Assert(up_to(position, word, 4)[lane] == within)
        return m


def test_mask_of_values_up_to_a_position() -> None:
    prove(UpToHarness(), inputs=[], depth=2, induction=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 3}, "lanes must be a power of two, not 3"),
        ({"lanes": 1}, "lanes must be an integer from 2 to 64, not 1"),
        ({"words": 0}, "words must be an integer from 1 to 65536, not 0"),
        ({"most": 65}, "most must be an integer from 1 to 64, not 65"),
    ],
)
def test_rejects_illegal_dimensions(change: dict[str, Any], message: str) -> None:
    dimensions = {"shape": unsigned(8), "lanes": 4, "words": 16, "most": 8} | change
    with pytest.raises(ValueError, match=message):
        ThresholdSearch(**dimensions)

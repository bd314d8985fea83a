"""The threshold is the k-th largest importance, for all importances and texts of a small size.

A search is finite and takes a known number of cycles, so that a bounded proof is a complete one. It
is of the first search after reset; the simulation has many in a row.
"""

from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data

from hdl.arith.adder_tree import tree_sum
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters
from hdl.kelle.eviction.threshold_search import ThresholdSearch
from testbenches.formal import AnyConst, Assert, Assume, ProofError, prove

WIDTH = 4


def small(sinks: int) -> PrefillSelectorParameters:
    evictor = SystolicEvictorParameters(rows=2, slots=6, index_width=3, score_width=WIDTH)
    eviction = EvictionParameters(
        evictor=evictor, heads=1, window=2, sinks=sinks, position_bits=4, vectors=0
    )
    return PrefillSelectorParameters(eviction=eviction, context=10)


class SearchHarness(Elaboratable):
    """One search over importances and a length that the solver chooses.

    Parameters
    ----------
    p : PrefillSelectorParameters
        Dimensions.
    more : int
        How many of the equal are claimed to be kept beside those that are: 0 is the truth.
    """

    def __init__(self, p: PrefillSelectorParameters, more: int = 0) -> None:
        self.p, self.more = p, more

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        p = self.p
        m.submodules.search = search = ThresholdSearch(parameters=p)
        text = Signal(data.ArrayLayout(p.word_layout, p.tiles))
        last = Signal(p.place_bits)
        cycle = Signal(8)
        ended = Signal()
        took = p.eviction.evictor.score_width * ((last >> p.eviction.evictor.row_bits) + 1 + 3)
        m.d.comb += [
            text.as_value().eq(AnyConst(text.as_value().shape().width)),
            last.eq(AnyConst(p.place_bits)),
            Assume(last >= p.eviction.evictor.slots),
            Assume(last < p.context),
            search.start.eq(cycle == 0),
            search.text_last.eq(last),
            Assert(search.done == (cycle == took)),
        ]
        m.d.sync += [cycle.eq(cycle + 1), ended.eq(ended | search.done)]
        with m.If(search.read_enable):
            m.d.comb += Assert(search.read_address < p.tiles)
            m.d.sync += search.word.eq(text[search.read_address])

        above, equal = [], []
        for position in range(p.context):
            value = text[position // p.rows][position % p.rows]
            inside = (position >= p.eviction.sinks) & (position + p.eviction.window <= last)
            above.append(inside & (value > search.threshold))
            equal.append(inside & (value == search.threshold))
        with m.If(ended):
            m.d.comb += [
                Assert(tree_sum(above) + search.ties == p.places + self.more),
                Assert((search.ties > 0) & (search.ties <= tree_sum(equal))),
            ]
        return m


@pytest.mark.parametrize("sinks", [0, 1])
def test_the_threshold_is_the_kth_largest(sinks: int) -> None:
    """Those above it and the ties make k, and there is at least one tie and enough of them."""
    p = small(sinks)
    prove(SearchHarness(p), inputs=[], depth=WIDTH * (p.tiles + 3) + 4, induction=False)


def test_the_proof_reaches_the_end() -> None:
    p = small(1)
    with pytest.raises(ProofError, match="failed"):
        harness = SearchHarness(p, more=1)
        prove(harness, inputs=[], depth=WIDTH * (p.tiles + 3) + 4, induction=False)

"""P3-LLM's pseudo-channel: cycles of a schedule, and its parameters."""

import re

import numpy as np
import pytest

from golden.p3llm.pim.pim_channel import Channel
from hdl.p3llm.pim.bank_timing import BankTimingParameters
from hdl.p3llm.pim.pim_channel import PimChannelParameters
from testbenches.p3llm.pim.channel_traces import product_trace

PAPER = PimChannelParameters()


@pytest.mark.parametrize("inputs", [1, 2])
def test_columns_of_a_round_are_back_to_back(inputs: int) -> None:
    """Six groups of 64 on every unit, in three rows: groups are scaled, row changes are hidden."""
    trace = product_trace(PAPER, "linear", inputs)
    assert trace.columns == 3 * 32
    cycles = trace.last_column - trace.first_column + PAPER.unit.pumps
    assert cycles == trace.columns * PAPER.unit.pumps
    channel = Channel(PAPER, trace.memory)
    channel.run(trace.slots)
    assert not set().union(*channel.broken)
    sums = np.array([word.view("<i4") for _cycle, word in channel.results])
    assert np.array_equal(sums, trace.sums)


def test_rejects_a_clock_without_a_cycle_per_pump() -> None:
    message = "timing.clock_mhz must be above 250 for 2 pumps in ccd_l_ps=4000, not 250"
    with pytest.raises(ValueError, match=re.escape(message)):
        PimChannelParameters(timing=BankTimingParameters(clock_mhz=250))
    assert PimChannelParameters(timing=BankTimingParameters(clock_mhz=251)).timing.ccd_l == 2

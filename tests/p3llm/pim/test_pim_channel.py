"""P3-LLM's pseudo-channel: cycles of a schedule, and its parameters."""

import re

import numpy as np
import pytest

from golden.p3llm.pim.pim_channel import Channel
from hdl.p3llm.pim.bank_timing import BankTimingParameters
from hdl.p3llm.pim.pim_channel import PimChannelParameters
from testbenches.p3llm.pim.channel_traces import product_trace

PAPER = PimChannelParameters()


@pytest.mark.parametrize(("inputs", "most"), [(1, 1.0), (2, 1.05)])
def test_cycles_of_a_product_of_whole_groups(inputs: int, most: float) -> None:
    """Three groups of 128 on every unit: columns are back to back, row changes are hidden."""
    trace = product_trace(PAPER, "linear", inputs)
    assert trace.columns == 3 * 32
    cycles = trace.last_column - trace.first_column + PAPER.unit.pumps
    assert cycles <= trace.columns * PAPER.unit.pumps * most, cycles
    channel = Channel(PAPER, trace.memory)
    channel.run(trace.slots)
    assert not set().union(*channel.broken)
    sums = np.array([word.view("<i4") for _cycle, word in channel.results])
    assert np.array_equal(sums, trace.sums)


def test_rejects_illegal_parameters() -> None:
    message = "timing.ccd must be at least 2, not 1"
    with pytest.raises(ValueError, match=re.escape(message)):
        PimChannelParameters(timing=BankTimingParameters(ccd=1))

"""The write master keeps AXI4's rules: bounded proofs; and its model agrees with small examples."""

import numpy as np
import pytest

from golden.shell.axi_bursts import Request
from golden.shell.axi_write_master import words_complete, written_bytes
from hdl.shell.axi_parameters import AxiMasterParameters
from testbenches.bounded import first_failure, prove_bounded
from testbenches.shell.axi_rules import LANES, WIDE, WriteRules
from tests.shell.proof_events import event_cases

pytestmark = pytest.mark.depends()


@pytest.mark.parametrize(
    ("parameters", "flushes", "depth"),
    [
        pytest.param(WIDE, False, 11, id="wide"),
        pytest.param(WIDE, True, 10, id="wide-flush"),
        pytest.param(LANES, False, 7, id="lanes"),
        pytest.param(WIDE, False, 15, id="wide-deep", marks=pytest.mark.full),
        pytest.param(WIDE, True, 14, id="wide-flush-deep", marks=pytest.mark.full),
        pytest.param(LANES, False, 9, id="lanes-deep", marks=pytest.mark.full),
        pytest.param(LANES, True, 12, id="lanes-flush-deep", marks=pytest.mark.full),
    ],
)
def test_rules_hold_from_reset(parameters: AxiMasterParameters, flushes: bool, depth: int) -> None:
    prove_bounded(WriteRules(parameters=parameters, flushes=flushes), depth=depth)


EVENTS = {
    False: (
        "a response of a burst of several beats",
        "data before their address",
        "addresses before their data",
        "an error",
        "the second word",
    ),
    True: ("a burst after a flush of bursts",),
}


@pytest.mark.parametrize(("flushes", "event"), event_cases(EVENTS))
def test_the_proof_reaches(flushes: bool, event: str) -> None:
    rules = WriteRules(parameters=WIDE, flushes=flushes, cover=event)
    assert first_failure(rules, depth=10) is not None


@pytest.mark.full
def test_the_proof_reaches_partial_beats() -> None:
    rules = WriteRules(parameters=LANES, cover="a partial beat and a whole one")
    assert first_failure(rules, depth=11) is not None


def test_bytes_of_the_model() -> None:
    p = AxiMasterParameters(word_bytes=2, data_bytes=8)
    words = np.array([[1, 2], [3, 4], [5, 6]])
    addresses, values = written_bytes(p, [Request(1, 3, 2), Request(0, 0, 1)], words)
    assert addresses.tolist() == [14, 15, 16, 17, 0, 1]
    assert values.tolist() == [1, 2, 3, 4, 5, 6]


def test_words_of_each_burst_of_the_model() -> None:
    # Bursts of two beats of 4 bytes; words of 12 bytes: the second burst completes word 0.
    p = AxiMasterParameters(word_bytes=12, data_bytes=4, burst_beats=2)
    assert words_complete(p, [Request(0, 0, 2)]) == [0, 1, 2]
    # Four words per beat, a beat per burst: words 3, then 4 to 7, then 8.
    p = AxiMasterParameters(word_bytes=1, data_bytes=4, burst_beats=1)
    assert words_complete(p, [Request(0, 3, 6), Request(0, 0, 1)]) == [1, 5, 6, 7]

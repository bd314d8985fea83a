"""The read master keeps AXI4's rules: bounded proofs; and its model agrees with plain division."""

from dataclasses import replace
from typing import Any

import pytest

from golden.shell.axi_bursts import AxiBurst, Request, axi_bursts, first_error
from golden.shell.axi_read_master import beat_addresses, read_words
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.axi_read_master import AxiReadMaster
from hdl.shell.error_latch import ErrorLatch
from hdl.shell.lane_counter import LaneCounter
from testbenches.bounded import first_failure, prove_bounded
from testbenches.formal import ProofError
from testbenches.shell.axi_rules import LANES, WIDE, ReadRules
from tests.shell.proof_events import event_cases

pytestmark = pytest.mark.depends()


@pytest.mark.parametrize(
    ("parameters", "flushes", "depth"),
    [
        pytest.param(WIDE, False, 10, id="wide"),
        pytest.param(WIDE, True, 14, id="wide-flush"),
        pytest.param(LANES, False, 9, id="lanes"),
        pytest.param(WIDE, False, 13, id="wide-deep", marks=pytest.mark.full),
        pytest.param(WIDE, True, 24, id="wide-flush-deep", marks=pytest.mark.full),
        pytest.param(LANES, False, 12, id="lanes-deep", marks=pytest.mark.full),
        pytest.param(LANES, True, 20, id="lanes-flush-deep", marks=pytest.mark.full),
    ],
)
def test_rules_hold_from_reset(parameters: AxiMasterParameters, flushes: bool, depth: int) -> None:
    prove_bounded(ReadRules(parameters=parameters, flushes=flushes), depth=depth)


EVENTS = {
    False: (
        "the last word of a request of several bursts",
        "a burst in the middle of another",
        "an error",
        "all bursts in flight",
        "idle after a request of several words",
    ),
    True: ("work after a flush of bursts",),
}


@pytest.mark.parametrize(("flushes", "event"), event_cases(EVENTS))
def test_the_proof_reaches(flushes: bool, event: str) -> None:
    """The proof covers the event: without it, a rule about it would hold for nothing."""
    rules = ReadRules(parameters=WIDE, flushes=flushes, cover=event)
    assert first_failure(rules, depth=13) is not None


def test_the_proof_finds_a_master_that_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """With blocks of 4 beats, the master's bursts are longer than the rules allow."""
    longer = replace(WIDE, burst_beats=4)
    rules = ReadRules(parameters=WIDE)
    monkeypatch.setattr(
        "testbenches.shell.axi_rules.AxiReadMaster",
        lambda parameters: AxiReadMaster(parameters=longer),
    )
    with pytest.raises(ProofError, match="an assertion fails in cycle"):
        prove_bounded(rules, depth=6)


@pytest.mark.parametrize(
    ("changes", "request_", "expected"),
    [
        # A word of 64 bytes is 4 beats of 16; the first page ends after 4 words.
        ({}, Request(0xF0, 0, 6), [(0xF00, 16), (0x1000, 8)]),
        # Words 5 to 13 of 2 bytes are in beats 1 to 3 of 8 bytes.
        ({"word_bytes": 2, "data_bytes": 8}, Request(0, 5, 9), [(8, 3)]),
        # 300 beats of 4 bytes: 256 of them reach no page, but the limit of a burst.
        ({"word_bytes": 4, "data_bytes": 4}, Request(0, 0, 300), [(0, 256), (0x400, 44)]),
    ],
)
def test_bursts_of_the_model(
    changes: dict[str, Any], request_: Request, expected: list[tuple[int, int]]
) -> None:
    p = AxiMasterParameters(**changes)
    assert axi_bursts(p, request_) == [AxiBurst(*one) for one in expected]
    assert len(beat_addresses(p, [request_])) == sum(beats for _address, beats in expected)


def test_words_of_the_model() -> None:
    p = AxiMasterParameters(word_bytes=2, data_bytes=8)
    words, last = read_words(p, [Request(1, 3, 2), Request(0, 0, 1)], lambda address: address)
    assert words.tolist() == [[14, 15], [16, 17], [0, 1]]
    assert last.tolist() == [0, 1, 1]


def test_the_first_error_counts() -> None:
    codes = {8: 3, 12: 2}
    answers = [(4, 4), (8, 8), (12, 12)]
    assert first_error(answers, lambda address: codes.get(address, 0)) == (3, 8)
    assert first_error(answers[:1], lambda address: codes.get(address, 0)) == (0, 0)


def test_rejects_illegal_parts() -> None:
    with pytest.raises(ValueError, match="lanes must be a power of two between 2 and 64, not 3"):
        LaneCounter(lanes=3)
    with pytest.raises(ValueError, match="address_bits must be an integer from 12 to 64, not 8"):
        ErrorLatch(address_bits=8)

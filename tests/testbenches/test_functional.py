"""Functional coverage: each bin counts its situation, and no other."""

from types import SimpleNamespace
from typing import Any

import pytest
from amaranth.hdl import Shape
from amaranth.lib import data, enum

from testbenches.functional import BACK_TO_BACK, RESET, StreamCoverage


class Mode(enum.Enum, shape=2):
    """Three of four codes have a name."""

    ADD = 0
    SUB = 1
    MOVE = 3


LAYOUT = data.StructLayout(
    {
        "last": 1,
        "mode": Mode,
        "word": 16,
        "lanes": data.ArrayLayout(data.StructLayout({"on": 1}), 2),
    }
)


class Driven:
    """A stream whose ports a test sets."""

    def __init__(self, layout: Any) -> None:
        self.bins: dict[str, int] = {}
        self.valid, self.ready = SimpleNamespace(value=0), SimpleNamespace(value=0)
        self.payload = SimpleNamespace(bits="0" * Shape.cast(LAYOUT).width)
        self.name = "rows"
        self.part = StreamCoverage(self, layout, self.bins)

    def cycle(self, valid: int, ready: int, payload: int = 0) -> None:
        self.valid.value, self.ready.value = valid, ready
        self.payload.bits = f"{payload:0{len(self.payload.bits)}b}"
        self.part.sample()

    @property
    def hit(self) -> dict[str, int]:
        return {name.removeprefix("rows: "): hits for name, hits in self.bins.items() if hits}


def test_bins_follow_from_the_layout() -> None:
    stream = Driven(LAYOUT)
    fields = {name.removeprefix("rows: ") for name in stream.bins if "=" in name}
    modes = {f"mode = {member.name}" for member in Mode}
    assert fields == {"last = 0", "last = 1", "lanes[].on = 0", "lanes[].on = 1"} | modes
    assert not stream.hit
    assert len(Driven(None).bins) == len(stream.bins) - len(fields)


@pytest.mark.parametrize(
    ("valid", "ready", "bin_"),
    [(0, 0, "idle"), (0, 1, "ready without an offer"), (1, 0, "offer without ready")],
)
def test_a_cycle_without_a_transfer_counts_no_payload(valid: int, ready: int, bin_: str) -> None:
    stream = Driven(LAYOUT)
    stream.cycle(valid, ready, 1)
    assert stream.hit == {bin_: 1}


def test_values_of_transferred_payloads_are_counted() -> None:
    stream = Driven(LAYOUT)
    stream.cycle(1, 1, 1 | Mode.MOVE.value << 1 | 1 << 20)
    assert stream.hit == {
        "transfer": 1, "last = 1": 1, "mode = MOVE": 1, "lanes[].on = 0": 1, "lanes[].on = 1": 1,
    }  # fmt: skip
    stream.cycle(1, 1, 2 << 1)
    assert "mode = SUB" not in stream.hit and stream.hit["last = 0"] == 1


def test_only_adjacent_transfers_are_back_to_back() -> None:
    stream = Driven(None)
    for valid, ready in ((1, 1), (0, 1), (1, 1), (1, 0), (1, 1)):
        stream.cycle(valid, ready)
    assert BACK_TO_BACK not in stream.hit and stream.hit["transfer"] == 3
    stream.cycle(1, 1)
    assert stream.hit[BACK_TO_BACK] == 1


def test_only_a_reset_during_an_offer_is_counted() -> None:
    stream = Driven(None)
    stream.cycle(1, 1)
    stream.part.clear()
    stream.cycle(0, 1)
    stream.part.clear()
    assert RESET not in stream.hit
    stream.cycle(1, 0)
    stream.part.clear()
    stream.part.clear()
    assert stream.hit[RESET] == 1

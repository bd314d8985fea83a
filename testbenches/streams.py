"""Drivers and monitors of valid/ready streams, and the pauses that they make.

They are plain objects that a `testbenches.bench.Bench` moves once a cycle: `drive` before the
clock edge sets the inputs, `sample` just before the edge reads what was handed over.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain, repeat
from typing import Any

import cocotb
from cocotb.types import LogicArray

Pauses = Callable[[random.Random], Iterator[bool]]
"""From a random generator to an endless row of decisions: True is a pause in that cycle."""


def no_pauses(rng: random.Random) -> Iterator[bool]:
    """Never pause."""
    return repeat(False)


def random_pauses(rng: random.Random) -> Iterator[bool]:
    """Pause in half of all cycles, each by itself."""
    while True:
        yield rng.random() < 0.5


def bursty_pauses(rng: random.Random) -> Iterator[bool]:
    """Alternate runs of transfers and of pauses, 1 to 40 cycles each."""
    while True:
        yield from repeat(False, rng.randint(1, 40))
        yield from repeat(True, rng.randint(1, 40))


def adversarial_pauses(rng: random.Random) -> Iterator[bool]:
    """Offer single cycles, long silences and sudden full rate: what breaks a skid buffer."""
    while True:
        yield from chain([False], repeat(True, rng.randint(1, 3)), repeat(False, 2), [True])
        if rng.random() < 0.05:
            yield from chain(repeat(True, 100), repeat(False, 100))


def pause_until(cycle: int) -> Iterator[bool]:
    """Pause for some cycles, until everything before is full; never again."""
    return chain(repeat(True, cycle), repeat(False))


def filling_pauses(rng: random.Random) -> Iterator[bool]:
    """Pause until what is before is likely full, and take a few: each place of a queue is used."""
    while True:
        yield from chain(repeat(True, rng.randint(40, 160)), repeat(False, rng.randint(1, 6)))


def until_offered(sink: "StreamSink", cycles: int = 0) -> Iterator[bool]:
    """Pause a sink until something has been offered to it for some cycles: it waits for valid."""
    while True:
        while sink.offer is None:
            yield True
        yield from chain(repeat(True, cycles), [False])


def not_before_offered(sink: "StreamSink", pauses: Iterator[bool]) -> Iterator[bool]:
    """Pause a sink as told, and until something is offered: no stream may wait for `ready`."""
    return (pause or sink.offer is None for pause in pauses)


PAUSES: dict[str, Pauses] = {
    "none": no_pauses,
    "random": random_pauses,
    "bursty": bursty_pauses,
    "adversarial": adversarial_pauses,
}
"""Every pause pattern by name."""


@cache
def four_states() -> bool:
    """Return whether the simulator has four states: then tests check the same on fewer values.

    The simulator's name is not yet known when this module is imported.
    """
    return cocotb.is_simulation and "icarus" in cocotb.SIM_NAME.lower()


def read(port: Any) -> int:
    """Return what stands at a port, a `Port` or cocotb's handle.

    Bits that a four-state simulator does not know are drawn at random: a value that nobody may rely
    on is thus never taken for a particular one.
    """
    bits = port.bits if isinstance(port, Port) else str(port.value)
    try:
        return int(bits, 2)
    except ValueError:
        return int(LogicArray(bits).resolve("random"))


AT_ONCE = 3
"""cocotb's number for a write that takes effect at once."""


class Port:
    """A port that is written at once, and only where its value changes.

    cocotb by itself keeps writes for a later phase of the same moment, for which the simulator
    evaluates the design once more; a bench writes half a cycle before anything looks, and needs no
    phases. Who writes through this writes a port through nothing else. Icarus, which leaves
    registers undefined when clock and reset are written at once, is written as cocotb does it.

    Values pass by cocotb's types, which cost more than the simulator's own work for them.

    Parameters
    ----------
    handle : Any
        cocotb's handle.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.width = len(handle)
        self._driven: int | str | None = None
        self._object = handle._handle
        self._immediate = not four_states()

    @property
    def bits(self) -> str:
        """What stands at the port in binary digits, the most significant first."""
        return self._object.get_signal_val_binstr()

    @bits.setter
    def bits(self, bits: str) -> None:
        if bits == self._driven:
            return
        if len(bits) != self.width:
            raise ValueError(f"{self.handle._name} takes {self.width} bits, not {len(bits)}")
        self._driven = bits
        if self._immediate:
            self._object.set_signal_val_binstr(AT_ONCE, bits)
        else:
            self.handle.value = bits

    @property
    def value(self) -> int:
        """What stands at the port; a ValueError where a bit is not known."""
        return int(self._object.get_signal_val_binstr(), 2)

    @value.setter
    def value(self, value: int) -> None:
        if value == self._driven:
            return
        if value >> self.width:
            raise ValueError(f"{self.handle._name} takes {self.width} bits, not {value:#x}")
        self._driven = value
        if not self._immediate:
            self.handle.value = value
        elif self.width <= 32:
            self._object.set_signal_val_int(AT_ONCE, value)
        else:
            self._object.set_signal_val_binstr(AT_ONCE, f"{value:0{self.width}b}")


class Stream:
    """One stream's ports.

    Parameters
    ----------
    dut : Any
        The design under test.
    name : str
        The stream's name; its ports are ``<name>_payload``, ``<name>_valid``, ``<name>_ready``.
    """

    def __init__(self, dut: Any, name: str) -> None:
        self.name = name
        self.payload = Port(getattr(dut, f"{name}_payload"))
        self.valid = Port(getattr(dut, f"{name}_valid"))
        self.ready = Port(getattr(dut, f"{name}_ready"))

    def transfers(self) -> bool:
        """Whether a payload is handed over at the coming clock edge."""
        return bool(self.valid.value and self.ready.value)


class StreamSource:
    """Offer packed payloads to an input stream, each until it is taken.

    Members
    -------
    taken : int
        Payloads handed over since the last reset.
    accepted : bool
        Whether one was handed over in the cycle just sampled.
    """

    def __init__(self, dut: Any, name: str, pauses: Iterator[bool]) -> None:
        self.stream = Stream(dut, name)
        self.pauses = pauses
        self.waiting: deque[int] = deque()
        self.clear()

    def clear(self) -> None:
        """Forget what was offered, as in a reset."""
        self.waiting.clear()
        self.taken = 0
        self.offered = False
        self.accepted = False
        self.stream.valid.value = 0

    def send(self, payloads: Iterable[int]) -> None:
        """Add payloads to those that wait."""
        self.waiting.extend(payloads)

    def drive(self) -> None:
        """Offer the next payload unless this cycle pauses; never take back an offer."""
        if not self.offered and self.waiting and not next(self.pauses):
            self.offered = True
            self.stream.payload.value = self.waiting[0]
            self.stream.valid.value = 1
        elif self.accepted and not self.offered:
            self.stream.valid.value = 0

    def sample(self) -> None:
        """See whether the offer is taken."""
        self.accepted = self.offered and bool(self.stream.ready.value)
        if self.accepted:
            self.waiting.popleft()
            self.offered = False
            self.taken += 1

    @property
    def idle(self) -> bool:
        """Whether nothing waits."""
        return not self.waiting


class StreamSink:
    """Take packed payloads from an output stream, and check that an offer stands until it is taken.

    Members
    -------
    received : list[tuple[int, int]]
        Cycle and payload of everything taken.
    """

    def __init__(self, dut: Any, name: str, pauses: Iterator[bool], clock: Any) -> None:
        self.stream = Stream(dut, name)
        self.pauses = pauses
        self.clock = clock
        self.received: list[tuple[int, int]] = []
        self.clear()

    def clear(self) -> None:
        """Refuse until driven again, and forget the open offer."""
        self.accepts = False
        self.offer: str | None = None
        self.stream.ready.value = 0

    def drive(self) -> None:
        """Decide whether this cycle accepts."""
        self.accepts = not next(self.pauses)
        self.stream.ready.value = self.accepts

    def sample(self) -> None:
        """Keep what is handed over; require what was offered before: valid, and its payload."""
        stream = self.stream
        valid = stream.valid.value
        if self.offer is not None:
            where = f"cycle {self.clock.cycle}: stream {stream.name}"
            assert valid, f"{where} took back an offer that nobody had accepted"
            payload = stream.payload.bits
            assert payload == self.offer, f"{where} changed an offer that nobody had accepted"
        if valid and self.accepts:
            self.received.append((self.clock.cycle, read(stream.payload)))
        self.offer = stream.payload.bits if valid and not self.accepts else None

"""Drivers and monitors of valid/ready streams, and patterns of pauses.

They are plain objects that a `testbenches.bench.Bench` calls once per cycle: `drive` before the
clock edge sets the inputs, `sample` just before the edge reads the transfers.
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
"""Map a random generator to an endless sequence of decisions: True pauses in that cycle."""


def no_pauses(rng: random.Random) -> Iterator[bool]:
    """Never pause."""
    return repeat(False)


def random_pauses(rng: random.Random) -> Iterator[bool]:
    """Pause in half of all cycles, independently."""
    while True:
        yield rng.random() < 0.5


def bursty_pauses(rng: random.Random) -> Iterator[bool]:
    """Alternate runs of transfers and of pauses, 1 to 40 cycles each."""
    while True:
        yield from repeat(False, rng.randint(1, 40))
        yield from repeat(True, rng.randint(1, 40))


def adversarial_pauses(rng: random.Random) -> Iterator[bool]:
    """Alternate single transfers, long pauses and sudden full rate, which stress a skid buffer."""
    while True:
        yield from chain([False], repeat(True, rng.randint(1, 3)), repeat(False, 2), [True])
        if rng.random() < 0.05:
            yield from chain(repeat(True, 100), repeat(False, 100))


def pause_until(cycle: int) -> Iterator[bool]:
    """Pause for some cycles, until all buffers are full; then never."""
    return chain(repeat(True, cycle), repeat(False))


def filling_pauses(rng: random.Random) -> Iterator[bool]:
    """Pause until buffers are likely full, then accept a few items, to use every FIFO entry."""
    while True:
        yield from chain(repeat(True, rng.randint(40, 160)), repeat(False, rng.randint(1, 6)))


def until_offered(sink: "StreamSink", cycles: int = 0) -> Iterator[bool]:
    """Pause a sink until `valid` has been asserted for some cycles."""
    while True:
        while sink.offer is None:
            yield True
        yield from chain(repeat(True, cycles), [False])


def not_before_offered(sink: "StreamSink", pauses: Iterator[bool]) -> Iterator[bool]:
    """Combine pauses with a wait for `valid`: no source may wait for `ready`."""
    return (pause or sink.offer is None for pause in pauses)


PAUSES: dict[str, Pauses] = {
    "none": no_pauses,
    "random": random_pauses,
    "bursty": bursty_pauses,
    "adversarial": adversarial_pauses,
}
"""Every pause pattern that tests apply in all combinations, by name."""

PATTERNS = PAUSES | {"filling": filling_pauses}
"""All pause patterns by name."""


@cache
def four_states() -> bool:
    """Return whether the simulator has four states, in which case tests use fewer values.

    The simulator's name is not known when this module is imported.
    """
    return cocotb.is_simulation and "icarus" in cocotb.SIM_NAME.lower()


def read(port: Any) -> int:
    """Return the value of a port, a `Port` or cocotb's handle.

    Unknown bits of a four-state simulator become random, so that no test can depend on a particular
    value of them.
    """
    bits = port.bits if isinstance(port, Port) else str(port.value)
    try:
        return int(bits, 2)
    except ValueError:
        return int(LogicArray(bits).resolve("random"))


AT_ONCE = 3
"""cocotb's code for an immediate write."""


class Port:
    """A port that is written immediately, and only if its value changes.

    cocotb defers writes to a later phase of the same time step, for which the simulator evaluates
    the design again. A bench writes half a cycle before any sampling, and needs no phases. A port
    that is written through this class must not be written otherwise. In Icarus, registers remain
    undefined if clock and reset are written immediately, so its ports are written through cocotb.

    Accesses bypass cocotb's types, which take longer than the simulator itself.

    Parameters
    ----------
    handle : Any
        cocotb's handle of the port.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.width = len(handle)
        self._driven: int | str | None = None
        self._object = handle._handle
        self._immediate = not four_states()

    @property
    def bits(self) -> str:
        """The value of the port as binary digits, most significant first."""
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
        """The value of the port; raises ValueError if a bit is unknown."""
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
    """The ports of one stream.

    Parameters
    ----------
    dut : Any
        The design under test.
    name : str
        Name of the stream; its ports are ``<name>_payload``, ``<name>_valid``, ``<name>_ready``.
    """

    def __init__(self, dut: Any, name: str) -> None:
        self.name = name
        self.payload = Port(getattr(dut, f"{name}_payload"))
        self.valid = Port(getattr(dut, f"{name}_valid"))
        self.ready = Port(getattr(dut, f"{name}_ready"))

    def transfers(self) -> bool:
        """Return whether a transfer occurs at the next clock edge."""
        return bool(self.valid.value and self.ready.value)


class StreamSource:
    """Driver of an input stream: offers each packed payload until its transfer.

    Members
    -------
    taken : int
        Number of transfers since the last reset.
    offered : bool
        A payload is valid and not transferred yet.
    accepted : bool
        A transfer occurred in the cycle just sampled.
    """

    def __init__(self, dut: Any, name: str, pauses: Iterator[bool]) -> None:
        self.stream = Stream(dut, name)
        self.pauses = pauses
        self.waiting: deque[int] = deque()
        self.taken = 0
        self.offered = self.accepted = False
        self.clear()

    def clear(self) -> None:
        """Discard all payloads, as in a reset."""
        self.waiting.clear()
        self.taken = 0
        self.offered = False
        self.accepted = False
        self.stream.valid.value = 0

    def send(self, payloads: Iterable[int]) -> None:
        """Append payloads to the queue."""
        self.waiting.extend(payloads)

    def drive(self) -> None:
        """Offer the next payload unless this cycle pauses; hold an offer until its transfer."""
        if not self.offered and self.waiting and not next(self.pauses):
            self.offered = True
            self.stream.payload.value = self.waiting[0]
            self.stream.valid.value = 1
        elif self.accepted and not self.offered:
            self.stream.valid.value = 0

    def sample(self) -> None:
        """Record whether a transfer occurs."""
        self.accepted = self.offered and bool(self.stream.ready.value)
        if self.accepted:
            self.waiting.popleft()
            self.offered = False
            self.taken += 1

    @property
    def idle(self) -> bool:
        """Whether the queue is empty."""
        return not self.waiting


class StreamSink:
    """Receiver of an output stream; checks that an offer is unchanged until its transfer.

    Members
    -------
    received : list[tuple[int, int]]
        Cycle and payload of every transfer since the last reset.
    accepts : bool
        `ready` is asserted in this cycle.
    offer : str | None
        Payload that is valid but not transferred yet.
    """

    def __init__(self, dut: Any, name: str, pauses: Iterator[bool], clock: Any) -> None:
        self.stream = Stream(dut, name)
        self.pauses = pauses
        self.clock = clock
        self.received: list[tuple[int, int]] = []
        self.accepts = False
        self.offer: str | None = None
        self.clear()

    def clear(self) -> None:
        """Discard all items and a pending offer; deassert `ready` until driven again."""
        self.received.clear()
        self.accepts = False
        self.offer = None
        self.stream.ready.value = 0

    def drive(self) -> None:
        """Decide whether to accept in this cycle."""
        self.accepts = not next(self.pauses)
        self.stream.ready.value = self.accepts

    def sample(self) -> None:
        """Record a transfer; check that a pending offer is still valid and unchanged."""
        stream = self.stream
        valid = stream.valid.value
        if self.offer is not None:
            where = f"cycle {self.clock.cycle}: stream {stream.name}"
            assert valid, f"{where} deasserted valid before the transfer"
            payload = stream.payload.bits
            assert payload == self.offer, f"{where} changed the payload before the transfer"
        if valid and self.accepts:
            self.received.append((self.clock.cycle, read(stream.payload)))
        self.offer = stream.payload.bits if valid and not self.accepts else None

"""The memory outside a design: bursts by request, with latency, limited bandwidth and stalls.

`BurstReads` and `BurstWrites` keep the time of a port's streams and leave to their owner what an
address means; `BurstMemory` puts a numpy array behind `hdl.memory.burst_port`'s signatures.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbenches.packing import from_integers, to_integers, unpack
from testbenches.streams import Stream, read

Octets = NDArray[np.uint8]

OUTSTANDING = 8
"""Requests that are taken ahead."""


class BurstReads:
    """Answer each request with its payloads, one behind the other.

    Parameters
    ----------
    dut : Any
        The design under test.
    requests, words : str
        Names of the two streams.
    fetch : Callable[[int], Iterable[int]]
        From a packed request to the packed payloads; called when the request is taken.
    pauses : tuple[Iterator[bool], Iterator[bool]]
        Of requests and of payloads.
    latency : int
        Cycles from a request to its first payload.
    bandwidth : Fraction
        Payloads a cycle at most, up to 1.
    times : Callable[[int, int], Iterable[int]] | None
        From a packed request and its cycle to the first cycle of each payload, instead of the
        latency.

    Members
    -------
    beats : int
        Payloads handed over.
    """

    def __init__(
        self,
        dut: Any,
        *,
        requests: str,
        words: str,
        fetch: Callable[[int], Iterable[int]],
        pauses: tuple[Iterator[bool], Iterator[bool]],
        latency: int = 24,
        bandwidth: Fraction = Fraction(1),
        times: Callable[[int, int], Iterable[int]] | None = None,
    ) -> None:
        self.requests, self.words = Stream(dut, requests), Stream(dut, words)
        self.fetch, self.pauses = fetch, pauses
        # Payloads that may be offered are counted in units of the bandwidth's denominator.
        self.gained, self.payload = bandwidth.numerator, bandwidth.denominator
        self.times = times or (lambda _request, cycle: repeat(cycle + latency))
        self.cycle = 0
        self.clear()

    def clear(self) -> None:
        """Forget the bursts, as in a reset."""
        self.bursts: deque[Iterator[tuple[int, int]]] = deque()
        self.coming: tuple[int, int] | None = None
        self.offered: int | None = None
        self.accepts = self.accepted = False
        self.credit = self.payload
        self.beats = 0
        self.words.valid.value = 0
        self.requests.ready.value = 0

    def drive(self) -> None:
        """Offer the next payload that is due."""
        self.accepts = len(self.bursts) < OUTSTANDING and not next(self.pauses[0])
        self.requests.ready.value = self.accepts
        if self.offered is None and self.credit >= self.payload and not next(self.pauses[1]):
            self.offered = self._next()
            if self.offered is not None:
                self.credit -= self.payload
                self.words.payload.value = self.offered
                self.words.valid.value = 1
        if self.offered is None and self.accepted:
            self.words.valid.value = 0

    def _next(self) -> int | None:
        while self.coming is None and self.bursts:
            self.coming = next(self.bursts[0], None)
            if self.coming is None:
                self.bursts.popleft()
        if self.coming is None or self.coming[0] > self.cycle:
            return None
        payload, self.coming = self.coming[1], None
        return payload

    def sample(self) -> None:
        """See what was handed over."""
        self.cycle += 1
        # What is not used in time is lost.
        self.credit = min(self.credit + self.gained, self.payload)
        if self.requests.valid.value and self.accepts:
            request = read(self.requests.payload)
            payloads = zip(self.times(request, self.cycle), self.fetch(request), strict=False)
            self.bursts.append(payloads)
        self.accepted = self.offered is not None and bool(self.words.ready.value)
        if self.accepted:
            self.offered = None
            self.beats += 1


class BurstWrites:
    """Hand every payload that a stream gives to its owner.

    Attach it before the reads of the same memory: a burst sees all that was written before it.

    Parameters
    ----------
    dut : Any
        The design under test.
    name : str
        The stream.
    keep : Callable[[int], None]
        Takes a packed payload.
    pauses : Iterator[bool]
        Of the stream.

    Members
    -------
    beats : int
        Payloads taken.
    """

    def __init__(
        self, dut: Any, name: str, *, keep: Callable[[int], None], pauses: Iterator[bool]
    ) -> None:
        self.stream = Stream(dut, name)
        self.keep, self.pauses = keep, pauses
        self.clear()

    def clear(self) -> None:
        """Refuse until driven again."""
        self.beats = 0
        self.accepts = False
        self.stream.ready.value = 0

    def drive(self) -> None:
        """Decide whether this cycle accepts."""
        self.accepts = not next(self.pauses)
        self.stream.ready.value = self.accepts

    def sample(self) -> None:
        """Hand over what is there."""
        if self.stream.valid.value and self.accepts:
            self.beats += 1
            self.keep(read(self.stream.payload))


class BurstMemory:
    """A memory of words, and any number of ports to it.

    Parameters
    ----------
    dut : Any
        The design under test.
    words : numpy.ndarray
        uint8, shape (words, octets of a word), least significant first; writes change it.
    place : Callable[[int], int], optional
        Says which word an address means, by default that of its number.

    Members
    -------
    parts : list
        What a bench must move, in this order: `clear`, `drive` and `sample` of each.
    """

    def __init__(
        self, dut: Any, words: Octets, place: Callable[[int], int] = lambda address: address
    ) -> None:
        self.dut, self.words, self.place = dut, words, place
        self._writes: list[Any] = []
        self._reads: list[Any] = []

    @property
    def parts(self) -> list[Any]:
        """Every port, those that write first."""
        return [*self._writes, *self._reads]

    def add_reads(
        self,
        port: Any,
        requests: str,
        words: str,
        pauses: tuple[Iterator[bool], Iterator[bool]],
        **timing: Any,
    ) -> BurstReads:
        """Serve a `BurstReadPort` by its streams' names; `timing` as of `BurstReads`."""

        def fetch(request: int) -> list[int]:
            first, length = _burst(port, request, self)
            block = np.unpackbits(self.words[first : first + length], axis=1, bitorder="little")
            width = port.word_layout["word"].width
            last = np.arange(length) == length - 1
            return to_integers(np.concatenate([block[:, :width], last[:, np.newaxis]], axis=1))

        reads = BurstReads(
            self.dut, requests=requests, words=words, fetch=fetch, pauses=pauses, **timing
        )
        self._reads.append(reads)
        return reads

    def add_writes(
        self,
        port: Any,
        requests: str,
        words: str,
        pauses: tuple[Iterator[bool], Iterator[bool]],
    ) -> BurstWrites:
        """Serve a `BurstWritePort` by its streams' names; return what takes its words."""
        writes = _WritePort(port, self, (requests, words), pauses)
        self._writes.append(writes)
        return writes.streams[1]


class _WritePort:
    """Both streams of a `BurstWritePort`; words may come before their request."""

    def __init__(
        self,
        port: Any,
        memory: BurstMemory,
        names: tuple[str, str],
        pauses: tuple[Iterator[bool], Iterator[bool]],
    ) -> None:
        self.port, self.memory = port, memory
        self.width = port.word_layout["word"].width
        self.streams = [
            BurstWrites(memory.dut, name, keep=keep, pauses=own)
            for name, keep, own in zip(names, (self._ask, self._take), pauses, strict=True)
        ]
        self.clear()

    def clear(self) -> None:
        """Forget what has not met, as in a reset."""
        self.addresses: deque[tuple[int, bool]] = deque()
        self.waiting: deque[tuple[int, bool]] = deque()
        for stream in self.streams:
            stream.clear()

    def drive(self) -> None:
        """Decide what this cycle accepts."""
        for stream in self.streams:
            stream.drive()

    def sample(self) -> None:
        """Write each word whose request is there."""
        for stream in self.streams:
            stream.sample()
        while self.addresses and self.waiting:
            (address, ends), (word, last) = self.addresses.popleft(), self.waiting.popleft()
            assert ends == last, f"a burst's last word does not end it at address {address}"
            bits = np.packbits(from_integers([word], self.width)[0], bitorder="little")
            self.memory.words[address, : len(bits)] = bits

    def _ask(self, request: int) -> None:
        first, length = _burst(self.port, request, self.memory)
        self.addresses.extend((first + n, n == length - 1) for n in range(length))

    def _take(self, payload: int) -> None:
        self.waiting.append((payload & (1 << self.width) - 1, bool(payload >> self.width)))


def _burst(port: Any, request: int, memory: BurstMemory) -> tuple[int, int]:
    """Return which word a burst begins with and its length, which is at least one word."""
    layout = port.request_layout
    fields = unpack(layout, from_integers([request], layout.size))
    first, length = int(fields["address"][0]), int(fields["length"][0])
    assert length, f"a burst at address {first} has no word"
    word = memory.place(first)
    assert word >= 0 and memory.place(first + length - 1) == word + length - 1, (
        f"a burst at address {first} leaves the memory"
    )
    return word, length

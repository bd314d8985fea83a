"""Model of the external memory: bursts by request, with latency, limited bandwidth and stalls.

`BurstReads` and `BurstWrites` model the timing of a port's streams; their owner defines the meaning
of an address. `BurstMemory` connects a numpy array to ports of `hdl.memory.burst_port`.
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

Bytes = NDArray[np.uint8]

OUTSTANDING = 8
"""Maximum number of accepted requests in flight."""


class BurstReads:
    """Answer each request with its payloads, sequentially.

    Parameters
    ----------
    dut : Any
        The design under test.
    requests, words : str
        Names of the two streams.
    fetch : Callable[[int], Iterable[int]]
        Return the packed payloads of a packed request; called when the request is accepted.
    pauses : tuple[Iterator[bool], Iterator[bool]]
        Pauses of requests and of payloads.
    latency : int
        Cycles from a request to its first payload.
    bandwidth : Fraction
        Maximum number of payloads per cycle, up to 1.
    times : Callable[[int, int], Iterable[int]] | None
        Return the earliest cycle of each payload, given a packed request and its cycle; replaces
        the latency.

    Members
    -------
    beats : int
        Number of payloads transferred.
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
        # Credit for payloads is counted in units of the bandwidth's denominator.
        self.gained, self.payload = bandwidth.numerator, bandwidth.denominator
        self.times = times or (lambda _request, cycle: repeat(cycle + latency))
        self.cycle = 0
        self.bursts: deque[Iterator[tuple[int, int]]] = deque()
        self.upcoming: tuple[int, int] | None = None
        self.offered: int | None = None
        self.accepts = self.accepted = False
        self.credit = self.payload
        self.beats = 0
        self.clear()

    def clear(self) -> None:
        """Discard all bursts, as in a reset."""
        self.bursts = deque()
        self.upcoming = None
        self.offered = None
        self.accepts = self.accepted = False
        self.credit = self.payload
        self.beats = 0
        self.words.valid.value = 0
        self.requests.ready.value = 0

    def drive(self) -> None:
        """Offer the next payload if it is due."""
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
        while self.upcoming is None and self.bursts:
            self.upcoming = next(self.bursts[0], None)
            if self.upcoming is None:
                self.bursts.popleft()
        if self.upcoming is None or self.upcoming[0] > self.cycle:
            return None
        payload, self.upcoming = self.upcoming[1], None
        return payload

    def sample(self) -> None:
        """Record the transfers of this cycle."""
        self.cycle += 1
        # Unused bandwidth does not accumulate.
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
    """Pass every payload of a stream to its owner.

    Attach it before the reads of the same memory: a burst reads all words written before it.

    Parameters
    ----------
    dut : Any
        The design under test.
    name : str
        Name of the stream.
    keep : Callable[[int], None]
        Store a packed payload.
    pauses : Iterator[bool]
        Pauses of the stream.

    Members
    -------
    beats : int
        Number of payloads accepted.
    """

    def __init__(
        self, dut: Any, name: str, *, keep: Callable[[int], None], pauses: Iterator[bool]
    ) -> None:
        self.stream = Stream(dut, name)
        self.keep, self.pauses = keep, pauses
        self.beats = 0
        self.accepts = False
        self.clear()

    def clear(self) -> None:
        """Deassert `ready` until driven again."""
        self.beats = 0
        self.accepts = False
        self.stream.ready.value = 0

    def drive(self) -> None:
        """Decide whether to accept in this cycle."""
        self.accepts = not next(self.pauses)
        self.stream.ready.value = self.accepts

    def sample(self) -> None:
        """Pass on the payload of a transfer."""
        if self.stream.valid.value and self.accepts:
            self.beats += 1
            self.keep(read(self.stream.payload))


class BurstMemory:
    """A memory of words with any number of ports.

    Parameters
    ----------
    dut : Any
        The design under test.
    words : numpy.ndarray
        uint8, shape (words, bytes per word), least significant first; writes modify it.
    place : Callable[[int], int], optional
        Map an address to the index of its word; the identity by default.

    Members
    -------
    parts : list
        Parts for a bench to drive, in this order, each with `clear`, `drive` and `sample`.
    """

    def __init__(
        self, dut: Any, words: Bytes, place: Callable[[int], int] = lambda address: address
    ) -> None:
        self.dut, self.words, self.place = dut, words, place
        self._writes: list[Any] = []
        self._reads: list[Any] = []

    @property
    def parts(self) -> list[Any]:
        """All ports, write ports first."""
        return [*self._writes, *self._reads]

    def add_reads(
        self,
        port: Any,
        requests: str,
        words: str,
        pauses: tuple[Iterator[bool], Iterator[bool]],
        **timing: Any,
    ) -> BurstReads:
        """Serve a `BurstReadPort`, given its streams' names; `timing` as for `BurstReads`."""

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
        """Serve a `BurstWritePort`, given its streams' names; return the sink of its words."""
        writes = _WritePort(port, self, (requests, words), pauses)
        self._writes.append(writes)
        return writes.streams[1]


class _WritePort:
    """Both streams of a `BurstWritePort`; words may precede their request."""

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
        self.addresses: deque[tuple[int, bool]] = deque()
        self.waiting: deque[tuple[int, bool]] = deque()
        self.clear()

    def clear(self) -> None:
        """Discard unmatched requests and words, as in a reset."""
        self.addresses = deque()
        self.waiting = deque()
        for stream in self.streams:
            stream.clear()

    def drive(self) -> None:
        """Decide what to accept in this cycle."""
        for stream in self.streams:
            stream.drive()

    def sample(self) -> None:
        """Write each word that has a request."""
        for stream in self.streams:
            stream.sample()
        while self.addresses and self.waiting:
            (address, ends), (word, last) = self.addresses.popleft(), self.waiting.popleft()
            assert ends == last, f"`last` must mark the last word of a burst, at address {address}"
            bits = np.packbits(from_integers([word], self.width)[0], bitorder="little")
            self.memory.words[address, : len(bits)] = bits

    def _ask(self, request: int) -> None:
        first, length = _burst(self.port, request, self.memory)
        self.addresses.extend((first + n, n == length - 1) for n in range(length))

    def _take(self, payload: int) -> None:
        self.waiting.append((payload & (1 << self.width) - 1, bool(payload >> self.width)))


def _burst(port: Any, request: int, memory: BurstMemory) -> tuple[int, int]:
    """Return the first word of a burst and its length, which must be at least one word."""
    layout = port.request_layout
    fields = unpack(layout, from_integers([request], layout.size))
    first, length = int(fields["address"][0]), int(fields["length"][0])
    assert length, f"a burst must have at least one word, at address {first}"
    word = memory.place(first)
    assert word >= 0 and memory.place(first + length - 1) == word + length - 1, (
        f"a burst must lie within the memory, at address {first}"
    )
    return word, length

"""Random requests for the AXI4 masters, and drivers of their plain ports."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from golden.shell.axi_bursts import Request
from hdl.shell.axi import PAGE_BYTES
from hdl.shell.axi_parameters import AxiMasterParameters
from testbenches.streams import Port

MOST_WORDS = 4096
"""Longest request of a testbench in words."""


def random_requests(p: AxiMasterParameters, rng: random.Random, *, beats: int) -> list[Request]:
    """Return requests of all lengths, about a number of beats in total.

    Many end or begin near a page, near the end of the memory, and near the end of the address
    space, where addresses wrap.
    """
    requests, left = list[Request](), beats
    while left > 0:
        most = min(p.longest, MOST_WORDS, max(1, left * p.lanes // p.beats), 1 << p.address_bits)
        length = rng.choice([1, rng.randint(1, most), rng.randint(1, min(most, 4 * p.lanes)), most])
        address = rng.choice([0, 1, rng.getrandbits(p.address_bits), (1 << p.address_bits) - 1])
        address = min(address, (1 << p.address_bits) - length)
        base = rng.getrandbits(p.beat_address_bits)
        if rng.random() < 0.5:
            # The first word is a few beats before a page.
            page = PAGE_BYTES // p.data_bytes
            offset = address * p.word_bytes // p.data_bytes
            near = rng.randint(0, 1 + max(1, min(page, length * p.beats)))
            base = (base // page * page - offset - near) % (1 << p.beat_address_bits)
        requests.append(Request(base, address, length))
        left -= max(1, length * p.beats // p.lanes)
    return requests


def long_requests(p: AxiMasterParameters, rng: random.Random, *, beats: int) -> list[Request]:
    """Return equal requests of whole blocks, about a number of beats in total."""
    words = p.block_beats * p.lanes // p.beats
    blocks = min(p.longest, 1 << p.address_bits, MOST_WORDS) // words if words else 0
    length = blocks * words if blocks else 1
    base = rng.getrandbits(p.beat_address_bits) // p.block_beats * p.block_beats
    number = max(1, beats * p.lanes // p.beats // length)
    return [Request(base, 0, length)] * number


def covers_latency(p: AxiMasterParameters, latency: int) -> bool:
    """Return whether the bursts in flight of `long_requests` cover a memory's latency.

    A burst is replaced when it is complete: the others must be long enough, with the stages of the
    master and of the memory.
    """
    words = p.block_beats * p.lanes // p.beats
    whole = 0 < words <= min(p.longest, 1 << p.address_bits)
    return whole and (p.outstanding - 1) * p.block_beats * p.lanes >= latency + 8


class BaseDriver:
    """Driver of `base`: valid with each request, random otherwise.

    Parameters
    ----------
    bench : Bench
        Clock and design.
    source : StreamSource
        Driver of the requests; it is a part of the bench before this one.
    """

    def __init__(self, bench: Any, source: Any) -> None:
        self.bench, self.source = bench, source
        self.base = Port(bench.dut.base)
        self.requests: list[Request] = []

    def clear(self) -> None:
        """Discard all requests."""
        self.requests.clear()

    def offer(self, requests: Sequence[Request]) -> None:
        """Append the bases of requests."""
        self.requests.extend(requests)

    def drive(self) -> None:
        """Set the base of the offered request."""
        if self.source.offered:
            self.base.value = self.requests[self.source.taken].base
        else:
            self.base.value = self.bench.rng.getrandbits(self.base.width)

    def sample(self) -> None:
        """Do nothing: only the streams advance."""


class ErrorResponses:
    """Error responses at random addresses, the same for equal addresses.

    Parameters
    ----------
    rng : random.Random
        Generator.
    share : float
        Fraction of addresses with an error.
    """

    def __init__(self, rng: random.Random, share: float) -> None:
        self.seed, self.share = rng.getrandbits(32), share

    def __call__(self, address: int) -> int:
        """Return the code of a response."""
        own = random.Random(f"{self.seed} {address}")
        return own.choice([1, 2, 3]) if own.random() < self.share else 0


def integers(pairs: Sequence[tuple[int, int]]) -> Any:
    """Return pairs of addresses and values [pairs, 2]; an address may have 64 bits."""
    return np.array(pairs, np.uint64).reshape(-1, 2).view(np.int64)

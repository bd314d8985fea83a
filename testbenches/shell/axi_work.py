"""Random requests for the AXI4 masters, and drivers of their plain ports."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from golden.shell.axi_bursts import Request, first_error
from hdl.shell.axi import PAGE_BYTES
from hdl.shell.axi_parameters import AxiMasterParameters
from testbenches.streams import Port, four_states

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


def request_fields(requests: Sequence[Request]) -> dict[str, Any]:
    """Return the fields of requests at a burst port, each shape (requests,)."""
    names = ("address", "length")
    return {name: np.array([getattr(one, name) for one in requests]) for name in names}


def latched_error(dut: Any) -> tuple[int, int]:
    """Return cause and address of a master's latched error."""
    value = Port(dut.error).value
    return value & 3, value >> 2


async def report_errors(
    one: Any, requests_of: Callable[[Any], list[Request]], addresses_of: Callable[..., list[int]]
) -> None:
    """Check that a master reports the first error response and keeps it until it is cleared.

    Parameters
    ----------
    one : ReadBench or WriteBench
        Testbench whose memory gives error responses.
    requests_of : Callable
        Return the requests of the testbench's work.
    addresses_of : Callable
        Return the address of each response to requests, in order, for the parameters.
    """
    for _ in range(3 if four_states() else 12):
        await one.bench.reset()
        assert latched_error(one.bench.dut)[0] == 0, "a reset clears the error"
        for _ in range(2):
            work = one.work(100)
            one.restart()
            one.offer(work)
            await one.finish(work)
            addresses = addresses_of(one.parameters, requests_of(work))
            expected = first_error([(each, each) for each in addresses], one.respond)
            got = latched_error(one.bench.dut)
            got = got if expected[0] else (got[0], 0)
            one.bench.compare("error", integers([expected]), integers([got]))
            one.clear_error.value = 1
            await one.bench.step()
            one.clear_error.value = 0
            assert latched_error(one.bench.dut)[0] == 0, "clear_error clears the error"


def integers(pairs: Sequence[tuple[int, int]]) -> Any:
    """Return pairs of addresses and values [pairs, 2]; an address may have 64 bits."""
    return np.array(pairs, np.uint64).reshape(-1, 2).view(np.int64)

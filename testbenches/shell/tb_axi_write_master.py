"""Testbench of the write master: AXI4 rules, strobes, stalls, visibility, errors, flush, resets."""

from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from golden.shell.axi_bursts import Request, all_bursts
from golden.shell.axi_write_master import words_complete, written_bytes
from hdl.shell.axi_parameters import AxiMasterParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.packing import pack, to_integers
from testbenches.shared_tests import reset_test, stall_test
from testbenches.shell.axi_memory import AxiWrites, SparseMemory
from testbenches.shell.axi_work import (
    BaseDriver,
    ErrorResponses,
    covers_latency,
    integers,
    long_requests,
    random_requests,
    report_errors,
    request_fields,
)
from testbenches.streams import Port, four_states

LATENCY = 20
"""Latency of the memory in cycles, in the test of the throughput."""

BEATS = 250
"""Beats of a test's work."""


@dataclass(frozen=True)
class Work:
    """Requests, and their words [words, word_bytes]."""

    requests: list[Request]
    words: NDArray[np.int64]


class WriteBench:
    """The master between its burst port and a memory.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Pause patterns of requests and words, and of all channels of the memory.
    latency : int
        Latency of responses in cycles.
    errors : float
        Fraction of bursts with an error response.
    order : str
        Order in which the memory accepts addresses and data, see `AxiWrites`.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        sink: str = "none",
        *,
        latency: int = 4,
        errors: float = 0,
        order: str = "any",
    ) -> None:
        self.parameters: AxiMasterParameters = catalog_parameters()
        p = self.parameters
        self.bench = Bench(dut, salt)
        self.rng = self.bench.rng
        self.requests = self.bench.source("port_requests", source)
        self.words = self.bench.source("port_words", source)
        self.base = self.bench.add(BaseDriver(self.bench, self.requests))
        self.respond = ErrorResponses(self.rng, errors)
        self.writes: AxiWrites = self.bench.add(
            AxiWrites(
                self.bench,
                "m_axi_",
                data_bytes=p.data_bytes,
                memory=SparseMemory(),
                pauses=(
                    self.bench.pauses(sink),
                    self.bench.pauses(sink),
                    self.bench.pauses(sink),
                ),
                latency=latency,
                respond=self.respond,
                order=order,
            )
        )
        self.flush, self.clear_error = Port(dut.flush), Port(dut.clear_error)
        self.idle, self.pending = Port(dut.idle), Port(dut.pending)
        self.flush.value = self.clear_error.value = 0
        self.visibility = self.bench.add(Visibility(self))
        self.offered: list[Work] = []

    def work(self, beats: int = BEATS) -> Work:
        """Return random requests with random words."""
        p = self.parameters
        requests = random_requests(p, self.rng, beats=beats // 8 if four_states() else beats)
        count = sum(one.length for one in requests)
        words = self.bench.numpy_rng.integers(0, 256, (count, p.word_bytes), np.int64)
        return Work(requests, words)

    def offer(self, work: Work) -> None:
        """Queue requests and words."""
        fields = request_fields(work.requests)
        self.base.offer(work.requests)
        self.visibility.complete += words_complete(self.parameters, work.requests)
        self.requests.send(to_integers(pack(self.parameters.writes.request_layout, fields)))
        layout = data.StructLayout(
            {"word": data.ArrayLayout(8, self.parameters.word_bytes), "last": 1}
        )
        last = np.concatenate([np.arange(n) == n - 1 for n in fields["length"]]).astype(int)
        self.words.send(to_integers(pack(layout, {"word": work.words, "last": last})))

    async def run(self, work: Work) -> int:
        """Reset, write, and compare; return the cycles."""
        await self.bench.reset()
        self.offer(work)
        return await self.finish(work)

    async def finish(self, work: Work) -> int:
        """Write work that is offered; compare bursts, and bytes in order; return the cycles."""
        cycles = await self.bench.run(
            until=lambda: self.words.idle and self.requests.idle and bool(self.idle.value)
        )
        await self.bench.step(20)
        bursts = [(one.address, one.beats) for one in all_bursts(self.parameters, work.requests)]
        self.bench.compare("bursts", integers(bursts), integers(self.writes.bursts))
        addresses, values = written_bytes(self.parameters, work.requests, work.words)
        got = integers(self.writes.written)
        self.bench.compare("addresses", addresses, got[:, 0])
        self.bench.compare("bytes", values, got[:, 1])
        assert self.writes.idle, "each burst has one response"
        return cycles

    def restart(self) -> None:
        """Forget all work, without a reset."""
        for part in (self.requests, self.words, self.base, self.visibility):
            part.clear()
        self.writes.bursts.clear()
        self.writes.forget()


class Visibility:
    """Monitor: `pending` is asserted while an accepted word has no response."""

    def __init__(self, bench: WriteBench) -> None:
        self.bench = bench
        self.complete: list[int] = []
        self.accepted = self.responses = 0

    def clear(self) -> None:
        """Expect no word."""
        self.complete.clear()
        self.accepted = self.responses = 0

    def drive(self) -> None:
        """Do nothing."""

    def sample(self) -> None:
        """Compare `pending` with words and responses of earlier cycles."""
        one = self.bench
        # Without words there may be responses of a flush.
        if self.accepted and self.accepted > (
            self.complete[self.responses - 1] if self.responses else 0
        ):
            assert one.pending.value, f"cycle {one.bench.cycle}: a word is not visible yet"
        # The bench samples the streams before this part.
        self.accepted, self.responses = one.words.taken, one.writes.responses


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Write long bursts back to back: one beat or one word per cycle, without a pause."""
    one = WriteBench(dut, "full rate", latency=LATENCY)
    p = one.parameters
    requests = long_requests(p, one.rng, beats=1200)
    count = sum(request.length for request in requests)
    words = one.bench.numpy_rng.integers(0, 256, (count, p.word_bytes), np.int64)
    await one.run(Work(requests, words))
    cycles = one.writes.cycles[-1] - one.writes.cycles[0] + 1
    # A beat of several words takes as many cycles; the first beat is not counted.
    ideal = max(len(one.writes.cycles), count - p.lanes + 1)
    one.bench.record(cycles=cycles, ideal_cycles=ideal, tensors="none: random bytes")
    if covers_latency(p, LATENCY):
        one.bench.compare("cycles", np.array([ideal]), np.array([cycles]))


stalls = stall_test(WriteBench, WriteBench.work)


def burst_addresses(p: AxiMasterParameters, requests: list[Request]) -> list[int]:
    """Return the address of each AXI4 burst, which has one response."""
    return [burst.address for burst in all_bursts(p, requests)]


def short_work(bench: WriteBench) -> Work:
    """Return few requests."""
    return bench.work(120)


resets = reset_test(WriteBench, short_work, longest=90, times=6, rounds=3)


@cocotb.test()
@cocotb.parametrize(order=["data", "address"])
async def orders(dut: Any, order: str) -> None:
    """Write to memories that wait for one channel before they accept the other."""
    one = WriteBench(dut, f"orders {order}", "random", "random", order=order)
    await one.run(one.work())


@cocotb.test()
async def slow_memory(dut: Any) -> None:
    """Fill the queue of bursts in flight: the memory answers late."""
    one = WriteBench(dut, "slow memory", latency=90)
    await one.run(one.work(300))


@cocotb.test()
@cocotb.parametrize(slow=["port_requests", "port_words"])
async def slow_stream(dut: Any, slow: str) -> None:
    """Stall one stream of the burst port; words precede or follow their requests."""
    one = WriteBench(dut, f"slow stream {slow}")
    one.bench.streams[slow].pauses = one.bench.pauses("filling")
    await one.run(one.work(100))


@cocotb.test()
async def errors(dut: Any) -> None:
    """Report the first error response, and keep it until it is cleared."""
    one = WriteBench(dut, "errors", "random", "random", errors=0.2)
    await report_errors(one, lambda work: work.requests, burst_addresses)


@cocotb.test()
async def flushes(dut: Any) -> None:
    """Flush in the middle of bursts: AXI4 bursts complete, and write no further byte."""
    one = WriteBench(dut, "flushes", "random", "bursty", errors=0.05)
    await one.bench.reset()
    for _ in range(3 if four_states() else 15):
        work = one.work(200)
        one.offer(work)
        await one.bench.step(one.rng.randint(1, 120))
        taken = one.words.taken
        for part in (one.requests, one.words, one.base, one.visibility):
            part.clear()
        one.flush.value = 1
        await one.bench.step()
        await one.bench.run(until=lambda: bool(one.idle.value))
        assert one.writes.idle, "all bursts are complete when the master is idle"
        # Words of an incomplete beat, or a beat of an incomplete word, may be lost or written.
        addresses, values = written_bytes(one.parameters, work.requests, work.words)
        got = integers(one.writes.written)
        one.bench.compare("addresses", addresses[: len(got)], got[:, 0])
        one.bench.compare("bytes", values[: len(got)], got[:, 1])
        most = (taken + 1) * one.parameters.word_bytes
        assert len(got) <= most, "a flush must write no byte of a word that was not accepted"
        assert (
            len(got)
            >= (taken - one.parameters.lanes - 1) * one.parameters.word_bytes
            - 3 * one.parameters.data_bytes
        )
        one.flush.value = 0
        one.restart()
        later = one.work(60)
        one.offer(later)
        await one.finish(later)
        one.restart()

"""Testbench of the read master: AXI4 rules, widths, stalls, errors, flush, resets."""

from itertools import repeat
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data

from golden.shell.axi_bursts import Request, all_bursts
from golden.shell.axi_read_master import beat_addresses, read_words
from hdl.shell.axi_parameters import AxiMasterParameters
from testbenches.bench import catalog_parameters
from testbenches.shared_tests import reset_test, slow_stream_test, stall_test
from testbenches.shell.axi_memory import AxiReads, SparseMemory
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
from testbenches.unit_bench import UnitBench

LATENCY = 20
"""Latency of the memory in cycles, in the test of the throughput."""

BEATS = 300
"""Beats of a test's work."""


class ReadBench(UnitBench[list[Request]]):
    """The master between its burst port and a memory.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Pause patterns of requests and AXI4 data, and of words and AXI4 addresses.
    latency : int
        Latency of the memory in cycles.
    errors : float
        Fraction of beats with an error response.
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
    ) -> None:
        p: AxiMasterParameters = catalog_parameters()
        bytes_layout = data.ArrayLayout(8, p.word_bytes)
        super().__init__(
            dut,
            salt,
            source,
            sink,
            inputs={"port_requests": p.reads.request_layout},
            outputs={"port_words": data.StructLayout({"word": bytes_layout, "last": 1})},
            offered=self.fields,
            expected=self.words,
        )
        self.parameters = p
        self.rng = self.bench.rng
        self.respond = ErrorResponses(self.rng, errors)
        self.memory = SparseMemory(self.rng.getrandbits(16))
        self.base = self.bench.add(BaseDriver(self.bench, self.sources["port_requests"]))
        self.reads: AxiReads = self.bench.add(
            AxiReads(
                self.bench,
                "m_axi_",
                data_bytes=p.data_bytes,
                memory=self.memory,
                pauses=(self.bench.pauses(sink), self.bench.pauses(source)),
                latency=latency,
                respond=self.respond,
            )
        )
        self.hold, self.flush, self.clear_error = (
            Port(port) for port in (dut.hold, dut.flush, dut.clear_error)
        )
        self.idle = Port(dut.idle)
        for port in (self.hold, self.flush, self.clear_error):
            port.value = 0

    def fields(self, work: list[Request]) -> dict[str, Any]:
        """Return the items of the input for requests."""
        self.base.offer(work)
        return {"port_requests": request_fields(work)}

    def words(self, work: list[Request]) -> dict[str, Any]:
        """Return the expected items of the output."""
        words, last = read_words(self.parameters, work, self.memory.byte)
        return {"port_words": {"word": words, "last": last}}

    async def finish(self, work: list[Request]) -> int:
        """Compare all words, then the bursts at the AXI4 port; the master is idle afterwards."""
        cycles = await super().finish(work)
        bursts = [(one.address, one.beats) for one in all_bursts(self.parameters, work)]
        self.bench.compare("bursts", integers(bursts), integers(self.reads.bursts))
        assert self.idle.value and self.reads.idle, "no burst is in flight after all words"
        return cycles

    def work(self, beats: int = BEATS) -> list[Request]:
        """Return random requests."""
        return random_requests(
            self.parameters, self.rng, beats=beats // 8 if four_states() else beats
        )

    def restart(self) -> None:
        """Forget all work, without a reset."""
        for part in (self.sources["port_requests"], self.sinks["port_words"], self.base):
            part.clear()
        self.reads.bursts.clear()


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Read long bursts back to back: one beat or one word per cycle, without a pause."""
    one = ReadBench(dut, "full rate", latency=LATENCY)
    p = one.parameters
    await one.run(long_requests(p, one.rng, beats=1200))
    received = [cycle for cycle, _payload in one.sinks["port_words"].received]
    first = one.reads.cycles[0]
    cycles = received[-1] - first
    ideal = max(len(one.reads.cycles), len(received))
    one.bench.record(cycles=cycles, ideal_cycles=ideal, tensors="none: addresses as data")
    if covers_latency(p, LATENCY):
        one.bench.compare("cycles", np.array([ideal]), np.array([cycles]))


stalls = stall_test(ReadBench, ReadBench.work)


def short_work(bench: ReadBench) -> list[Request]:
    """Return few requests."""
    return bench.work(120)


resets = reset_test(ReadBench, short_work, longest=90, times=6, rounds=3)
slow_stream = slow_stream_test(
    ReadBench, ReadBench.work, streams=["port_requests", "port_words"], patterns=["filling"]
)


@cocotb.test()
async def slow_memory(dut: Any) -> None:
    """Fill the queue of bursts in flight: the memory answers late."""
    one = ReadBench(dut, "slow memory", "none", "none", latency=90)
    await one.run(one.work(300))


@cocotb.test()
async def errors(dut: Any) -> None:
    """Report the first error response, keep it until it is cleared, and deliver all words."""
    one = ReadBench(dut, "errors", "random", "random", errors=0.02)
    await report_errors(one, list, beat_addresses)


@cocotb.test()
async def held(dut: Any) -> None:
    """Accept no request while `hold` is asserted, and lose none."""
    one = ReadBench(dut, "held", "none", "random")
    ready = Port(dut.port_requests_ready)

    class Hold:
        """Driver of `hold`, which checks `ready`."""

        def __init__(self) -> None:
            self.pauses = one.bench.pauses("bursty")

        def clear(self) -> None:
            """Do nothing."""

        def drive(self) -> None:
            """Assert `hold` in some cycles."""
            one.hold.value = next(self.pauses)

        def sample(self) -> None:
            """Check that no request is accepted."""
            assert not (one.hold.value and ready.value), "a request must wait for `hold`"

    one.bench.add(Hold())
    await one.run(one.work())


@cocotb.test()
async def flushes(dut: Any) -> None:
    """Flush in the middle of bursts: AXI4 bursts complete, later work is not affected."""
    one = ReadBench(dut, "flushes", "random", "bursty", errors=0.01)
    await one.bench.reset()
    for _ in range(3 if four_states() else 15):
        one.offer(one.work(200))
        await one.bench.step(one.rng.randint(1, 120))
        one.sources["port_requests"].clear()
        one.sinks["port_words"].clear()
        one.base.clear()
        # A design in reset accepts no words.
        sink = one.sinks["port_words"]
        pauses, sink.pauses = sink.pauses, repeat(True)
        one.flush.value = 1
        await one.bench.step()
        await one.bench.run(until=lambda: bool(one.idle.value))
        assert one.reads.idle, "all bursts are complete when the master is idle"
        assert not one.sinks["port_words"].received, "no word is output during a flush"
        sink.pauses = pauses
        one.flush.value = 0
        one.reads.bursts.clear()
        work = one.work(60)
        one.offer(work)
        await one.finish(work)
        one.restart()

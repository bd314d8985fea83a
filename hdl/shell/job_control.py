"""Control of jobs: the fetch of a program, its end, and the stop after an error."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class JobControl(Unit):
    """Fetch the parts of a program, and end a job when all its work is complete.

    A job takes one number from the host for each part of the program: how many words of the part
    are fetched. It ends when the accelerator, the memory ports and the outputs are idle.

    A flush or an error stops the job: `stop` is asserted until all memory ports and outputs are
    idle, after an error also until the host clears it. A job that starts meanwhile ends at once,
    and the numbers that the host writes are discarded.

    **Latency** 1 cycle from `error` to `stop`. **Throughput** one number per cycle.

    Parameters
    ----------
    parts : int
        Parts of a program, 1 to 8.
    longest : int
        Maximum words of a part.
    token_bits : int
        Bits of a number of the host.

    Members
    -------
    start : In(1), finish : Out(1)
        A job starts; no work is in progress, which ends the job.
    flush : In(1), idle : Out(1)
        The host stops the job; the stop is complete.
    numbers : In(stream)
        Words of each part, in order.
    fetches : Out(array of streams)
        Words to fetch of each part. A number above `longest` is output as ``longest + 1``, which
        `RegionGuard` refuses.
    error, clear_errors : In(1)
        An error is latched; the host clears all errors in this cycle.
    ports_idle, outputs_idle, core_idle : In(1)
        All memory ports, all outputs to the host, and the accelerator with its program are idle.
    stop : Out(1)
        Reset the accelerator, and flush all memory ports.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def __init__(self, *, parts: int, longest: int, token_bits: int) -> None:
        require_range("parts", parts, 1, 8)
        require_range("token_bits", token_bits, 1, 32)
        self.parts, self.longest = parts, longest
        fetch = stream.Signature(range(longest + 2))
        super().__init__(
            {
                "start": In(1),
                "finish": Out(1),
                "flush": In(1),
                "idle": Out(1),
                "numbers": In(stream.Signature(token_bits)),
                "fetches": Out(fetch).array(parts),
                "error": In(1),
                "clear_errors": In(1),
                "ports_idle": In(1),
                "outputs_idle": In(1),
                "core_idle": In(1),
                "stop": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch part after part, then wait for the end; a stop returns to the first state."""
        m = Module()
        failed, running = Signal(), Signal()
        part = Signal(range(self.parts + 1))
        number, quiet, stops = self.numbers.payload, Signal(), Signal()
        halt, fetching, accepted = Signal(), Signal(), Signal()
        m.d.comb += [
            quiet.eq(self.ports_idle & self.outputs_idle),
            stops.eq(self.flush | self.error | failed),
            halt.eq(stops | self.stop),
            self.idle.eq(self.stop & quiet),
            fetching.eq(running & (part != self.parts) & ~halt),
            accepted.eq(Array(one.ready for one in self.fetches)[part] & fetching),
            # A stop discards the numbers that are left.
            self.numbers.ready.eq(accepted | self.stop),
            # Every word is in a memory port, in the program's stage, or in the accelerator: no
            # cycle between them is idle.
            self.finish.eq(quiet & (self.stop | (running & (part == self.parts) & self.core_idle))),
        ]
        for index, fetch in enumerate(self.fetches):
            m.d.comb += [
                fetch.payload.eq(Mux(number > self.longest, self.longest + 1, number)),
                fetch.valid.eq(self.numbers.valid & fetching & (part == index)),
            ]
        with m.If(self.numbers.valid & accepted):
            m.d.sync += part.eq(part + 1)
        with m.If(self.start):
            m.d.sync += [running.eq(1), part.eq(0)]
        with m.Elif(self.finish | halt):
            m.d.sync += running.eq(0)
        # The sources hold their errors in the cycle that clears them.
        with m.If(self.clear_errors):
            m.d.sync += failed.eq(0)
        with m.Elif(self.error):
            m.d.sync += failed.eq(1)
        m.d.sync += self.stop.eq(stops | (self.stop & ~quiet))
        return m

"""MEADOW with the AXI shell: AXI4 ports to memory, and AXI4-Lite registers for the host."""

from typing import Any

from amaranth.hdl import (
    Cat,
    ClockDomain,
    ClockSignal,
    Const,
    DomainRenamer,
    Module,
    ResetSignal,
    Value,
)
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.meadow.meadow import Meadow
from hdl.shell.axi import AxiLiteSignature, Cause
from hdl.shell.axi_registers import AxiRegisters
from hdl.shell.job_control import JobControl
from hdl.shell.meadow_axi_parameters import (
    PROGRAM,
    TOKEN_BITS,
    WORDS_PER_PREDICTION,
    MeadowAxiParameters,
)
from hdl.shell.memory_port import MemoryPort, MemoryReads, MemoryWrites
from hdl.stream.connect import connect_handshake, connect_streams, every
from hdl.stream.register_slice import RegisterSlice
from hdl.stream.serialiser import Serialiser
from hdl.unit import Unit


class MeadowAxi(Unit):
    """MEADOW whose memories are regions of AXI4 memories, started and observed by registers.

    `hdl/shell/register_map.py` defines the registers. Base ``2 n`` is the first byte of region n of
    `MeadowAxiParameters.regions`, base ``2 n + 1`` the first byte after it. A word of a region has
    the bytes of its port, rounded up to whole beats or to a power of two below a beat. Regions must
    not overlap.

    The host writes a program, its instructions and descriptions of matrices, to memory. It writes
    the number of instructions and the number of matrices to `token_in`, and starts. The job ends
    when the whole program is complete and all written words have their responses. Each item of
    `predictions` is two output tokens: the token of the vocabulary, and the low 32 bits of its sum.

    The first error ends the job: MEADOW is reset, all AXI4 bursts are completed, and writes in
    flight have no strobes. An instruction that was not read correctly has no effect on memory.
    Causes are an error response; a request outside its region, DECERR; and errors of packets, an
    unexpected response whose address is `errors` of `Meadow`. The sources are the ports in the
    order of `MeadowAxiParameters.ports`, then MEADOW. Until the host clears the error, every job
    ends at once and input tokens are discarded.

    A flush ends a job in the same way.

    **Latency** of a job: that of its instructions, of one access to memory, and 10 cycles.
    **Throughput** that of `Meadow`, if the memories deliver a word per port and cycle.

    Parameters
    ----------
    parameters : MeadowAxiParameters
        Dimensions of MEADOW and of the AXI4 ports.

    Members
    -------
    s_axi : In(AxiLiteSignature)
        The registers.
    interrupt_request : Out(1)
        An enabled interrupt occurred and is not cleared.
    m_axi_instructions, m_axi_matrices : Out(AxiReadSignature)
        The parts of the program.
    m_axi_<port> : Out(AxiReadSignature or AxiWriteSignature)
        A memory port of `Meadow`, such as `m_axi_vector_reads`.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `MeadowAxiParameters`.
    """

    def __init__(self, *, parameters: MeadowAxiParameters) -> None:
        self.parameters = p = parameters
        ports = {}
        for port in p.ports:
            master = p.master(port.word_bits)
            ports[f"m_axi_{port.name}"] = Out(
                master.axi_writes if port.writes else master.axi_reads
            )
        super().__init__(
            {
                "s_axi": In(AxiLiteSignature(address_bits=p.registers.address_bits)),
                "interrupt_request": Out(1),
                **ports,
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect MEADOW, its memory ports, the registers and the control of jobs."""
        m = Module()
        p = self.parameters
        m.submodules.registers = registers = AxiRegisters(parameters=p.registers)
        m.submodules.control = control = JobControl(
            parts=len(PROGRAM), longest=p.meadow.longest_burst, token_bits=TOKEN_BITS
        )
        # The stop resets MEADOW without the registers and the memory ports.
        m.domains.core = ClockDomain(local=True)
        m.d.comb += [
            ClockSignal("core").eq(ClockSignal()),
            ResetSignal("core").eq(ResetSignal() | control.stop),
        ]
        core = Meadow(parameters=p.meadow)
        m.submodules.core = DomainRenamer("core")(core)
        ports = self._memory_ports(m, registers, control)
        # An instruction waits until all earlier writes have their responses, so that it reads what
        # they wrote. Its own reads must not wait for its writes, which depend on them.
        written = every([ports[one.name].idle for one in p.ports if one.writes])
        permits = {"instructions": written, "matrices": Const(1)}
        stages = [
            self._fetch(m, name, ports[name].port, fetch, getattr(core, name), permits[name])
            for name, fetch in zip(PROGRAM, control.fetches, strict=True)
        ]
        # A stop empties the stages.
        with m.If(control.stop):
            m.d.comb += [stage.sink.ready.eq(1) for stage in stages]
        self._connect_memory(m, core, ports)
        outputs_idle = self._output(m, core, registers)
        flags = Value.cast(core.errors)
        error = registers.errors[p.core_source]
        connect(m, flipped(self.s_axi), registers.s_axi)
        connect_streams(m, registers.tokens_in, control.numbers)
        m.d.comb += [
            self.interrupt_request.eq(registers.interrupt_request),
            control.start.eq(registers.start),
            control.flush.eq(registers.flush),
            control.clear_errors.eq(registers.clear_errors),
            registers.finish.eq(control.finish),
            registers.idle.eq(control.idle),
            core.clear_flags.eq(registers.clear_errors),
            Value.cast(error.cause).eq(flags.any() * Cause.UNEXPECTED.value),
            error.address.eq(flags),
            control.error.eq(Cat(Value.cast(one.cause) for one in registers.errors).any()),
            control.ports_idle.eq(every([port.idle for port in ports.values()])),
            control.outputs_idle.eq(outputs_idle),
            control.core_idle.eq(core.idle & ~Cat(stage.sink.valid for stage in stages).any()),
        ]
        return m

    def _memory_ports(
        self, m: Module, registers: AxiRegisters, control: JobControl
    ) -> dict[str, MemoryPort]:
        """Instantiate the port of each memory, with its region and its errors."""
        p, regions, ports = self.parameters, list(self.parameters.regions), {}
        for number, one in enumerate(p.ports):
            kind = MemoryWrites if one.writes else MemoryReads
            port = ports[one.name] = kind(parameters=p.master(one.word_bits))
            m.submodules[one.name] = port
            region = regions.index(one.region)
            connect(m, flipped(getattr(self, f"m_axi_{one.name}")), port.m_axi)
            m.d.comb += [
                port.first.eq(registers.bases[2 * region]),
                port.end.eq(registers.bases[2 * region + 1]),
                port.flush.eq(control.stop),
                port.clear_error.eq(registers.clear_errors),
                registers.errors[number].eq(port.error),
            ]
        return ports

    def _fetch(
        self,
        m: Module,
        name: str,
        port: Any,
        fetch: stream.Interface,
        items: stream.Interface,
        permit: Value,
    ) -> RegisterSlice:
        """Fetch a part of the program; return the stage from which MEADOW takes it with `permit`.

        An error response is visible when its word is in the stage. If MEADOW takes the word in that
        cycle, the stop discards the word's first requests: they reach no memory.
        """
        bits = len(Value.cast(items.payload))
        m.submodules[f"{name}_stage"] = stage = RegisterSlice(shape=bits)
        connect_handshake(m, fetch, port.requests)
        connect_handshake(m, port.words, stage.source)
        m.d.comb += [
            port.requests.payload.length.eq(fetch.payload),
            stage.source.payload.eq(Value.cast(port.words.payload.word)[:bits]),
            Value.cast(items.payload).eq(stage.sink.payload),
            items.valid.eq(stage.sink.valid & permit),
            stage.sink.ready.eq(items.ready & permit),
        ]
        return stage

    def _connect_memory(self, m: Module, core: Meadow, ports: dict[str, MemoryPort]) -> None:
        """Connect the burst ports of MEADOW, whose words have no padding."""
        for one in self.parameters.ports:
            if one.name in PROGRAM:
                continue
            inner, outer = getattr(core, one.name), ports[one.name].port
            connect_streams(m, inner.requests, outer.requests)
            source, sink = (inner, outer) if one.writes else (outer, inner)
            connect_handshake(m, source.words, sink.words)
            bits = one.word_bits
            m.d.comb += [
                Value.cast(sink.words.payload.word)[:bits].eq(
                    Value.cast(source.words.payload.word)[:bits]
                ),
                sink.words.payload.last.eq(source.words.payload.last),
            ]

    def _output(self, m: Module, core: Meadow, registers: AxiRegisters) -> Value:
        """Output each prediction as two tokens; return whether none is left."""
        m.submodules.pairs = pairs = Serialiser(shape=TOKEN_BITS, items=WORDS_PER_PREDICTION)
        found, group = core.predictions.payload, pairs.groups.payload
        connect_handshake(m, core.predictions, pairs.groups)
        connect_handshake(m, pairs.items, registers.tokens_out)
        m.d.comb += [
            group["items"][0].eq(found.token),
            # Signed, so that the sum is extended.
            group["items"][1].eq(found.sum),
            registers.tokens_out.payload.eq(pairs.items.payload["item"]),
        ]
        return ~pairs.items.valid

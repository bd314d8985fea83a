"""VEDA with the AXI shell: AXI4 ports to memory, and AXI4-Lite registers for the host."""

from typing import Any

from amaranth.hdl import Const, Module, Value

from hdl.shell.accelerator_shell import AcceleratorShell
from hdl.shell.axi_registers import AxiRegisters
from hdl.shell.memory_port import MemoryPort
from hdl.shell.veda_axi_parameters import VedaAxiParameters
from hdl.shell.veda_memory import VedaMemory
from hdl.stream.connect import connect_streams


class VedaAxi(AcceleratorShell):
    """VEDA whose memories are regions of AXI4 memories, started and observed by registers.

    Regions, jobs and errors are those of `AcceleratorShell`. The parts of a program are the
    instructions; the places of the vote counts of each token of each instruction; vectors of
    attention alone; and hidden states. Output tokens are predictions and victims, see `TokenKind`.
    Outputs of attention alone and hidden states that leave are written to regions, from their first
    word on in each job. The address of an error of VEDA itself is `errors` of `VedaMemory`.

    A job ends when all results of its instructions are output. An instruction whose hidden states
    stay inside has none, so the last instruction of a job should be another one.

    **Latency** of a job: that of its instructions, of two accesses to memory, and 10 cycles.
    **Throughput** that of `Veda`, if the memories deliver a line per channel and cycle.

    Parameters
    ----------
    parameters : VedaAxiParameters
        Dimensions of VEDA and of the AXI4 ports.

    Members
    -------
    s_axi : In(AxiLiteSignature)
        The registers.
    interrupt_request : Out(1)
        An enabled interrupt occurred and is not cleared.
    m_axi_<port> : Out(AxiReadSignature or AxiWriteSignature)
        The AXI4 port of each of `VedaAxiParameters.ports`, such as `m_axi_line_reads_0`.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `VedaAxiParameters`.
    """

    def __init__(self, *, parameters: VedaAxiParameters) -> None:
        super().__init__(parameters=parameters)

    def core(self) -> VedaMemory:
        """Return VEDA with its address generators."""
        return VedaMemory(parameters=self.parameters)

    def permits(self, m: Module, core: Any, ports: dict[str, MemoryPort]) -> dict[str, Value]:
        """Delay no instruction: the address generators delay the reads that follow a write."""
        m.d.comb += [
            core.written.eq(ports["cache_writes"].idle),
            core.counted.eq(ports["count_writes"].idle),
        ]
        return dict.fromkeys(self.parameters.program, Const(1))

    def output(self, m: Module, core: Any, registers: AxiRegisters) -> Value:
        """Output the tokens, all of which VEDA counts as results."""
        connect_streams(m, core.tokens, registers.tokens_out)
        m.d.comb += core.restart.eq(registers.start)
        return Const(1)

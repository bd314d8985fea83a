"""P3-LLM with the AXI shell: AXI4 ports to memory, and AXI4-Lite registers for the host."""

from typing import Any

from amaranth.hdl import Const, Module, Value

from hdl.shell.accelerator_shell import AcceleratorShell
from hdl.shell.axi_registers import AxiRegisters
from hdl.shell.memory_port import MemoryPort
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from hdl.shell.p3llm_memory import P3llmMemory


class P3llmAxi(AcceleratorShell):
    """P3-LLM whose banks are a region of AXI4 memory, started and observed by registers.

    Regions, jobs and errors are those of `AcceleratorShell`. The parts of a program are the
    instructions and the hidden states that they take. Each prediction is two output tokens: the
    token of the vocabulary, and its logit in binary32. The outputs of a job's layers are written to
    a region, from its first word on. The address of an error of P3-LLM itself is `errors` of
    `P3llmMemory`.

    Keys and values are in the region of the banks, so that a job depends on no earlier one.

    **Latency** of a job: that of its instructions, of one access to memory, and 10 cycles.
    **Throughput** that of `P3llm` in the cycles in which the memory has delivered the columns that
    it reads, see `P3llmMemory`.

    Parameters
    ----------
    parameters : P3llmAxiParameters
        Dimensions of P3-LLM and of the AXI4 ports.

    Members
    -------
    s_axi : In(AxiLiteSignature)
        The registers.
    interrupt_request : Out(1)
        An enabled interrupt occurred and is not cleared.
    m_axi_<port> : Out(AxiReadSignature or AxiWriteSignature)
        The AXI4 port of each of `P3llmAxiParameters.ports`, such as `m_axi_bank_reads`.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `P3llmAxiParameters`.
    """

    def __init__(self, *, parameters: P3llmAxiParameters) -> None:
        super().__init__(parameters=parameters)

    def core(self) -> P3llmMemory:
        """Return P3-LLM with the emulated banks."""
        return P3llmMemory(parameters=self.parameters)

    def permits(self, m: Module, core: Any, ports: dict[str, MemoryPort]) -> dict[str, Value]:
        """Delay no part of the program: its instructions take the hidden states."""
        m.d.comb += core.written.eq(ports["bank_writes"].idle)
        return dict.fromkeys(self.parameters.program, Const(1))

    def output(self, m: Module, core: Any, registers: AxiRegisters) -> Value:
        """Output the predictions; the outputs of a job begin at address 0."""
        m.d.comb += core.restart.eq(registers.start)
        return super().output(m, core, registers)

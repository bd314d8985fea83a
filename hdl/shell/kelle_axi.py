"""Kelle with the AXI shell: AXI4 ports to memory, and AXI4-Lite registers for the host."""

from typing import Any

from amaranth.hdl import Const, Module, Value

from hdl.shell.accelerator_shell import AcceleratorShell
from hdl.shell.axi_registers import AxiRegisters
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from hdl.shell.kelle_memory import KelleMemory
from hdl.shell.memory_port import MemoryPort


class KelleAxi(AcceleratorShell):
    """Kelle whose memories are regions of AXI4 memories, started and observed by registers.

    Regions, jobs and errors are those of `AcceleratorShell`. The parts of a program are the
    instructions, and the words that they take: scales, tokens that a prefill keeps, rows of the KV
    eDRAM, and hidden states. Each prediction is two output tokens: the token of the vocabulary, and
    the low 32 bits of its sum. Outputs and placements of a job's steps are written to regions, from
    their first word on. The address of an error of Kelle itself is `errors` of `KelleMemory`.

    The caches of Kelle are on the chip, and a job continues the text of the job before it. A stop
    clears them: after an error or a flush, the host begins the text again.

    **Latency** of a job: that of its instructions, of one access to memory, and 10 cycles.
    **Throughput** that of `Kelle`, if the memory delivers a word of weights per cycle.

    Parameters
    ----------
    parameters : KelleAxiParameters
        Dimensions of Kelle and of the AXI4 ports.

    Members
    -------
    s_axi : In(AxiLiteSignature)
        The registers.
    interrupt_request : Out(1)
        An enabled interrupt occurred and is not cleared.
    m_axi_<port> : Out(AxiReadSignature or AxiWriteSignature)
        The AXI4 port of each of `KelleAxiParameters.ports`, such as `m_axi_weight_reads`.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `KelleAxiParameters`.
    """

    def __init__(self, *, parameters: KelleAxiParameters) -> None:
        super().__init__(parameters=parameters)

    def core(self) -> KelleMemory:
        """Return Kelle with its address generators."""
        return KelleMemory(parameters=self.parameters)

    def permits(self, m: Module, core: Any, ports: dict[str, MemoryPort]) -> dict[str, Value]:
        """Delay no part of the program: its instructions take the words of the others."""
        m.d.comb += core.written.eq(ports["input_writes"].idle)
        return dict.fromkeys(self.parameters.program, Const(1))

    def output(self, m: Module, core: Any, registers: AxiRegisters) -> Value:
        """Output the predictions; the outputs of a job begin at address 0."""
        m.d.comb += core.restart.eq(registers.start)
        return super().output(m, core, registers)

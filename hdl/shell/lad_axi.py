"""LAD with the AXI shell: AXI4 ports to memory, and AXI4-Lite registers for the host."""

from typing import Any

from amaranth.hdl import Const, Module, Value

from hdl.shell.accelerator_shell import AcceleratorShell
from hdl.shell.axi_registers import AxiRegisters
from hdl.shell.head_writes import PORTS
from hdl.shell.lad_axi_parameters import LadAxiParameters
from hdl.shell.lad_memory import LadMemory
from hdl.shell.memory_port import MemoryPort
from hdl.stream.connect import every


class LadAxi(AcceleratorShell):
    """LAD whose memories are regions of AXI4 memories, started and observed by registers.

    Regions, jobs and errors are those of `AcceleratorShell`. The parts of a program are the tokens,
    and the slices of their angles and hidden states. Each prediction is two output tokens: the
    token of the vocabulary, and the code of its sum. The hidden states that LAD outputs are written
    to a region, from its first word on in each job. The address of an error of LAD itself is
    `errors` of `LadMemory`.

    Before a text, the host stores 0 in the region of the caches, and stops the accelerator by a
    flush; no other row needs an initial value. A job continues the text of the job before it. After
    an error or a flush in the middle of a token, the rows of some heads have this token and others
    have not: the host begins the text again.

    **Latency** of a job: that of its tokens, of two accesses to memory, and 10 cycles.
    **Throughput** that of `Lad`, if each port of weights delivers a word per cycle; a layer also
    takes two reads that depend on each other.

    Parameters
    ----------
    parameters : LadAxiParameters
        Dimensions of LAD and of the AXI4 ports.

    Members
    -------
    s_axi : In(AxiLiteSignature)
        The registers.
    interrupt_request : Out(1)
        An enabled interrupt occurred and is not cleared.
    m_axi_<port> : Out(AxiReadSignature or AxiWriteSignature)
        The AXI4 port of each of `LadAxiParameters.ports`, such as `m_axi_weight_reads_0`.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `LadAxiParameters`.
    """

    def __init__(self, *, parameters: LadAxiParameters) -> None:
        super().__init__(parameters=parameters)

    def core(self) -> LadMemory:
        """Return LAD with its address generators."""
        return LadMemory(parameters=self.parameters)

    def permits(self, m: Module, core: Any, ports: dict[str, MemoryPort]) -> dict[str, Value]:
        """Delay no part of the program: the address generators delay what follows a write."""
        m.d.comb += [
            core.written.eq(every([ports[name].idle for name in PORTS])),
            core.appended.eq(ports["row_writes"].idle),
        ]
        return dict.fromkeys(self.parameters.program, Const(1))

    def output(self, m: Module, core: Any, registers: AxiRegisters) -> Value:
        """Output the predictions; the outputs of a job begin at address 0."""
        m.d.comb += core.restart.eq(registers.start)
        return super().output(m, core, registers)

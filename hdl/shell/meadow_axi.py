"""MEADOW with the AXI shell: AXI4 ports to memory, and AXI4-Lite registers for the host."""

from typing import Any

from amaranth.hdl import Const, Module, Value

from hdl.meadow.meadow import Meadow
from hdl.shell.accelerator_shell import AcceleratorShell
from hdl.shell.meadow_axi_parameters import MeadowAxiParameters
from hdl.shell.memory_port import MemoryPort
from hdl.stream.connect import every


class MeadowAxi(AcceleratorShell):
    """MEADOW whose memories are regions of AXI4 memories, started and observed by registers.

    Regions, jobs and errors are those of `AcceleratorShell`. The parts of a program are its
    instructions and its descriptions of matrices. Each item of `predictions` is two output tokens:
    the token of the vocabulary, and the low 32 bits of its sum. The address of an error of MEADOW
    itself is `errors` of `Meadow`.

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
        super().__init__(parameters=parameters)

    def core(self) -> Meadow:
        """Return MEADOW."""
        return Meadow(parameters=self.parameters.meadow)

    def permits(self, m: Module, core: Any, ports: dict[str, MemoryPort]) -> dict[str, Value]:
        """Delay an instruction until all earlier writes have their responses.

        So it reads what they wrote. Its own reads must not wait for its writes, which depend on
        them.
        """
        written = every([ports[one.name].idle for one in self.parameters.ports if one.writes])
        return {"instructions": written, "matrices": Const(1)}

"""A bank of the KV eDRAM, whose access takes one or more cycles.

Table 1 of the paper has an access time in nanoseconds; the clock decides how many cycles it is.
"""

from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.memory.memory import Memory
from hdl.parameters import require_range
from hdl.unit import Unit

LONGEST_ACCESS = 4
"""Maximum number of cycles of an access."""


class EdramBank(Unit):
    """A bank with one read port and one write port, whose reads take `cycles` cycles.

    **Swap point**: an eDRAM macro whose access takes `cycles` cycles replaces this module. With one
    cycle, the banks are instances of `Memory`, with the same ports.

    The access to the cells is in the last of its cycles: it returns the word before a write of that
    cycle, and after all earlier writes.

    **Latency** `cycles` cycles. **Throughput** one read and one write per cycle.

    Parameters
    ----------
    depth : int
        Number of words.
    width : int
        Bits of a word.
    cycles : int
        Cycles of a read, 2 to `LONGEST_ACCESS`.

    Members
    -------
    read_enable, read_address, read_data, write_enable, write_address, write_data : In, Out
        As in `Memory`, except for the latency.

    Raises
    ------
    ValueError
        If a dimension is out of range.
    """

    def __init__(self, *, depth: int, width: int, cycles: int) -> None:
        require_range("cycles", cycles, 2, LONGEST_ACCESS)
        self.depth, self.width, self.cycles = depth, width, cycles
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(ceil_log2(depth)),
                "read_data": Out(width),
                "write_enable": In(1),
                "write_address": In(ceil_log2(depth)),
                "write_data": In(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Delay the address, which has fewer bits than the word."""
        m = Module()
        m.submodules.words = words = Memory(depth=self.depth, width=self.width)
        waits = self.cycles - 1
        enable = delay_line(m, self.read_enable, waits, name="enable", reset=True)[-1]
        address = delay_line(m, self.read_address, waits, name="address")[-1]
        m.d.comb += [
            words.read_enable.eq(enable),
            words.read_address.eq(address),
            self.read_data.eq(words.read_data),
            words.write_enable.eq(self.write_enable),
            words.write_address.eq(self.write_address),
            words.write_data.eq(self.write_data),
        ]
        return m

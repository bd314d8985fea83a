"""A memory with one read and one write port, and the place where a macro takes its stead.

**Swap point.** Each distinct `Memory` is emitted as a module of its own, named after its
configuration (`memory_<depth>_<width>_<granularity>`), with the ports ``clk``, ``rst``,
``read_enable``, ``read_address``, ``read_data``, ``write_enable``, ``write_address``,
``write_data`` and nothing else. To use an SRAM or eDRAM macro, leave the emitted file out of the
file list and put a module of the same name and ports around the macro. No design depends on what a
memory holds after power-up, and no initial contents are given.

`RowBuffer` infers its two memories in place; its docstring names them as swap points too.
"""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.parameters import require, require_range
from hdl.unit import Unit

LARGEST_DEPTH = 1 << 20
"""Words of a memory at most."""


class Memory(Unit):
    """A synchronous memory with one read port and one write port.

    **Old data**: a read of the address that is written in the same cycle returns what was there
    before the write. A macro whose ports do otherwise needs a bypass around it.

    **Latency** `read_data` shows the word of `read_address` in the cycle after one with
    `read_enable`, and keeps it until the cycle after the next such. **Throughput** one read and one
    write a cycle.

    Parameters
    ----------
    depth : int
        Words, 2 to 2**20.
    width : int
        Bits of a word.
    granularity : int, optional
        Bits that one bit of `write_enable` covers; the whole word by default.

    Members
    -------
    read_enable : In(1)
        Read in this cycle.
    read_address : In(address)
        Word to read; below `depth`.
    read_data : Out(width)
        The word last read.
    write_enable : In(width // granularity)
        Write these parts of the word in this cycle.
    write_address : In(address)
        Word to write; below `depth`.
    write_data : In(width)
        What to write.

    Raises
    ------
    ValueError
        If a dimension is out of range, or the granularity does not divide the width.
    """

    def __init__(self, *, depth: int, width: int, granularity: int | None = None) -> None:
        require_range("depth", depth, 2, LARGEST_DEPTH)
        require_range("width", width, 1, 1 << 16)
        part = width if granularity is None else granularity
        require_range("granularity", part, 1, width)
        require(width % part == 0, f"granularity must divide the width {width}", part)
        self.depth = depth
        self.width = width
        self.granularity = part
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(ceil_log2(depth)),
                "read_data": Out(width),
                "write_enable": In(width // part),
                "write_address": In(ceil_log2(depth)),
                "write_data": In(width),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Wrap the inferred memory."""
        m = Module()
        m.submodules.words = words = memory.Memory(shape=self.width, depth=self.depth, init=[])
        write = words.write_port(granularity=self.granularity)
        # Not transparent for any write port: this is what "old data" means here.
        read = words.read_port(transparent_for=())
        m.d.comb += [
            read.en.eq(self.read_enable),
            read.addr.eq(self.read_address),
            self.read_data.eq(read.data),
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
        ]
        return m

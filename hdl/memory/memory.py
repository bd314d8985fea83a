"""A memory with one read and one write port: the swap point for memory macros.

**Swap point.** Each distinct `Memory` is emitted as a separate module, named after its
configuration (`memory_<depth>_<width>_<granularity>`). Its only ports are ``clk``, ``rst``,
``read_enable``, ``read_address``, ``read_data``, ``write_enable``, ``write_address`` and
``write_data``. To use an SRAM or eDRAM macro, remove the emitted file from the file list and add a
wrapper of the macro with the same module name and ports. No design depends on the contents after
power-up, and no initial contents are specified.

`RowBuffer` infers its two memories in its own module; its docstring lists them as swap points.
"""

from amaranth.hdl import Module
from amaranth.lib import memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.parameters import require, require_range
from hdl.unit import Unit

LARGEST_DEPTH = 1 << 20
"""Maximum number of words."""


class Memory(Unit):
    """A synchronous memory with one read port and one write port.

    **Old data**: a read of the address that is written in the same cycle returns the word before
    the write. A macro with another behaviour needs a bypass in its wrapper.

    **Latency** `read_data` is the word at `read_address` in the cycle after one with `read_enable`,
    and keeps that value until the cycle after the next read. **Throughput** one read and one write
    per cycle.

    Parameters
    ----------
    depth : int
        Number of words, 2 to 2**20.
    width : int
        Bits of a word.
    granularity : int, optional
        Number of bits that one bit of `write_enable` controls; the whole word by default.

    Members
    -------
    read_enable : In(1)
        Read in this cycle.
    read_address : In(address)
        Address of the word to read; below `depth`.
    read_data : Out(width)
        The last read word.
    write_enable : In(width // granularity)
        Parts of the word to write in this cycle.
    write_address : In(address)
        Address of the word to write; below `depth`.
    write_data : In(width)
        Data to write.

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

    def elaborate(self, platform: object) -> Module:
        """Wrap the inferred memory."""
        m = Module()
        m.submodules.words = words = memory.Memory(shape=self.width, depth=self.depth, init=[])
        write = words.write_port(granularity=self.granularity)
        # Transparent for no write port, which implements "old data".
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

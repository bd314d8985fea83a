"""Kelle's KV cache eDRAM: 32 banks in four groups, refreshed between reads and writes.

Section 5.1 and Figure 10. Keys and values are split into their most and least significant bytes,
which are stored in separate banks, so that each half can be refreshed at its own rate.
"""

from collections.abc import Sequence
from typing import Annotated

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Member, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.kelle.edram.edram_bank import LONGEST_ACCESS, EdramBank
from hdl.memory.memory import Memory
from hdl.parameters import Parameters, PowerOfTwo, Range, option, parameter_object, require
from hdl.unit import Unit

SIDES = ("keys", "values")
"""The two sides of the cache; an input vector fills the keys' side first."""

HALVES = ("msb", "lsb")
"""The banks of bits 15 to 8, and those of bits 7 to 0."""

PS_TIMES_MHZ = 1_000_000
"""Picoseconds of a cycle, times its clock in MHz."""


@parameter_object
class KvEdramParameters(Parameters):
    """Dimensions and address map of the KV eDRAM.

    A *row* is the data of one address on one side: one channel for each byte of the group's words.
    Channel c of a row is stored in bank ``c % banks`` of its group, in byte ``c // banks``. An
    *entry* is a key and its value: `entry_words` consecutive addresses, the same on both sides. The
    entries of the stored input vectors follow those of all slots.

    Parameters
    ----------
    banks : int
        Banks of a group; there are four groups.
    word_bytes : int
        Bytes of a bank's word.
    words : int
        Words of a bank.
    head_size : int
        Channels of a key, a multiple of `banks * word_bytes`.
    slots : int
        Cached tokens per head.
    kv_heads : int
        Cached key/value heads, those of all cached layers together.
    vector_size : int
        Elements of an input vector; even.
    vectors : int
        Maximum number of stored input vectors, for recomputed tokens.
    access_ps : int
        Time of an access to a bank; the paper has 1.9 ns (Table 1).
    clock_mhz : int
        Clock of the unit, from which the cycles of an access follow.

    Raises
    ------
    ValueError
        If a rule is broken, or the address map does not fit into the banks.
    """

    banks: Annotated[int, PowerOfTwo(2, 64, "banks")] = 8
    word_bytes: Annotated[int, PowerOfTwo(1, 32, "bytes")] = 8
    words: Annotated[int, Range(4, 65536, "words")] = 16384
    head_size: Annotated[int, Range(1, 4096, "channels")] = 128
    slots: Annotated[int, Range(1, 4096, "tokens")] = 128
    kv_heads: Annotated[int, Range(1, 2048, "heads")] = 32
    vector_size: Annotated[int, Range(2, 32768, "elements")] = 4096
    vectors: Annotated[int, Range(0, 32768, "vectors")] = 16
    access_ps: Annotated[int, Range(1, 100_000, "ps")] = option(default=1900)
    clock_mhz: Annotated[int, Range(1, 10_000, "MHz")] = option(default=1000)

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(
            self.head_size % self.row_channels == 0,
            f"head_size must be a multiple of banks * word_bytes = {self.row_channels}",
            self.head_size,
        )
        require(self.vector_size % 2 == 0, "vector_size must be even", self.vector_size)
        needed = self.entries * self.entry_words
        require(
            self.words >= needed,
            f"words must be at least (slots * heads + vectors * vector_entries) * entry_words = "
            f"{needed}",
            self.words,
        )
        longest = LONGEST_ACCESS * PS_TIMES_MHZ // self.clock_mhz
        rule = f"access_ps must be at most {longest}, {LONGEST_ACCESS} cycles at {self.clock_mhz}"
        require(self.read_cycles <= LONGEST_ACCESS, f"{rule} MHz", self.access_ps)

    @property
    def read_cycles(self) -> int:
        """Cycles from the transfer of an address to its row: whole cycles of an access."""
        return -(-self.access_ps * self.clock_mhz // PS_TIMES_MHZ)

    @property
    def row_channels(self) -> int:
        """Channels of a row."""
        return self.banks * self.word_bytes

    @property
    def entry_words(self) -> int:
        """Addresses per entry."""
        return self.head_size // self.row_channels

    @property
    def vector_entries(self) -> int:
        """Entries per input vector; each side stores half of the vector."""
        return -(-self.vector_size // (2 * self.head_size))

    @property
    def entries(self) -> int:
        """Entries of all slots and all input vectors."""
        return self.slots * self.kv_heads + self.vectors * self.vector_entries

    @property
    def address_bits(self) -> int:
        """Bits of a word address."""
        return ceil_log2(self.words)

    def entry(self, head: int, slot: int) -> int:
        """Return the entry of a head's slot."""
        return head * self.slots + slot

    def vector_entry(self, vector: int) -> int:
        """Return the first entry of a stored input vector."""
        return self.slots * self.kv_heads + vector * self.vector_entries

    @property
    def row_layout(self) -> data.ArrayLayout:
        """A row as stored in the banks: `[MSB, LSB][bank]` word."""
        return data.ArrayLayout(data.ArrayLayout(8 * self.word_bytes, self.banks), len(HALVES))

    @property
    def write_layout(self) -> data.StructLayout:
        """An address and its row."""
        return data.StructLayout({"address": self.address_bits, "row": self.row_layout})


def row_of(parameters: KvEdramParameters, channels: Sequence[Value]) -> Value:
    """Wire the 16-bit channels of a row to the banks' words."""
    p = parameters
    # Channels are interleaved over the banks: neighbouring channels are in different banks.
    order = [
        channels[byte * p.banks + bank] for bank in range(p.banks) for byte in range(p.word_bytes)
    ]
    return Cat(*(channel[8:16] for channel in order), *(channel[0:8] for channel in order))


def channels_of(parameters: KvEdramParameters, row: data.View) -> list[Value]:
    """Wire the banks' words to the 16-bit channels of a row: the inverse of `row_of`."""
    p = parameters
    return [
        Cat(*(row[half][c % p.banks].word_select(c // p.banks, 8) for half in (1, 0)))
        for c in range(p.row_channels)
    ]


class KvEdram(Unit):
    """Read and write rows of keys and values, and refresh words while the banks are idle.

    The keys' side and the values' side have a read and a write port each. A refresh of one half
    reads a word of all banks of that half on both sides, and writes it back when it is read. A
    refresh is granted if no port has a request, or if it is urgent; reads and writes then wait. A
    write also waits from the cycle after a refresh to its write-back, so that a refresh never
    reverts a write.

    **Swap point**: each bank is one `EdramBank`, or with `read_cycles` of 1 one
    `hdl.memory.memory.Memory`: an emitted module of its own.

    **Latency** a row is valid `read_cycles` after its address is transferred. It is the row before
    a write of the cycle before that, and after all earlier writes. **Throughput** one read and one
    write per cycle and side, or one refreshed word per cycle and half.

    Parameters
    ----------
    parameters : KvEdramParameters
        Dimensions and address map.

    Members
    -------
    keys_read, values_read : In(stream)
        Addresses of rows to read.
    keys, values : Out(row)
        The row read, valid for the cycle in which `keys_valid` or `values_valid` is 1; there is no
        back-pressure.
    keys_valid, values_valid : Out(1)
        An address was transferred `read_cycles` earlier.
    keys_write, values_write : In(stream)
        Addresses and rows to write.
    msb, lsb : In(stream)
        Addresses to refresh in the banks of one half.
    msb_urgent, lsb_urgent : In(1)
        The offered refresh must be granted in this cycle.

    Raises
    ------
    ValueError
        If `KvEdramParameters` rejects a dimension.
    """

    def __init__(self, *, parameters: KvEdramParameters) -> None:
        p = self.parameters = parameters
        ports: dict[str, Member] = {}
        for side in SIDES:
            ports |= {
                f"{side}_read": In(stream.Signature(p.address_bits)),
                side: Out(p.row_layout),
                f"{side}_valid": Out(1),
                f"{side}_write": In(stream.Signature(p.write_layout)),
            }
        for half in HALVES:
            ports |= {half: In(stream.Signature(p.address_bits)), f"{half}_urgent": In(1)}
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        """Arbitrate between ports and refreshes, and connect the banks."""
        m = Module()
        p = self.parameters
        reads = {side: getattr(self, f"{side}_read") for side in SIDES}
        writes = {side: getattr(self, f"{side}_write") for side in SIDES}
        refreshes = {half: getattr(self, half) for half in HALVES}
        requested = Cat(port.valid for port in [*reads.values(), *writes.values()]).any()

        # An urgent refresh of either half stops reads and writes of both sides.
        preempts = Signal()
        # A refresh is a read, and a write of the same word when it is read.
        reads_back: dict[str, Value] = {}
        writes_back: dict[str, Value] = {}
        returns_to: dict[str, Value] = {}
        for half, refresh in refreshes.items():
            urgent = getattr(self, f"{half}_urgent")
            m.d.comb += refresh.ready.eq(urgent | ~requested)
            takes = Signal(name=f"{half}_takes")
            m.d.comb += takes.eq(refresh.valid & refresh.ready)
            steps = delay_line(m, takes, p.read_cycles, name=f"{half}_refresh", reset=True)
            places = delay_line(m, refresh.payload, p.read_cycles, name=f"{half}_returns_to")
            reads_back[half] = Cat(*steps[1:]).any()
            writes_back[half], returns_to[half] = steps[-1], places[-1]
        m.d.comb += preempts.eq(
            Cat(r.valid & getattr(self, f"{half}_urgent") for half, r in refreshes.items()).any()
        )

        for side in SIDES:
            read, write = reads[side], writes[side]
            takes = Signal(name=f"{side}_takes")
            m.d.comb += [
                read.ready.eq(~preempts),
                write.ready.eq(~preempts & ~Cat(*reads_back.values()).any()),
                takes.eq(read.valid & read.ready),
            ]
            valid = delay_line(m, takes, p.read_cycles, name=f"{side}_read", reset=True)[-1]
            m.d.comb += getattr(self, f"{side}_valid").eq(valid)
            # A refresh takes a word of every bank of its half, on both sides.
            for number, half in enumerate(HALVES):
                refresh, returns = refreshes[half], writes_back[half]
                for b in range(p.banks):
                    bank = self._bank()
                    m.submodules[f"{side}_{half}_{b}"] = bank
                    # A read and a refresh are never granted together; a write waits for a
                    # write-back.
                    m.d.comb += [
                        bank.read_enable.eq(takes | (refresh.valid & refresh.ready)),
                        bank.read_address.eq(Mux(takes, read.payload, refresh.payload)),
                        getattr(self, side)[number][b].eq(bank.read_data),
                        bank.write_enable.eq(returns | (write.valid & write.ready)),
                        bank.write_address.eq(
                            Mux(returns, returns_to[half], write.payload.address)
                        ),
                        bank.write_data.eq(
                            Mux(returns, bank.read_data, write.payload.row[number][b])
                        ),
                    ]
        return m

    def _bank(self) -> Memory | EdramBank:
        """Return a bank whose reads take `read_cycles`."""
        p = self.parameters
        depth, width = p.words, 8 * p.word_bytes
        if p.read_cycles == 1:
            return Memory(depth=depth, width=width)
        return EdramBank(depth=depth, width=width, cycles=p.read_cycles)

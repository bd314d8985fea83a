"""Dimensions of the AXI4 masters: the burst port, the AXI4 port, and their ratio."""

from typing import Annotated

from amaranth.lib import data, stream
from amaranth.utils import exact_log2

from hdl.memory.burst_port import BurstReadPort, BurstWritePort
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.shell.axi import (
    MOST_BEATS,
    PAGE_BYTES,
    AxiReadSignature,
    AxiWriteSignature,
    Response,
)


@parameter_object
class AxiMasterParameters(Parameters):
    """Dimensions of a master; they also configure its testbench.

    Parameters
    ----------
    address_bits : int
        Bits of an address at the burst port, which counts words.
    word_bytes : int
        Bytes per word at the burst port and in memory; a multiple of `data_bytes`, or a power of
        two below it.
    longest : int
        Words of the longest burst at the burst port.
    axi_address_bits : int
        Bits of a byte address at the AXI4 port.
    data_bytes : int
        Bytes per beat at the AXI4 port.
    burst_beats : int
        Beats of the longest AXI4 burst; 16 for a port that AXI3 limits.
    outstanding : int
        Most AXI4 bursts in flight.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    address_bits: Annotated[int, Range(1, 58, "bits")] = 26
    word_bytes: Annotated[int, Range(1, 512, "bytes")] = 64
    longest: Annotated[int, Range(1, 1 << 20, "words")] = 1 << 20
    axi_address_bits: Annotated[int, Range(12, 64, "bits")] = 40
    data_bytes: Annotated[int, PowerOfTwo(4, 128, "bytes")] = 16
    burst_beats: Annotated[int, PowerOfTwo(1, MOST_BEATS, "beats")] = MOST_BEATS
    outstanding: Annotated[int, Range(1, 32, "bursts")] = 8

    def __post_init__(self) -> None:
        """Check each parameter, the ratio of the widths, and the addresses."""
        super().__post_init__()
        require(
            self.word_bytes % self.data_bytes == 0 or self.data_bytes % self.word_bytes == 0,
            f"word_bytes must be a multiple or a divisor of the {self.data_bytes} data_bytes",
            self.word_bytes,
        )
        require(
            self.word_bytes << self.address_bits <= 1 << self.axi_address_bits,
            f"address_bits must address at most the 2**{self.axi_address_bits} bytes of AXI4",
            self.address_bits,
        )

    @property
    def beats(self) -> int:
        """Beats per word; 1 if a beat contains several words."""
        return max(1, self.word_bytes // self.data_bytes)

    @property
    def lanes(self) -> int:
        """Words per beat; 1 if a word takes several beats."""
        return max(1, self.data_bytes // self.word_bytes)

    @property
    def byte_bits(self) -> int:
        """Address bits inside a beat."""
        return exact_log2(self.data_bytes)

    @property
    def beat_address_bits(self) -> int:
        """Bits of an address that counts beats."""
        return self.axi_address_bits - self.byte_bits

    @property
    def block_beats(self) -> int:
        """Beats of an aligned block of memory that contains every AXI4 burst.

        A block is within a page, and no longer than a burst may be: both limits are one.
        """
        return min(self.burst_beats, PAGE_BYTES // self.data_bytes)

    @property
    def most_beats(self) -> int:
        """Most beats of a burst at the burst port."""
        return self.longest * self.beats + (self.lanes > 1)

    @property
    def reads(self) -> BurstReadPort:
        """The burst port of reads, as seen by the design."""
        return BurstReadPort(
            address_bits=self.address_bits, word_shape=8 * self.word_bytes, longest=self.longest
        )

    @property
    def writes(self) -> BurstWritePort:
        """The burst port of writes, as seen by the design."""
        return BurstWritePort(
            address_bits=self.address_bits, word_shape=8 * self.word_bytes, longest=self.longest
        )

    @property
    def axi_reads(self) -> AxiReadSignature:
        """The read channels, as seen by the master."""
        return AxiReadSignature(address_bits=self.axi_address_bits, data_bytes=self.data_bytes)

    @property
    def axi_writes(self) -> AxiWriteSignature:
        """The write channels, as seen by the master."""
        return AxiWriteSignature(address_bits=self.axi_address_bits, data_bytes=self.data_bytes)

    @property
    def burst_layout(self) -> data.StructLayout:
        """An AXI4 burst.

        `beat` is the address of its first beat in beats, `more` the number of further beats. The
        burst's words begin in lane `first_lane` of the first beat and end in lane `last_lane` of
        the last one. `final` marks the last AXI4 burst of a burst at the burst port.
        """
        lane = range(self.lanes)
        return data.StructLayout(
            {
                "beat": self.beat_address_bits,
                "more": range(self.block_beats),
                "first_lane": lane,
                "last_lane": lane,
                "final": 1,
            }
        )

    @property
    def address_layout(self) -> data.StructLayout:
        """What changes from burst to burst in an address channel: `addr` and `len`."""
        return data.StructLayout({"addr": self.axi_address_bits, "len": 8})

    @property
    def read_beat_layout(self) -> data.StructLayout:
        """A beat of the read channel: `data`, and the signals by which errors are found."""
        return data.StructLayout(
            {"data": 8 * self.data_bytes, "response": Response, "last": 1, "id": 1}
        )

    @property
    def write_beat_layout(self) -> data.StructLayout:
        """A beat of the write channel: `data`, a `strobe` per byte, and `last`."""
        return data.StructLayout(
            {"data": 8 * self.data_bytes, "strobe": self.data_bytes, "last": 1}
        )

    @property
    def bursts(self) -> stream.Signature:
        """Stream of AXI4 bursts."""
        return stream.Signature(self.burst_layout)

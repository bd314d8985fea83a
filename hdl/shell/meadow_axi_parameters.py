"""Dimensions of MEADOW with the AXI shell: its memory ports, regions, and registers."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from amaranth.hdl import Shape, ShapeLike

from hdl.meadow.instructions import instruction_layout, matrix_layout
from hdl.meadow.parameters import MeadowParameters
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object
from hdl.shell.axi import MOST_BEATS
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.register_map import AxiRegistersParameters

PROGRAM = ("instructions", "matrices")
"""The parts of a program, in the order in which the host writes their numbers of words."""

TOKEN_BITS = 32
"""Bits of a token register."""

WORDS_PER_PREDICTION = 2
"""Output tokens of a prediction: the token of the vocabulary, and its sum."""


@dataclass(frozen=True)
class RegionPort:
    """A burst port and its memory.

    Parameters
    ----------
    name : str
        Name of the port; that of its AXI4 port begins with ``m_axi_``.
    region : str
        Name of the region of memory.
    word_bits : int
        Bits of a word.
    writes : bool
        Whether it is a port of writes.
    """

    name: str
    region: str
    word_bits: int
    writes: bool = False


@parameter_object
class MeadowAxiParameters(Parameters):
    """Dimensions of the accelerator and of its AXI4 ports; they also configure its testbench.

    Parameters
    ----------
    meadow : MeadowParameters
        Dimensions of the accelerator.
    axi_address_bits : int
        Bits of a byte address at the AXI4 ports.
    data_bytes : int
        Bytes per beat at the AXI4 ports, and alignment of regions.
    burst_beats : int
        Beats of the longest AXI4 burst; 16 for a port that AXI3 limits.
    outstanding : int
        Most AXI4 bursts in flight per port.
    token_depth : int
        Tokens that each of the two token FIFOs stores; the host writes both numbers of a program
        before it starts the job.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    meadow: MeadowParameters = MeadowParameters()
    axi_address_bits: Annotated[int, Range(12, 64, "bits")] = 40
    data_bytes: Annotated[int, PowerOfTwo(4, 64, "bytes")] = 16
    burst_beats: Annotated[int, PowerOfTwo(1, MOST_BEATS, "beats")] = MOST_BEATS
    outstanding: Annotated[int, Range(1, 32, "bursts")] = 8
    token_depth: Annotated[int, Range(len(PROGRAM), 64, "tokens")] = 16

    def __post_init__(self) -> None:
        """Check each parameter, and those of each port."""
        super().__post_init__()
        for port in self.ports:
            self.master(port.word_bits)

    @cached_property
    def ports(self) -> tuple[RegionPort, ...]:
        """All burst ports; their order numbers the sources of errors."""
        p = self.meadow

        def bits(shape: ShapeLike) -> int:
            return Shape.cast(shape).width

        state, cached = bits(p.state_layout), bits(p.element.word_layout)
        found = [
            RegionPort("instructions", "instructions", bits(instruction_layout(p))),
            RegionPort("matrices", "matrices", bits(matrix_layout(p))),
            RegionPort("vector_reads", "vectors", state),
            RegionPort("state_writes", "vectors", state, writes=True),
            RegionPort("key_reads", "cache", cached),
            RegionPort("value_reads", "cache", cached),
            RegionPort("cache_writes", "cache", cached, writes=True),
            RegionPort("table_reads", "tables", bits(p.unpacker.rows_layout)),
            *(
                RegionPort(name, "packets", p.unpacker.unpacker.packet_bits)
                for name in p.packet_ports
            ),
        ]
        if p.biases:
            found.append(RegionPort("bias_reads", "biases", bits(p.bias_layout)))
        if p.tile_scales:
            found.append(RegionPort("scale_reads", "scales", bits(p.factor_layout)))
        return tuple(found)

    @property
    def regions(self) -> dict[str, int]:
        """Bytes per word of each region, in the order of the base addresses."""
        return {port.region: self.word_bytes(port.word_bits) for port in self.ports}

    @property
    def core_source(self) -> int:
        """Source of the errors of the accelerator itself; their address is its `errors`."""
        return len(self.ports)

    def word_bytes(self, word_bits: int) -> int:
        """Return the bytes in memory of a word: whole beats, or a part of a beat."""
        plain = -(-word_bits // 8)
        if plain > self.data_bytes:
            return -(-plain // self.data_bytes) * self.data_bytes
        return 1 << (plain - 1).bit_length()

    def master(self, word_bits: int) -> AxiMasterParameters:
        """Return the dimensions of the AXI4 master of a port."""
        return AxiMasterParameters(
            address_bits=self.meadow.address_bits,
            word_bytes=self.word_bytes(word_bits),
            longest=self.meadow.longest_burst,
            axi_address_bits=self.axi_address_bits,
            data_bytes=self.data_bytes,
            burst_beats=self.burst_beats,
            outstanding=self.outstanding,
        )

    @property
    def digest(self) -> int:
        """Digest of all parameters, which the host compares with its own."""
        return int.from_bytes(hashlib.sha256(repr(self).encode()).digest()[:4], "big")

    @property
    def registers(self) -> AxiRegistersParameters:
        """Dimensions of the register block."""
        return AxiRegistersParameters(
            bases=2 * len(self.regions),
            axi_address_bits=self.axi_address_bits,
            alignment=self.data_bytes,
            sources=len(self.ports) + 1,
            token_bits=TOKEN_BITS,
            token_depth=self.token_depth,
            digest=self.digest,
        )

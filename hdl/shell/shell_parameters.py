"""What the dimensions of all accelerators with the AXI shell have in common."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

from amaranth.lib.wiring import Member, Out

from hdl.memory.burst_port import BurstReadPort, BurstWritePort
from hdl.parameters import Parameters, PowerOfTwo, Range, named_fields, parameter_object
from hdl.shell.axi import MOST_BEATS
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.register_map import AxiRegistersParameters, as_values, registers

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
    others : tuple[str, ...]
        Further regions with words of the same size; the accelerator selects that of each request.
    """

    name: str
    region: str
    word_bits: int
    writes: bool = False
    others: tuple[str, ...] = ()

    @property
    def regions(self) -> tuple[str, ...]:
        """All regions of the port."""
        return (self.region, *self.others)


@parameter_object
class ShellParameters(Parameters):
    """Dimensions of the AXI4 ports of an accelerator; a subclass adds those of the accelerator.

    Parameters
    ----------
    axi_address_bits : int
        Bits of a byte address at the AXI4 ports.
    data_bytes : int
        Bytes per beat at the AXI4 ports, and alignment of regions.
    burst_beats : int
        Beats of the longest AXI4 burst; 16 for a port that AXI3 limits.
    outstanding : int
        Most AXI4 bursts in flight per port.
    token_depth : int
        Tokens that each of the two token FIFOs stores; the host writes one number for each part of
        a program before it starts the job.

    Members
    -------
    program : tuple[str, ...]
        The parts of a program, in the order in which the host writes their numbers of words. Each
        part has a port and a region of the same name.
    ports : tuple[RegionPort, ...]
        All burst ports; their order numbers the sources of errors.
    address_bits, longest : int
        Bits of an address in words, and words of the longest burst, of all ports.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    axi_address_bits: Annotated[int, Range(12, 64, "bits")] = 40
    data_bytes: Annotated[int, PowerOfTwo(4, 128, "bytes")] = 16
    burst_beats: Annotated[int, PowerOfTwo(1, MOST_BEATS, "beats")] = MOST_BEATS
    outstanding: Annotated[int, Range(1, 32, "bursts")] = 8
    token_depth: Annotated[int, Range(2, 64, "tokens")] = 16

    def __post_init__(self) -> None:
        """Check each parameter, and those of each port."""
        super().__post_init__()
        for port in self.ports:
            self.master(port.word_bits)

    def __repr__(self) -> str:
        """Return the parameters as text, first those of the accelerator; `digest` covers it."""
        shell = {one.name for one in fields(ShellParameters)}
        # A sort keeps the order of equal keys.
        names = sorted((one.name for one in named_fields(self)), key=lambda name: name in shell)
        listed = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({listed})"

    def manifest_sections(self) -> dict[str, Any]:
        """Return the register map and the layout of memory."""
        bases = [one.name.removesuffix("_low") for one in registers(self.registers)]
        bases = [name for name in bases if name.startswith("base_") and not name.endswith("_high")]
        return {
            "register_map": as_values(self.registers),
            "regions": [
                {
                    "name": region,
                    "first": bases[2 * number],
                    "end": bases[2 * number + 1],
                    "alignment_bytes": self.data_bytes,
                    "word_bytes": size,
                    "ports": [
                        {
                            "name": f"m_axi_{port.name}",
                            "source": source,
                            "direction": "write" if port.writes else "read",
                            "word_bits": port.word_bits,
                        }
                        for source, port in enumerate(self.ports)
                        if region in port.regions
                    ],
                }
                for number, (region, size) in enumerate(self.regions.items())
            ],
        }

    @property
    def program(self) -> tuple[str, ...]:
        """The parts of a program."""
        raise NotImplementedError

    @property
    def ports(self) -> Sequence[RegionPort]:
        """All burst ports."""
        raise NotImplementedError

    @property
    def address_bits(self) -> int:
        """Bits of an address in words."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """Words of the longest burst."""
        raise NotImplementedError

    @property
    def regions(self) -> dict[str, int]:
        """Bytes per word of each region, in the order of the base addresses.

        A port with narrower words has several of them per word of the region.
        """
        found: dict[str, int] = {}
        for port in self.ports:
            for region in port.regions:
                found[region] = max(found.get(region, 0), self.word_bytes(port.word_bits))
        return found

    @property
    def core_source(self) -> int:
        """Source of the errors of the accelerator itself; their address is its `errors`."""
        return len(self.ports)

    def core_ports(self) -> dict[str, Member]:
        """Return the burst ports of the accelerator, without those of the program."""
        found = {}
        for port in self.ports:
            if port.name not in self.program:
                kind = BurstWritePort if port.writes else BurstReadPort
                signature = kind(
                    address_bits=self.address_bits, word_shape=port.word_bits, longest=self.longest
                )
                found[port.name] = Out(signature)
        return found

    def word_bytes(self, word_bits: int) -> int:
        """Return the bytes in memory of a word: whole beats, or a part of a beat."""
        plain = -(-word_bits // 8)
        if plain > self.data_bytes:
            return -(-plain // self.data_bytes) * self.data_bytes
        return 1 << (plain - 1).bit_length()

    def master(self, word_bits: int) -> AxiMasterParameters:
        """Return the dimensions of the AXI4 master of a port."""
        return AxiMasterParameters(
            address_bits=self.address_bits,
            word_bytes=self.word_bytes(word_bits),
            longest=self.longest,
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

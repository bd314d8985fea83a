"""The register map of an accelerator as data, and its JSON, C header and table.

`registers` is the only place that defines offsets, fields and access. The hardware, the model, the
files for the host and the page are derived from it. ``python -m hdl.shell.register_map PRESET
FOLDER`` writes the JSON and the C header.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from amaranth.lib import data

from hdl import __version__
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.paths import replace_text
from hdl.shell.axi import error_layout

IDENTIFICATION = int.from_bytes(b"SYST", "big")
"""Value of the first register."""

MAP_VERSION = 1
"""Version of the register map; it changes when an offset or a meaning changes."""

WORD_BYTES = 4
"""Bytes per register."""

FIRST_BASE = 0x40
"""Offset of the first base address."""


class Access(Enum):
    """What a host may do with a register."""

    READ = "read"
    WRITE = "write"
    READ_WRITE = "read, write"
    CLEAR = "read, write 1 to clear"


@dataclass(frozen=True)
class Field:
    """Bits of a register: name, first bit, width, meaning, and access if not the register's."""

    name: str
    first: int
    width: int
    meaning: str
    access: Access | None = None


@dataclass(frozen=True)
class Register:
    """A register of 32 bits.

    Parameters
    ----------
    name : str
        Name in lower case.
    offset : int
        Byte offset, a multiple of 4.
    access : Access
        Legal accesses.
    meaning : str
        Content, and which writes are refused.
    fields : tuple[Field, ...]
        Its fields; a register without fields is one number.
    """

    name: str
    offset: int
    access: Access
    meaning: str
    fields: tuple[Field, ...] = field(default=())

    @property
    def readable(self) -> bool:
        """Whether a read returns its value."""
        return self.access is not Access.WRITE

    @property
    def writable(self) -> bool:
        """Whether a write has an effect."""
        return self.access is not Access.READ

    def access_of(self, part: Field) -> Access:
        """Return the legal accesses of a field."""
        return part.access or self.access


@parameter_object
class AxiRegistersParameters(Parameters):
    """Dimensions of the register block; they also configure its testbench.

    Parameters
    ----------
    bases : int
        Number of base addresses.
    axi_address_bits : int
        Bits of a base address.
    alignment : int
        Bytes to which base addresses must be aligned.
    sources : int
        Number of error sources.
    token_bits : int
        Bits of a token.
    token_depth : int
        Tokens that each of the two FIFOs stores.
    digest : int
        Digest of the accelerator's parameters, which the host compares with its own.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    bases: Annotated[int, Range(1, 32, "addresses")] = 8
    axi_address_bits: Annotated[int, Range(12, 64, "bits")] = 40
    alignment: Annotated[int, PowerOfTwo(4, 128, "bytes")] = 16
    sources: Annotated[int, Range(1, 32, "masters")] = 8
    token_bits: Annotated[int, Range(1, 32, "bits")] = 32
    token_depth: Annotated[int, Range(1, 64, "tokens")] = 16
    digest: Annotated[int, Range(0, (1 << 32) - 1, "value")] = 0

    def __post_init__(self) -> None:
        """Check each parameter."""
        super().__post_init__()
        end = FIRST_BASE + 2 * WORD_BYTES * self.bases
        require(end <= 1 << self.address_bits, "bases must fit into the address space", self.bases)

    @property
    def address_bits(self) -> int:
        """Bits of a byte address at the AXI4-Lite port: the block has 4 KB."""
        return 12

    @property
    def errors_layout(self) -> data.ArrayLayout:
        """The errors of all sources."""
        return data.ArrayLayout(error_layout(self.axi_address_bits), self.sources)

    @property
    def bases_layout(self) -> data.ArrayLayout:
        """All base addresses in bytes."""
        return data.ArrayLayout(self.axi_address_bits, self.bases)


CONTROL = (
    Field("start", 0, 1, "start the accelerator; refused while it is busy or flushed"),
    Field("flush", 1, 1, "stop the accelerator, complete all AXI4 bursts, discard all tokens"),
)
STATUS = (
    Field("busy", 0, 1, "started and not finished"),
    Field("flushing", 1, 1, "a flush is in progress"),
)
TOKEN = Field("token", 2, 1, "an output token is available")
INTERRUPTS = (
    Field("done", 0, 1, "the accelerator has finished"),
    Field("error", 1, 1, "`error_cause` is valid; clearing it clears all errors"),
)
ERROR_CAUSE = (
    Field("cause", 0, 2, "1 unexpected response, 2 SLVERR, 3 DECERR; 0 without an error"),
    Field("source", 8, 5, "number of the master"),
)
TOKEN_LEVELS = (
    Field("input_free", 0, 7, "input tokens that can be written"),
    Field("output_count", 16, 7, "output tokens that can be read"),
)


def registers(p: AxiRegistersParameters) -> tuple[Register, ...]:
    """Return all registers in the order of their offsets."""
    read, both = Access.READ, Access.READ_WRITE
    low = f"bits 31 to 0; a multiple of {p.alignment}, refused while busy"
    found = [
        Register("identification", 0x00, read, f"{IDENTIFICATION:#010x}, `SYST`"),
        Register("map_version", 0x04, read, f"version of this map, {MAP_VERSION}"),
        Register("digest", 0x08, read, "digest of the accelerator's parameters"),
        Register("control", 0x0C, Access.WRITE, "commands; a bit of 0 does nothing", CONTROL),
        Register("status", 0x10, read, "state of the accelerator", STATUS),
        Register(
            "interrupt_enable", 0x14, both, "interrupts that are output", (*INTERRUPTS, TOKEN)
        ),
        Register(
            "interrupt_status",
            0x18,
            Access.CLEAR,
            "interrupts that occurred",
            (*INTERRUPTS, replace(TOKEN, access=read)),
        ),
        Register("error_cause", 0x1C, read, "first error since it was cleared", ERROR_CAUSE),
        Register("error_address_low", 0x20, read, "its byte address, bits 31 to 0"),
        Register("error_address_high", 0x24, read, "its byte address, bits 63 to 32"),
        Register("cycles_low", 0x28, read, "cycles from start to finish, bits 31 to 0"),
        Register("cycles_high", 0x2C, read, "bits 63 to 32 at the last read of `cycles_low`"),
        Register("token_in", 0x30, Access.WRITE, "next input token; refused without room"),
        Register("token_out", 0x34, read, "next output token, removed; refused without one"),
        Register("token_levels", 0x38, read, "levels of the token FIFOs", TOKEN_LEVELS),
    ]
    for number in range(p.bases):
        offset = FIRST_BASE + 2 * WORD_BYTES * number
        found += [
            Register(f"base_{number}_low", offset, both, f"base address {number}, {low}"),
            Register(
                f"base_{number}_high",
                offset + WORD_BYTES,
                both,
                f"base address {number}, bits {p.axi_address_bits - 1} to 32; refused while busy",
            ),
        ]
    return tuple(found)


def as_values(p: AxiRegistersParameters) -> dict[str, Any]:
    """Return the register map as JSON values."""
    listed = [
        {
            "name": one.name,
            "offset": one.offset,
            "access": one.access.value,
            "meaning": one.meaning,
            "fields": [vars(part) | {"access": one.access_of(part).value} for part in one.fields],
        }
        for one in registers(p)
    ]
    return {"map_version": MAP_VERSION, "digest": p.digest, "registers": listed}


def as_json(p: AxiRegistersParameters) -> str:
    """Return the register map as JSON."""
    return json.dumps(as_values(p), indent=1) + "\n"


def c_header(p: AxiRegistersParameters) -> str:
    """Return a C header with the offset of each register, and offset and mask of each field."""

    def macros() -> Iterator[tuple[str, str]]:
        yield "MAP_VERSION_VALUE", str(MAP_VERSION)
        yield "IDENTIFICATION_VALUE", f"UINT32_C({IDENTIFICATION:#010x})"
        yield "DIGEST_VALUE", f"UINT32_C({p.digest:#010x})"
        for one in registers(p):
            name = one.name.upper()
            yield name, f"{one.offset:#05x}"
            for part in one.fields:
                yield f"{name}_{part.name.upper()}_OFFSET", str(part.first)
                yield (
                    f"{name}_{part.name.upper()}_MASK",
                    f"UINT32_C({(1 << part.width) - 1 << part.first:#x})",
                )

    lines = [
        "/* Registers of an accelerator, as byte offsets; a mask applies before the shift.",
        f"   Generated by Systola {__version__}. SPDX-License-Identifier: 0BSD */",
        "#ifndef SYSTOLA_REGISTERS_H",
        "#define SYSTOLA_REGISTERS_H",
        "#include <stdint.h>",
        *(f"#define SYSTOLA_{name} {value}" for name, value in macros()),
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def table(p: AxiRegistersParameters) -> str:
    """Return the register map as a Markdown table with one row per register and field."""
    rows = ["| offset | register | bits | access | meaning |", "|---|---|---|---|---|"]
    for one in registers(p):
        bits = "" if one.fields else "31:0"
        name, access = f"`{one.name}`", one.access.value
        rows.append(f"| {one.offset:#05x} | {name} | {bits} | {access} | {one.meaning} |")
        for part in one.fields:
            last = part.first + part.width - 1
            span = f"{last}:{part.first}" if part.width > 1 else str(part.first)
            own = f" {part.access.value}" if part.access else ""
            rows.append(f"| | `{part.name}` | {span} |{own} | {part.meaning} |")
    return "\n".join(rows)


def main(preset: str, folder: Path) -> None:
    """Write the JSON and the C header of a preset of the register block."""
    # The catalog imports this module.
    from hdl.shell.catalog import REGISTERS

    p = REGISTERS[preset]
    replace_text(folder / "registers.json", as_json(p))
    replace_text(folder / "registers.h", c_header(p))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

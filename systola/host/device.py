"""An accelerator with the AXI shell's register block: identity, jobs, errors."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from golden.shell.shell_jobs import Region
from hdl.errors import UserError
from hdl.shell.axi import Cause
from hdl.shell.register_map import (
    IDENTIFICATION,
    MAP_VERSION,
    AxiRegistersParameters,
    registers,
)
from systola.host.transport import Transport, Window

FOUR_KILOBYTES = 4096
"""Alignment of regions: an AXI4 burst that begins at one is not divided at its first page."""


class DeviceError(Exception):
    """A job ended without its result; the message contains the cause.

    Members
    -------
    cause : Cause
        Cause of the error; NONE if the job did not end in time.
    source : str
        Port at which the error occurred, or the accelerator.
    address : int
        Byte address; error flags if the source is the accelerator.
    """

    def __init__(self, message: str, cause: Cause, source: str = "", address: int = 0) -> None:
        super().__init__(message)
        self.cause, self.source, self.address = cause, source, address


@dataclass(frozen=True)
class JobResult:
    """Output tokens of a job, and its cycles."""

    tokens: list[int]
    cycles: int


class Device:
    """The register block of an accelerator.

    Construction checks that the accelerator is the expected one, then stops a job that an earlier
    process left, and clears its errors. No access of this class can be refused by the block:
    on many boards, a refused access ends the process.

    Parameters
    ----------
    transport : Transport
        Access to the registers.
    parameters : AxiRegistersParameters
        Dimensions of the block, and digest of the accelerator's parameters.
    sources : Sequence[str]
        Names of the sources of errors: the ports, and last the accelerator.

    Raises
    ------
    UserError
        If the registers are those of something else, or of an accelerator with other parameters.
    """

    def __init__(
        self, transport: Transport, parameters: AxiRegistersParameters, sources: Sequence[str]
    ) -> None:
        self.transport, self.parameters, self.sources = transport, parameters, tuple(sources)
        self._registers = {one.name: one for one in registers(parameters)}
        for name, expected in (
            ("identification", IDENTIFICATION),
            ("map_version", MAP_VERSION),
            ("digest", parameters.digest),
        ):
            found = self.read(name)
            if found != expected:
                raise UserError(
                    f"the register {name} of the accelerator must be {expected:#010x}, as in the "
                    f"host's parameters, not {found:#010x}"
                )
        self.stop()

    def read(self, name: str) -> int:
        """Return a register."""
        return self.transport.read_register(self._registers[name].offset)

    def write(self, name: str, value: int) -> None:
        """Write a register."""
        self.transport.write_register(self._registers[name].offset, value)

    def read_field(self, name: str, field: str) -> int:
        """Return a field of a register."""
        return self._field_of(name, field, self.read(name))

    def write_fields(self, name: str, *fields: str) -> None:
        """Write a register with some fields of one bit set, and all others 0."""
        listed = self._registers[name].fields
        self.write(name, sum(1 << one.first for one in listed if one.name in fields))

    def _field_of(self, name: str, field: str, value: int) -> int:
        (one,) = [part for part in self._registers[name].fields if part.name == field]
        return value >> one.first & (1 << one.width) - 1

    def stop(self) -> None:
        """Stop a job, discard all tokens, and clear all errors."""
        self.write_fields("control", "flush")
        while self.read("status"):
            self.transport.pause()
        self.write_fields("interrupt_status", "done", "error")

    def set_regions(self, regions: Sequence[Region]) -> None:
        """Set the regions of memory, in the order of the accelerator's base addresses.

        Raises
        ------
        UserError
            If an address is not aligned or has too many bits, or a job is running.
        """
        p = self.parameters
        addresses = [address for one in regions for address in (one.first, one.end)]
        for address in addresses:
            if address % p.alignment or not 0 <= address < 1 << p.axi_address_bits:
                raise UserError(
                    f"addresses of regions must be multiples of {p.alignment} below "
                    f"2**{p.axi_address_bits}, not {address:#x}"
                )
        self._require_idle("regions are set")
        for number, address in enumerate(addresses):
            self.write(f"base_{number}_low", address % (1 << 32))
            self.write(f"base_{number}_high", address >> 32)

    def start(self, numbers: Sequence[int]) -> None:
        """Start a job with its input tokens.

        Raises
        ------
        UserError
            If a job is running, or the token FIFO has no room.
        """
        self._require_idle("a job starts")
        room = self.read_field("token_levels", "input_free")
        if len(numbers) > room:
            raise UserError(f"the input tokens of a job must be at most {room}, not {len(numbers)}")
        for one in numbers:
            self.write("token_in", one)
        self.write_fields("control", "start")

    def _require_idle(self, before: str) -> None:
        if self.read("status"):
            raise UserError(f"the accelerator must be idle before {before}, not busy")

    def wait(self, timeout: float) -> JobResult:
        """Receive tokens until the job ends; stop it after `timeout` seconds.

        Raises
        ------
        DeviceError
            If the job does not end in time, or ends with an error.
        """
        tokens, limit = list[int](), time.monotonic() + timeout
        while self.read_field("status", "busy"):
            tokens += self._received()
            if time.monotonic() > limit:
                self.stop()
                raise DeviceError(
                    f"a job must end within {timeout:g} s; it was stopped", Cause.NONE
                )
            self.transport.pause()
        tokens += self._received()
        if self.read_field("error_cause", "cause"):
            raise self._error()
        cycles = self.read("cycles_low")
        return JobResult(tokens, cycles | self.read("cycles_high") << 32)

    def _received(self) -> list[int]:
        count = self.read_field("token_levels", "output_count")
        return [self.read("token_out") for _ in range(count)]

    def _error(self) -> DeviceError:
        """Read and clear the error."""
        value = self.read("error_cause")
        cause = Cause(self._field_of("error_cause", "cause", value))
        source = self.sources[self._field_of("error_cause", "source", value)]
        address = self.read("error_address_low") | self.read("error_address_high") << 32
        self.stop()
        if source == self.sources[-1]:
            message = f"{source} reported the error flags {address:#x}"
        else:
            message = f"{cause.name} at address {address:#x} of the port {source}"
        return DeviceError(f"the job was stopped: {message}", cause, source, address)

    def run(self, numbers: Sequence[int], timeout: float) -> JobResult:
        """Run a job to its end."""
        self.start(numbers)
        return self.wait(timeout)


def place_regions(sizes: dict[str, int], memory: Window) -> dict[str, Region]:
    """Place regions of so many bytes sequentially in memory, each at a multiple of 4 KB.

    Raises
    ------
    UserError
        If the memory is too small.
    """
    regions, end = dict[str, Region](), memory.first
    for name, size in sizes.items():
        first = -(-end // FOUR_KILOBYTES) * FOUR_KILOBYTES
        end = first + -(-size // FOUR_KILOBYTES) * FOUR_KILOBYTES
        regions[name] = Region(first, end)
    if end > memory.end:
        raise UserError(
            f"the memory must have {end - memory.first:,} bytes for the model, not "
            f"{memory.end - memory.first:,}"
        )
    return regions

"""Model of the register block: the response and the effect of each access and event."""

from collections import deque

from hdl.shell.axi import Response
from hdl.shell.register_map import (
    IDENTIFICATION,
    MAP_VERSION,
    Access,
    AxiRegistersParameters,
    registers,
)

OKAY, SLVERR, DECERR = (one.value for one in (Response.OKAY, Response.SLVERR, Response.DECERR))

ALL_BYTES = 0b1111
"""Strobes of a whole word."""


class RegisterModel:
    """State of the register block, access by access.

    Parameters
    ----------
    p : AxiRegistersParameters
        Numbers of addresses, sources and tokens.

    Members
    -------
    busy, flushing, done : bool
        State of the accelerator.
    cycles : int
        Cycles of the last work.
    error : tuple[int, int, int] | None
        Source, cause and address of the first error.
    bases : list[int]
        Base addresses.
    inputs, outputs : deque[int]
        Tokens of both FIFOs.
    """

    def __init__(self, p: AxiRegistersParameters) -> None:
        self.p = p
        self.offsets = {one.offset: one for one in registers(p)}
        self.busy = self.flushing = self.done = False
        self.cycles, self.high, self.enable = 0, 0, 0
        self.error: tuple[int, int, int] | None = None
        self.bases = [0] * p.bases
        self.inputs, self.outputs = deque[int](), deque[int]()

    @property
    def interrupts(self) -> int:
        """The register `interrupt_status`."""
        return self.done | (self.error is not None) << 1 | bool(self.outputs) << 2

    @property
    def requests(self) -> bool:
        """Whether an enabled interrupt is pending."""
        return bool(self.interrupts & self.enable)

    def write(self, address: int, value: int, strobes: int = ALL_BYTES) -> int:
        """Write a register; return the response."""
        one = self.offsets.get(address & ~3)
        if one is None:
            return DECERR
        if one.access is Access.READ or strobes != ALL_BYTES:
            return SLVERR
        match one.name.split("_"):
            case ["control"]:
                return self._control(value)
            case ["token", "in"]:
                if len(self.inputs) == self.p.token_depth or self.flushing:
                    return SLVERR
                self.inputs.append(value & (1 << self.p.token_bits) - 1)
            case ["interrupt", "enable"]:
                self.enable = value & 7
            case ["interrupt", "status"]:
                self.done = self.done and not value & 1
                self.error = None if value & 2 else self.error
            case ["base", number, part]:
                return self._base(int(number), part == "high", value)
        return OKAY

    def _control(self, value: int) -> int:
        start, flush = value & 1, value & 2
        if start and (self.busy or self.flushing):
            return SLVERR
        if flush:
            self.flushing, self.busy = True, False
            self.inputs.clear()
            self.outputs.clear()
        elif start:
            self.busy, self.done, self.cycles = True, False, 0
        return OKAY

    def _base(self, number: int, high: bool, value: int) -> int:
        before = self.bases[number]
        kept = before % (1 << 32) if high else before >> 32 << 32
        new = kept | (value << 32 if high else value)
        legal = (high or value % self.p.alignment == 0) and new < 1 << self.p.axi_address_bits
        if self.busy or not legal:
            return SLVERR
        self.bases[number] = new
        return OKAY

    def read(self, address: int) -> tuple[int, int]:
        """Read a register; return value and response. A refused read returns 0."""
        one = self.offsets.get(address & ~3)
        if one is None:
            return 0, DECERR
        source, cause, place = self.error or (0, 0, 0)
        values = {
            "identification": IDENTIFICATION,
            "map_version": MAP_VERSION,
            "digest": self.p.digest,
            "status": self.busy | self.flushing << 1,
            "interrupt_enable": self.enable,
            "interrupt_status": self.interrupts,
            "error_cause": cause | source << 8,
            "error_address_low": place % (1 << 32),
            "error_address_high": place >> 32,
            "cycles_low": self.cycles % (1 << 32),
            "cycles_high": self.high,
            "token_levels": (self.p.token_depth - len(self.inputs)) | len(self.outputs) << 16,
        }
        if one.name == "token_out":
            return (self.outputs.popleft(), OKAY) if self.outputs else (0, SLVERR)
        if one.name == "cycles_low":
            self.high = self.cycles >> 32
        if one.name.startswith("base"):
            _base, number, part = one.name.split("_")
            value = self.bases[int(number)]
            return (value >> 32 if part == "high" else value % (1 << 32)), OKAY
        return values.get(one.name, 0), OKAY

    def finish(self, cycles: int) -> None:
        """Finish the work, if the accelerator is busy, after a number of cycles."""
        if self.busy:
            self.busy, self.done, self.cycles = False, True, cycles

    def end_flush(self) -> None:
        """Complete a flush."""
        self.flushing = False

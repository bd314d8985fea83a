"""Model of P3-LLM's compute unit: executes commands in order, on integers."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from golden.p3llm.dram_layout import nibbles
from golden.p3llm.pim.operand_decoder import input_operands
from golden.p3llm.pim.pim_processing_element import dot_products, wrapped
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_compute_unit import Operation, PimComputeUnitParameters

PE_LANES = 4

TOTAL_BITS = 48
"""Bits of an output's total over its groups."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command; fields as in `PimComputeUnitParameters.command_layout`.

    Members
    -------
    data : numpy.ndarray
        The word to write, or the column that belongs to the command, in bytes.
    """

    operation: Operation
    data: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
    mode: Mode = Mode.LINEAR
    step: int = 0
    group: int = 0
    pump: int = 0
    first: bool = False
    last: bool = False
    word: int = 0
    upper: bool = False
    advance: bool = False
    begins: bool = False
    ends: bool = False
    total: bool = False
    high: bool = False


@dataclass
class Unit:
    """State of a unit; registers that were never written are undefined and must not be used.

    Members
    -------
    results : list[numpy.ndarray]
        Results of `READ_RESULT`, int64, one array of half the elements each.
    nan : bool
        An input of a multiplication was a NaN.
    """

    p: PimComputeUnitParameters
    results: list[np.ndarray] = field(default_factory=list)
    nan: bool = False

    def __post_init__(self) -> None:
        """Initialise all registers."""
        p = self.p
        self.inputs = np.zeros((p.pumps, p.steps, PE_LANES), np.uint8)
        self.metadata = np.zeros(p.column_bits // 8, np.uint8)
        self.running = np.zeros((p.pumps, p.elements), np.int64)
        self.finished = np.zeros((p.pumps, p.elements), np.int64)
        self.scales = np.zeros(2 * p.elements, np.uint8)
        self.totals = np.zeros((p.pumps, p.elements), np.int64)
        self.complete = np.zeros((p.pumps, p.elements), np.int64)

    def run(self, commands: Iterable[Command]) -> None:
        """Execute commands."""
        for command in commands:
            match command.operation:
                case Operation.MULTIPLY:
                    self._multiply(command)
                case Operation.WRITE_INPUT:
                    words = self.inputs.reshape(self.p.words, -1)
                    words[command.word] = command.data
                case Operation.WRITE_METADATA | Operation.FILL_METADATA:
                    self.metadata = np.asarray(command.data)
                case Operation.FILL_SCALES:
                    self.scales = np.asarray(command.data)
                case Operation.READ_RESULT if command.total:
                    self.results.append(self._part(command))
                case Operation.READ_RESULT:
                    half = self.p.elements // 2
                    begin = half if command.upper else 0
                    self.results.append(self.finished[0, begin : begin + half].copy())
                    if command.advance:
                        self.finished = np.roll(self.finished, -1, axis=0)

    def _part(self, command: Command) -> np.ndarray:
        """Return the low words of half of an input's totals, or the high bits of all of them."""
        totals, half = self.complete[command.pump], self.p.elements // 2
        if command.high:
            above = totals >> 32 & 0xFFFF
            return above[0::2] | above[1::2] << 16
        begin = half if command.upper else 0
        return totals[begin : begin + half] & 0xFFFFFFFF

    def group_bits(self, mode: Mode, group: int) -> np.ndarray:
        """Return the metadata of every code of a column, shape (elements, lanes)."""
        elements = self.p.elements
        if mode is Mode.LINEAR:
            pairs = (self.metadata[:, np.newaxis] >> np.arange(0, 8, 2)) & 3
            chosen = pairs.reshape(8, elements)[group % 8, :, np.newaxis]
        elif mode is Mode.QK:
            chosen = nibbles(self.metadata).reshape(4, elements)[group % 4, :, np.newaxis]
        else:
            chosen = nibbles(self.metadata).reshape(elements, PE_LANES)[group % elements]
        return np.broadcast_to(chosen, (elements, PE_LANES))

    def _multiply(self, command: Command) -> None:
        """Add a column's products to the running sums."""
        codes = nibbles(command.data).reshape(self.p.elements, PE_LANES)
        bits = self.group_bits(command.mode, command.group)
        mode = np.array(command.mode.value)
        for pump in range(self.p.pumps):
            works = pump <= command.pump
            inputs = self.inputs[pump, command.step] if works else np.zeros(PE_LANES, np.uint8)
            self.nan |= bool(input_operands(mode, inputs)[2].any())
            before = 0 if command.first else self.running[pump]
            self.running[pump] = wrapped(before + dot_products(mode, inputs, codes, bits))
        if command.last:
            self.finished = self.running.copy()
        if command.last and command.mode is Mode.LINEAR:
            self._scale(command)

    def _scale(self, command: Command) -> None:
        """Add a group's sums times its scales to the totals."""
        scales = self.scales.reshape(2, -1)[command.group % 2].astype(np.int64)
        before = 0 if command.begins else self.totals
        half = 1 << TOTAL_BITS - 1
        self.totals = (before + self.finished * scales + half) % (2 * half) - half
        if command.ends:
            self.complete = self.totals

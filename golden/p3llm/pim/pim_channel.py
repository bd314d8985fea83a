"""Model of P3-LLM's pseudo-channel: executes a trace of commands on arrays of bytes."""

from dataclasses import dataclass, field, fields

import numpy as np

from golden.p3llm.pim.bank_timing import Event, RuleChecker
from golden.p3llm.pim.pim_compute_unit import Command, Unit
from hdl.p3llm.pim.bank_timing import RowOperation
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import ColumnOperation, PimChannelParameters
from hdl.p3llm.pim.pim_compute_unit import Operation

COLUMNS = 32
"""Columns per row."""


@dataclass(frozen=True, kw_only=True)
class RowCommand:
    """A row command; fields as in `PimChannelParameters.row_command_layout`."""

    operation: RowOperation
    bank: int = 0
    all: bool = False
    row: int = 0


@dataclass(frozen=True, kw_only=True)
class ColumnCommand:
    """A column command; fields as in `PimChannelParameters.column_command_layout`."""

    operation: ColumnOperation
    bank: int = 0
    all: bool = False
    half: bool = False
    column: int = 0
    mask: int = 0
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
    data: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))


Slot = tuple[RowCommand | None, ColumnCommand | None]
"""The commands of a cycle."""


class Channel:
    """State of a pseudo-channel after a reset.

    Members
    -------
    memory : numpy.ndarray
        Bytes, shape (banks, rows, columns, bytes of a column).
    results : list[tuple[int, numpy.ndarray]]
        Cycle in which each result is output, and its bytes.
    broken : list[set[str]]
        Violations of each cycle's commands.
    issued : list[dict[str, frozenset[int]]]
        Commands for the arrays in each cycle: the banks of every kind of event.
    """

    def __init__(self, p: PimChannelParameters, memory: np.ndarray) -> None:
        self.p = p
        self.memory = memory.copy()
        self.banks = p.timing.banks
        self.checker = RuleChecker.of(p.timing)
        self.units = [Unit(p.unit) for _ in range(p.units)]
        self.rows = [0] * self.banks
        self.results: list[tuple[int, np.ndarray]] = []
        self.broken: list[set[str]] = []
        self.issued: list[dict[str, frozenset[int]]] = []
        self.cycle = 0
        self.refreshed = -1
        self.completes = self.scaled = self.totalled = -100

    def run(self, slots: list[Slot]) -> None:
        """Execute the commands of consecutive cycles."""
        for row, column in slots:
            self._slot(row, column)
            self.cycle += 1

    def _slot(self, row: RowCommand | None, column: ColumnCommand | None) -> None:
        """Check and execute the commands of one cycle."""
        broken: set[str] = set()
        events = []
        if column and self.uses_banks(column):
            if column.operation is ColumnOperation.MULTIPLY and not self.begins(column):
                broken.add("phase")
                column = None
            else:
                kind = "write" if column.operation is ColumnOperation.WRITE else "read"
                events.append(Event(cycle=self.cycle, kind=kind, banks=self.column_banks(column)))
        if row:
            kind = row.operation.name.lower()
            events.append(Event(cycle=self.cycle, kind=kind, banks=self.row_banks(row)))
        before, refreshes = len(self.checker.past), self.checker.refreshes
        broken |= self.checker.check(events)
        legal = {event.kind for event in self.checker.past[before:]}
        self.issued.append({event.kind: event.banks for event in events if event.kind in legal})
        if self.checker.overdue(self.cycle - self.refreshed):
            broken.add("refi")
        if self.checker.refreshes > refreshes:
            self.refreshed = self.cycle
        if column and (not self.uses_banks(column) or legal & {"read", "write"}):
            broken |= self._column(column)
        if row and row.operation.name.lower() in legal:
            self._row(row)
        self.broken.append(broken)

    @staticmethod
    def uses_banks(column: ColumnCommand) -> bool:
        """Return whether a command reads or writes columns."""
        return column.operation in (
            ColumnOperation.MULTIPLY,
            ColumnOperation.FILL_METADATA,
            ColumnOperation.FILL_SCALES,
            ColumnOperation.READ,
            ColumnOperation.WRITE,
        )

    def begins(self, column: ColumnCommand) -> bool:
        """Return whether the units can multiply a column in this cycle."""
        p = self.p.unit
        # The sums of a group are scaled one per cycle, after their latency in the elements.
        interval = max(p.pumps * p.elements, p.pumps + 4)
        free = not column.last or self.cycle - self.scaled >= interval
        return self.cycle % p.pumps == 0 and free

    def is_complete(self, column: ColumnCommand) -> bool:
        """Return whether the result to be read is complete."""
        p = self.p.unit
        scaling = p.pumps + 4 + p.pumps * p.elements + 2
        if column.total:
            return self.cycle - self.totalled >= scaling
        return self.cycle - self.completes >= p.pumps + 4 and self.cycle - self.scaled >= scaling

    def parity(self, bank: int) -> frozenset[int]:
        """Return the banks of a bank's parity."""
        return frozenset(range(bank % 2, self.banks, 2))

    def row_banks(self, row: RowCommand) -> frozenset[int]:
        """Return the banks of a row command."""
        match row.operation:
            case RowOperation.REFRESH:
                return frozenset(range(self.banks))
            case RowOperation.REFRESH_BANK:
                return frozenset({row.bank})
            case _:
                return self.parity(row.bank) if row.all else frozenset({row.bank})

    def column_banks(self, column: ColumnCommand) -> frozenset[int]:
        """Return the banks that a command reads or writes."""
        alone = column.operation in (ColumnOperation.READ, ColumnOperation.WRITE)
        return frozenset({column.bank}) if alone else self.parity(column.bank)

    def _row(self, row: RowCommand) -> None:
        """Open rows."""
        if row.operation is RowOperation.ACTIVATE:
            for bank in self.parity(row.bank) if row.all else {row.bank}:
                self.rows[bank] = row.row

    def _column(self, column: ColumnCommand) -> set[str]:
        """Read, write, or execute in the units; return the violations."""
        match column.operation:
            case ColumnOperation.READ:
                word = self.memory[column.bank, self.rows[column.bank], column.column]
                self.results.append((self.cycle + 2, word.copy()))
            case ColumnOperation.WRITE:
                word = self.memory[column.bank, self.rows[column.bank], column.column]
                chosen = [byte for byte in range(len(word)) if column.mask >> byte & 1]
                word[chosen] = column.data[chosen]
            case ColumnOperation.READ_RESULT:
                if not self.is_complete(column):
                    return {"busy"}
                unit = self.units[column.bank // 2]
                unit.run([self._unit_command(column, column.data)])
                data_bytes = unit.results[-1].astype("<i4").view(np.uint8)
                self.results.append((self.cycle + 2, data_bytes))
            case (
                ColumnOperation.MULTIPLY
                | ColumnOperation.FILL_METADATA
                | ColumnOperation.FILL_SCALES
            ):
                if column.operation is ColumnOperation.MULTIPLY and column.last:
                    self._completes(column)
                for number, unit in enumerate(self.units):
                    bank = 2 * number + column.bank % 2
                    word = self.memory[bank, self.rows[bank], column.column]
                    unit.run([self._unit_command(column, word.copy())])
            case _:
                for number, unit in enumerate(self.units):
                    upper = number >= len(self.units) // 2
                    of_half = not column.half or upper == column.upper
                    if of_half if column.all else number == column.bank // 2:
                        unit.run([self._unit_command(column, column.data)])
        return set()

    def _completes(self, column: ColumnCommand) -> None:
        """Record the cycles in which sums and totals are completed."""
        self.completes = self.cycle
        if column.mode is Mode.LINEAR:
            self.scaled = self.cycle
            self.totalled = self.cycle if column.ends else self.totalled

    @staticmethod
    def _unit_command(column: ColumnCommand, data: np.ndarray) -> Command:
        """Return the command for a unit."""
        names = [one.name for one in fields(Command) if one.name not in ("operation", "data")]
        same = {name: getattr(column, name) for name in names}
        return Command(operation=Operation(column.operation.value), data=data, **same)

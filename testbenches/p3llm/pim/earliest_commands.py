"""Traces in which every command of a pseudo-channel is repeated until it is legal."""

from collections.abc import Callable

import numpy as np

from golden.p3llm.pim.pim_channel import COLUMNS, Channel, ColumnCommand, RowCommand, Slot
from hdl.p3llm.pim.bank_timing import RowOperation
from hdl.p3llm.pim.pim_channel import ColumnOperation, PimChannelParameters
from testbenches.p3llm.pim.channel_traces import ROWS, legal, prepare_units

MOST_BANKS = 4
"""Banks that are tested one by one."""

Send = Callable[[RowCommand | None, ColumnCommand | None], None]


def earliest_trace(
    p: PimChannelParameters, rng: np.random.Generator
) -> tuple[list[Slot], np.ndarray]:
    """Return the commands of a trace that tests every time to the cycle, and its memory.

    An illegal command has no effect, so that it may be repeated; it is executed exactly in the
    cycle in which its last time has elapsed.
    """
    shape = (p.timing.banks, ROWS, COLUMNS, p.unit.column_bits // 8)
    memory = rng.integers(0, 256, shape).astype(np.uint8)
    model = Channel(p, memory)
    slots: list[Slot] = []

    def send(row: RowCommand | None, column: ColumnCommand | None) -> None:
        slots.append((row, column))
        model.run(slots[-1:])

    def repeat(row: RowCommand | None, column: ColumnCommand | None = None) -> None:
        while not legal(model, row, column):
            send(row, column)
        send(row, column)

    prepare_units(p, rng, send, model)
    refresh = RowCommand(operation=RowOperation.REFRESH)
    for parity in range(2):
        repeat(RowCommand(operation=RowOperation.PRECHARGE, bank=parity, all=True))
    # A refresh waits for the precharges, another for the first, and activates for both.
    repeat(refresh)
    repeat(refresh)
    # Refreshes of single banks wait for it and for each other; the first one of the next set, and a
    # refresh of all banks, wait for those of the set.
    for bank in (*rng.permutation(p.timing.banks), 0):
        repeat(RowCommand(operation=RowOperation.REFRESH_BANK, bank=int(bank)))
    repeat(refresh)
    for bank in rng.permutation(p.timing.banks)[:MOST_BANKS]:
        _repeat_at_bank(p, rng, int(bank), send, repeat)
    _repeat_at_units(p, send, repeat)
    return slots, memory


def _repeat_at_bank(
    p: PimChannelParameters, rng: np.random.Generator, bank: int, send: Send, repeat: Send
) -> None:
    """Open and close a bank with every kind of access, and close it while it is accessed."""
    size = p.unit.column_bits // 8

    def opens() -> RowCommand:
        row = int(rng.integers(0, ROWS))
        return RowCommand(operation=RowOperation.ACTIVATE, bank=bank, row=row)

    def uses(operation: ColumnOperation) -> ColumnCommand:
        content = rng.integers(0, 256, size).astype(np.uint8)
        column, mask = int(rng.integers(0, COLUMNS)), int(rng.integers(0, 1 << size))
        return ColumnCommand(operation=operation, bank=bank, column=column, mask=mask, data=content)

    closes = RowCommand(operation=RowOperation.PRECHARGE, bank=bank)
    read, write = ColumnOperation.READ, ColumnOperation.WRITE
    # A read does not shorten tRAS, nor does a read after a write shorten tWR.
    for operations in ((), (read,), (write,), (write, read), (read, read, write), (write, write)):
        repeat(opens(), None)
        for operation in operations:
            repeat(None, uses(operation))
        repeat(closes, None)
    repeat(opens(), None)
    for _ in range(p.timing.ras):
        send(None, None)
    # All times have elapsed, but the row is read in the same cycle.
    repeat(None, uses(read))
    for _ in range(max(p.timing.rtp, p.timing.ccd_l)):
        send(None, None)
    send(closes, uses(read))
    send(closes, uses(write))


def _repeat_at_units(p: PimChannelParameters, send: Send, repeat: Send) -> None:
    """Multiply directly after a multiplication, in all phases, and read sums repeatedly."""
    for bank in range(p.timing.banks):
        close = RowCommand(operation=RowOperation.PRECHARGE, bank=bank)
        repeat(close, None)
    repeat(RowCommand(operation=RowOperation.ACTIVATE, bank=1, all=True, row=ROWS - 1), None)
    multiply = ColumnCommand(
        operation=ColumnOperation.MULTIPLY,
        bank=1,
        first=True,
        last=True,
        begins=True,
        ends=True,
        pump=p.unit.pumps - 1,
    )
    for pause in range(p.unit.pumps):
        repeat(None, multiply)
        repeat(None, multiply)
        repeat(None, ColumnCommand(operation=ColumnOperation.READ_RESULT, bank=1, total=True))
        for _ in range(pause):
            send(None, None)

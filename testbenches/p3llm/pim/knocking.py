"""Traces in which every command of a pseudo-channel comes too early until it may come."""

from collections.abc import Callable

import numpy as np

from golden.p3llm.pim.pim_channel import COLUMNS, Channel, ColumnCommand, RowCommand, Slot
from hdl.p3llm.pim.bank_timing import RowOperation
from hdl.p3llm.pim.pim_channel import ColumnOperation, PimChannelParameters
from testbenches.p3llm.pim.channel_traces import ROWS, legal, prepare_units

MOST_BANKS = 4
"""Banks that are tried one by one."""

Send = Callable[[RowCommand | None, ColumnCommand | None], None]


def knocking_trace(
    p: PimChannelParameters, rng: np.random.Generator
) -> tuple[list[Slot], np.ndarray]:
    """Return the commands of a trace that tries every time to the cycle, and its memory.

    A command that is not carried out leaves no trace, so that it may be repeated; in the cycle in
    which its last wait is over it is carried out, neither before nor later.
    """
    shape = (p.timing.banks, ROWS, COLUMNS, p.unit.column_bits // 8)
    memory = rng.integers(0, 256, shape).astype(np.uint8)
    model = Channel(p, memory)
    slots: list[Slot] = []

    def send(row: RowCommand | None, column: ColumnCommand | None) -> None:
        slots.append((row, column))
        model.run(slots[-1:])

    def knock(row: RowCommand | None, column: ColumnCommand | None = None) -> None:
        while not legal(model, row, column):
            send(row, column)
        send(row, column)

    prepare_units(p, rng, send, model)
    refresh = RowCommand(operation=RowOperation.REFRESH)
    for parity in range(2):
        knock(RowCommand(operation=RowOperation.PRECHARGE, bank=parity, all=True))
    # A refresh waits for the precharges, another for the first, and activates for both.
    knock(refresh)
    knock(refresh)
    for bank in rng.permutation(p.timing.banks)[:MOST_BANKS]:
        _knock_at_bank(p, rng, int(bank), send, knock)
    _knock_at_units(p, send, knock)
    return slots, memory


def _knock_at_bank(
    p: PimChannelParameters, rng: np.random.Generator, bank: int, send: Send, knock: Send
) -> None:
    """Open and close a closed bank, by every way of using it, and close it while it is used."""
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
    # A read does not bring the end of tRAS forward, nor one after a write the end of tWR.
    for operations in ((), (read,), (write,), (write, read), (read, read, write), (write, write)):
        knock(opens(), None)
        for operation in operations:
            knock(None, uses(operation))
        knock(closes, None)
    knock(opens(), None)
    for _ in range(p.timing.ras):
        send(None, None)
    # Nothing waits any more, but the row is read in the same cycle.
    knock(None, uses(read))
    for _ in range(max(p.timing.rtp, p.timing.ccd)):
        send(None, None)
    send(closes, uses(read))
    send(closes, uses(write))


def _knock_at_units(p: PimChannelParameters, send: Send, knock: Send) -> None:
    """Multiply at once after a multiplication, in all phases, and ask for sums as they come."""
    for bank in range(p.timing.banks):
        close = RowCommand(operation=RowOperation.PRECHARGE, bank=bank)
        knock(close, None)
    knock(RowCommand(operation=RowOperation.ACTIVATE, bank=1, all=True, row=ROWS - 1), None)
    scales = p.unit.group_scaling
    multiply = ColumnCommand(
        operation=ColumnOperation.MULTIPLY,
        bank=1,
        first=True,
        last=True,
        begins=scales,
        ends=scales,
        inputs=p.unit.pumps - 1,
    )
    for pause in range(p.unit.pumps):
        knock(None, multiply)
        knock(None, multiply)
        knock(None, ColumnCommand(operation=ColumnOperation.READ_RESULT, bank=1, total=scales))
        for _ in range(pause):
            send(None, None)

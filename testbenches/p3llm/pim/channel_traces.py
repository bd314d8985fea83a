"""Traces for a pseudo-channel: products of real operands, and random commands."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from golden.p3llm.dram_layout import pack_columns
from golden.p3llm.pim.bank_timing import Event
from golden.p3llm.pim.pim_channel import COLUMNS, Channel, ColumnCommand, RowCommand, Slot
from golden.p3llm.pim.pim_processing_element import dot_products
from hdl.p3llm.pim.bank_timing import RowOperation
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import ColumnOperation, PimChannelParameters
from testbenches.p3llm.pim.channel_operands import (
    BLOCKS,
    PE_LANES,
    groups_of,
    metadata_of,
    operands_for,
    scales_of,
    totals_of,
)

ROWS = 4
"""Rows per bank in traces."""


@dataclass
class Trace:
    """Commands, the initial memory, and the expected sums.

    Members
    -------
    slots : list[Slot]
        The commands of each cycle.
    memory : numpy.ndarray
        Bytes by bank, row and column.
    sums : numpy.ndarray
        Half of a unit's sums for every result, from integer matrix products.
    columns : int
        Columns multiplied, of each unit.
    first_column, last_column : int
        Cycles of the first and of the last of them.
    """

    slots: list[Slot]
    memory: np.ndarray
    sums: np.ndarray
    columns: int
    first_column: int = 0
    last_column: int = 0


@dataclass
class Work:
    """Commands to be sent, each after a number of columns."""

    rows: deque[tuple[int, RowCommand]] = field(default_factory=deque)
    columns: deque[tuple[int, ColumnCommand]] = field(default_factory=deque)
    others: deque[tuple[int, ColumnCommand]] = field(default_factory=deque)


def product_trace(p: PimChannelParameters, mode: str, inputs: int | None = None) -> Trace:
    """Return the trace of a product: all units on their own tiles, in alternating banks.

    The blocks of keys or values are different outputs; those of weights are the groups of one
    round, whose totals are read at its end.
    """
    operands = operands_for(p, mode)
    pumps = inputs or p.unit.pumps
    size, elements = p.unit.column_bits // 8, p.unit.elements
    tiles = pack_columns(operands.codes, elements=elements)
    count = tiles.shape[1]
    memory = np.zeros((p.timing.banks, ROWS, COLUMNS, size), np.uint8)
    work = Work()
    filled = np.zeros((p.unit.pumps, p.unit.steps * PE_LANES), np.uint8)
    filled[:pumps, : operands.inputs.shape[1]] = operands.inputs[:pumps]
    for word, content in enumerate(filled.reshape(p.unit.words, -1)):
        write = ColumnOperation.WRITE_INPUT
        work.others.append((0, ColumnCommand(operation=write, all=True, word=word, data=content)))
    for unit in range(p.units):
        write, data_bytes = ColumnOperation.WRITE_METADATA, metadata_of(p, operands, unit)
        work.others.append((0, ColumnCommand(operation=write, bank=2 * unit, data=data_bytes)))
    preamble, sums = len(work.others), []
    groups = groups_of(p, operands)
    a_group = count // groups
    scaled = operands.mode is Mode.LINEAR
    # For each result: whether it is the high part, and whether it is of the upper half.
    parts = [(False, False), (False, True)]
    exact = dot_products(
        np.array(operands.mode.value),
        operands.inputs[:pumps, np.newaxis],
        operands.codes,
        operands.group_bits,
    ).reshape(pumps, BLOCKS, p.units, 2, elements // 2)
    if scaled:
        parts = [(True, False), *parts]
        exact = totals_of(p, operands, pumps)
        memory[::2, ROWS - 1, 0] = scales_of(p).swapaxes(0, 1).reshape(p.units, -1)
    for block in range(BLOCKS):
        parity, row = block % 2, block // 2
        memory[parity::2, row, :count] = tiles[block * p.units : (block + 1) * p.units]
        release = max(0, block - 1) * count
        if block > 1:
            close = RowCommand(operation=RowOperation.PRECHARGE, bank=parity, all=True)
            work.rows.append((release, close))
        opened = RowCommand(operation=RowOperation.ACTIVATE, bank=parity, all=True, row=row)
        work.rows.append((release, opened))
        for column in range(count):
            multiply = ColumnCommand(
                operation=ColumnOperation.MULTIPLY,
                bank=parity,
                column=column,
                mode=operands.mode,
                step=column,
                group=column if operands.mode is Mode.PV else block * groups + column // a_group,
                pump=pumps - 1,
                first=column % a_group == 0,
                last=(column + 1) % a_group == 0,
                begins=block == 0 and column < a_group,
                ends=block == BLOCKS - 1 and column >= count - a_group,
            )
            work.columns.append((block, multiply))
        if scaled and block < BLOCKS - 1:
            continue
        for unit in range(p.units):
            for pump in range(pumps):
                for number, (high, upper) in enumerate(parts):
                    read = ColumnCommand(
                        operation=ColumnOperation.READ_RESULT,
                        bank=2 * unit,
                        total=scaled,
                        pump=pump if scaled else 0,
                        high=high,
                        upper=upper,
                        advance=upper and not scaled,
                    )
                    work.others.append(((block + 1) * count, read))
                    of_block = exact[pump] if scaled else exact[pump, block]
                    sums.append(of_block[unit, number])
    return scheduled(p, work, memory, np.array(sums), preamble, count)


def scheduled(
    p: PimChannelParameters,
    work: Work,
    memory: np.ndarray,
    sums: np.ndarray,
    preamble: int,
    count: int,
) -> Trace:
    """Send all commands as early as possible, columns before commands that access no bank."""
    model = Channel(p, memory)
    slots = scale_fills(p, model)
    done = opened = sent = 0
    first = last = 0
    while work.rows or work.columns or work.others:
        row = column = None
        if work.rows and done >= work.rows[0][0]:
            command = work.rows[0][1]
            banks = frozenset(range(command.bank, p.timing.banks, 2))
            event = Event(cycle=model.cycle, kind=command.operation.name.lower(), banks=banks)
            if not model.checker.faults(event, []):
                row = work.rows.popleft()[1]
                opened += command.operation is RowOperation.ACTIVATE
        if work.columns and sent >= preamble and model.cycle % p.unit.pumps == 0:
            block, command = work.columns[0]
            banks = frozenset(range(command.bank, p.timing.banks, 2))
            event = Event(cycle=model.cycle, kind="read", banks=banks)
            # Sums must not be overwritten before they are read.
            waits = command.last and any(at <= block * count for at, _ in list(work.others)[:1])
            waits |= not model.begins(command)
            ready = opened > block + (row is not None and row.operation is RowOperation.ACTIVATE)
            if ready and not waits and not model.checker.faults(event, []):
                column = work.columns.popleft()[1]
                first, last = first or model.cycle, model.cycle
                done += 1
        if column is None and work.others and done >= work.others[0][0]:
            if sent < preamble or model.is_complete(work.others[0][1]):
                column = work.others.popleft()[1]
                sent += 1
        slots.append((row, column))
        model.run(slots[-1:])
    trace = Trace(slots=slots, memory=memory, sums=sums, columns=done)
    trace.first_column, trace.last_column = first, last
    return trace


def scale_fills(p: PimChannelParameters, model: Channel) -> list[Slot]:
    """Fill the scales of all units from the last row of their even banks, and close it."""
    slots: list[Slot] = []
    opens, closes = (
        RowCommand(operation=one, all=True, row=ROWS - 1)
        for one in (RowOperation.ACTIVATE, RowOperation.PRECHARGE)
    )
    fill = ColumnCommand(operation=ColumnOperation.FILL_SCALES)
    for slot in ((opens, None), (None, fill), (closes, None)):
        while not legal(model, *slot):
            slots.append((None, None))
            model.run(slots[-1:])
        slots.append(slot)
        model.run(slots[-1:])
    return slots


def drawn_trace(
    p: PimChannelParameters, rng: np.random.Generator, count: int, care: float
) -> tuple[list[Slot], np.ndarray]:
    """Return commands, a share `care` of which is legal by the model's rules, and the memory."""
    shape = (p.timing.banks, ROWS, COLUMNS, p.unit.column_bits // 8)
    memory = rng.integers(0, 256, shape).astype(np.uint8)
    model = Channel(p, memory)
    slots: list[Slot] = []
    advanced: dict[int, tuple[int, int]] = {}

    def send(row: RowCommand | None, column: ColumnCommand | None) -> None:
        slots.append((row, column))
        model.run(slots[-1:])

    prepare_units(p, rng, send, model)
    if care < 1:
        break_all_times(p, send, model)
    while len(slots) < count:
        since = model.cycle - model.refreshed
        closing = care > 0.6 and since > 7 * p.timing.refi
        row = drawn_row(p, rng, closing=closing) if rng.random() < 0.5 else None
        column = None if closing or rng.random() < 0.3 else drawn_column(p, rng)
        if column and column.operation is ColumnOperation.READ_RESULT:
            # The words after the last pump's sums are undefined.
            unit = column.bank // 2
            at, times = advanced.get(unit, (-1, 0))
            times = times if at == model.completes else 0
            if not column.total and times + column.advance >= p.unit.pumps:
                continue
            # The sums of a linear layer's group are consumed by the scaler.
            if not column.total and model.completes == model.scaled:
                continue
        if rng.random() < care and not legal(model, row, column):
            row = row if legal(model, row, None) else None
            column = column if legal(model, None, column) and row is None else None
        before = len(model.results)
        send(row, column)
        if column and column.operation is ColumnOperation.READ_RESULT and not column.total:
            if len(model.results) > before:
                advanced[unit] = (model.completes, times + column.advance)
    return slots, memory


def prepare_units(
    p: PimChannelParameters,
    rng: np.random.Generator,
    send: Callable[[RowCommand | None, ColumnCommand | None], None],
    model: Channel,
) -> None:
    """Fill all registers, and multiply once, so that everything is defined."""
    size = p.unit.column_bits // 8
    send(RowCommand(operation=RowOperation.ACTIVATE, bank=0, all=True, row=1), None)
    for word in range(p.unit.words):
        data_bytes = rng.integers(0, 256, size).astype(np.uint8)
        write = ColumnOperation.WRITE_INPUT
        send(None, ColumnCommand(operation=write, all=True, word=word, data=data_bytes))
    data_bytes = rng.integers(0, 256, size).astype(np.uint8)
    write = ColumnOperation.WRITE_METADATA
    send(None, ColumnCommand(operation=write, all=True, data=data_bytes))
    multiply = ColumnCommand(
        operation=ColumnOperation.MULTIPLY,
        first=True,
        last=True,
        begins=True,
        ends=True,
        pump=p.unit.pumps - 1,
    )
    for column in (ColumnCommand(operation=ColumnOperation.FILL_SCALES), multiply):
        while not legal(model, None, column):
            send(None, None)
        send(None, column)
    # Other banks have different rows.
    while not legal(
        model, row := RowCommand(operation=RowOperation.ACTIVATE, bank=1, all=True), None
    ):
        send(None, None)
    send(row, None)


def break_all_times(
    p: PimChannelParameters,
    send: Callable[[RowCommand | None, ColumnCommand | None], None],
    model: Channel,
) -> None:
    """Multiply in the wrong cycle, read sums too early, read a closed bank."""
    multiply = ColumnCommand(operation=ColumnOperation.MULTIPLY, first=True, last=True)
    while not legal(model, None, multiply):
        send(None, None)
    send(None, multiply)
    send(None, ColumnCommand(operation=ColumnOperation.READ_RESULT))
    while model.cycle % p.unit.pumps != p.unit.pumps - 1:
        send(None, None)
    send(None, multiply)
    close = RowCommand(operation=RowOperation.PRECHARGE, bank=1)
    while not legal(model, close, None):
        send(None, None)
    send(close, None)
    send(None, ColumnCommand(operation=ColumnOperation.READ, bank=1))


def legal(model: Channel, row: RowCommand | None, column: ColumnCommand | None) -> bool:
    """Return whether the next cycle's commands are legal."""
    checker, cycle = model.checker, model.cycle
    events = []
    if column:
        if model.uses_banks(column):
            if column.operation is ColumnOperation.MULTIPLY and not model.begins(column):
                return False
            kind = "write" if column.operation is ColumnOperation.WRITE else "read"
            events.append(Event(cycle=cycle, kind=kind, banks=model.column_banks(column)))
        elif column.operation is ColumnOperation.READ_RESULT:
            if not model.is_complete(column):
                return False
    if row:
        kind, banks = row.operation.name.lower(), model.row_banks(row)
        events.append(Event(cycle=cycle, kind=kind, banks=banks))
    return not any(checker.faults(event, events[:number]) for number, event in enumerate(events))


def drawn_row(p: PimChannelParameters, rng: np.random.Generator, *, closing: bool) -> RowCommand:
    """Return a row command; with `closing` a precharge or a refresh."""
    kinds = [RowOperation.PRECHARGE, RowOperation.REFRESH, RowOperation.REFRESH_BANK]
    share = (0.6, 0.2, 0.2)
    if not closing:
        kinds, share = [*kinds, RowOperation.ACTIVATE], (0.3, 0.02, 0.1, 0.58)
    return RowCommand(
        operation=kinds[int(rng.choice(len(kinds), p=share))],
        bank=int(rng.integers(0, p.timing.banks)),
        all=bool(rng.integers(0, 2)),
        row=int(rng.integers(0, ROWS)),
    )


def drawn_column(p: PimChannelParameters, rng: np.random.Generator) -> ColumnCommand:
    """Return a column command of any kind."""
    kinds = list(ColumnOperation)
    size = p.unit.column_bits // 8
    share = (0.4, 0.08, 0.08, 0.08, 0.16, 0.1, 0.05, 0.05)
    names = ("begins", "ends", "total", "high", "half")
    of_groups = {name: bool(rng.integers(0, 2)) for name in names}
    return ColumnCommand(
        operation=kinds[int(rng.choice(len(kinds), p=share))],
        **of_groups,
        bank=int(rng.integers(0, p.timing.banks)),
        all=bool(rng.integers(0, 2)),
        column=int(rng.integers(0, COLUMNS)),
        mask=int(rng.integers(0, 1 << size)),
        mode=Mode(int(rng.integers(0, 3))),
        step=int(rng.integers(0, p.unit.steps)),
        group=int(rng.integers(0, 16)),
        pump=int(rng.integers(0, p.unit.pumps)),
        first=bool(rng.random() < 0.2),
        last=bool(rng.random() < 0.2),
        word=int(rng.integers(0, p.unit.words)),
        upper=bool(rng.integers(0, 2)),
        advance=bool(rng.integers(0, 2)),
        data=rng.integers(0, 256, size).astype(np.uint8),
    )

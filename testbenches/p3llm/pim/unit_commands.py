"""Commands for a compute unit: whole products of real operands, and random commands."""

from dataclasses import replace
from typing import Any

import numpy as np

from golden.p3llm.dram_layout import pack_columns, pack_selects, pack_zero_points
from golden.p3llm.pim.pim_compute_unit import PE_LANES, Command
from golden.p3llm.pim.real_operands import Operands
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_compute_unit import Operation, PimComputeUnitParameters
from testbenches.packing import pack, to_integers


def input_writes(p: PimComputeUnitParameters, inputs: np.ndarray) -> list[Command]:
    """Return the writes of inputs, shape (pumps, inputs)."""
    filled = np.zeros((p.pumps, p.steps * PE_LANES), np.uint8)
    filled[: len(inputs), : inputs.shape[1]] = inputs
    words = filled.reshape(p.words, -1)
    used = -(-inputs.shape[1] // (p.steps_a_word * PE_LANES))
    a_pump = p.words // p.pumps
    return [
        Command(
            operation=Operation.WRITE_INPUT,
            word=pump * a_pump + word,
            data=words[pump * a_pump + word],
        )
        for pump in range(len(inputs))
        for word in range(used)
    ]


def reads(p: PimComputeUnitParameters, inputs: int) -> list[Command]:
    """Return the reads of all sums of some inputs."""
    return [
        Command(operation=Operation.READ_RESULT, upper=upper, advance=upper)
        for _ in range(inputs)
        for upper in (False, True)
    ]


def total_reads(p: PimComputeUnitParameters, inputs: int) -> list[Command]:
    """Return the reads of all totals of some inputs, the bits above 32 first."""
    parts = ((True, False), (False, False), (False, True))
    return [
        Command(operation=Operation.READ_RESULT, total=True, pump=pump, high=high, upper=upper)
        for pump in range(inputs)
        for high, upper in parts
    ]


def metadata(p: PimComputeUnitParameters, mode: Mode, bits: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the metadata of a tile and group, and their index.

    Parameters
    ----------
    p : PimComputeUnitParameters
        Elements, inputs and registers.
    mode : Mode
        Formats of the operands.
    bits : numpy.ndarray
        Metadata, shape (elements, codes), for as many columns as share them.
    """
    if mode is Mode.LINEAR:
        return pack_selects(np.tile(bits[:, 0], (8, 1))), 5
    if mode is Mode.QK:
        return pack_zero_points(np.tile(bits[:, 0], (4, 1))), 2
    return pack_zero_points(np.resize(bits[0], p.elements * PE_LANES)), 0


def product(
    p: PimComputeUnitParameters, operands: Operands, *, fill: bool = False
) -> list[Command]:
    """Return the commands of a product: tile by tile, with the inputs in pieces that fit.

    Metadata that change within a sum, as those of values, are written between columns.
    """
    pumps = min(p.pumps, len(operands.inputs))
    outputs, terms = operands.codes.shape
    piece = min(p.steps * PE_LANES, p.elements * PE_LANES if operands.mode is Mode.PV else 64)
    commands = []
    for begin in range(0, outputs, p.elements):
        rows = slice(begin, begin + p.elements)
        bits = np.pad(
            operands.group_bits[rows], [(0, max(0, begin + p.elements - outputs)), (0, 0)]
        )
        if operands.mode is Mode.PV:
            bits = np.broadcast_to(operands.group_bits[:1], bits.shape)
        columns = pack_columns(operands.codes[rows], elements=p.elements)[0]
        for start in range(0, terms, piece):
            stop = min(start + piece, terms)
            commands += input_writes(p, operands.inputs[:pumps, start:stop])
            data, group = metadata(p, operands.mode, bits[:, start:stop])
            kind = Operation.FILL_METADATA if fill else Operation.WRITE_METADATA
            commands.append(Command(operation=kind, data=data))
            for step in range(-(-(stop - start) // PE_LANES)):
                commands.append(
                    Command(
                        operation=Operation.MULTIPLY,
                        data=columns[start // PE_LANES + step],
                        mode=operands.mode,
                        step=step,
                        group=step if operands.mode is Mode.PV else group,
                        pump=pumps - 1,
                        first=start + step == 0,
                        last=start + PE_LANES * (step + 1) >= terms,
                    )
                )
        commands += reads(p, pumps)
    return commands


def scaled_product(
    p: PimComputeUnitParameters, operands: Operands, scales: np.ndarray
) -> list[Command]:
    """Return the commands of a linear layer.

    Parameters
    ----------
    p : PimComputeUnitParameters
        Elements, inputs and registers.
    operands : Operands
        Inputs and weights.
    scales : numpy.ndarray
        8-bit scales, shape (outputs, groups).
    """
    pumps = min(p.pumps, len(operands.inputs))
    outputs, terms = operands.codes.shape
    groups = scales.shape[1]
    group, commands = terms // groups, []
    columns = pack_columns(operands.codes, elements=p.elements)
    # Tiles, pairs of scales and sets of eight special values are complete.
    beyond = [(0, -outputs % p.elements), (0, 8)]
    filled = np.pad(scales, beyond)
    selects = np.pad(operands.group_bits[:, ::group], beyond)
    for tile, begin in enumerate(range(0, outputs, p.elements)):
        rows = slice(begin, begin + p.elements)
        for number in range(groups):
            start = number * group
            if number % 2 == 0:
                two = filled[rows, number : number + 2].T.ravel()
                commands.append(Command(operation=Operation.FILL_SCALES, data=two))
            if number % 8 == 0:
                eight = pack_selects(selects[rows, number : number + 8].T)
                commands.append(Command(operation=Operation.FILL_METADATA, data=eight))
            commands += input_writes(p, operands.inputs[:pumps, start : start + group])
            for step in range(group // PE_LANES):
                commands.append(
                    Command(
                        operation=Operation.MULTIPLY,
                        data=columns[tile, start // PE_LANES + step],
                        step=step,
                        group=number % 8,
                        pump=pumps - 1,
                        first=step == 0,
                        last=step == group // PE_LANES - 1,
                        begins=number == 0,
                        ends=number == groups - 1,
                    )
                )
        commands += total_reads(p, pumps)
    return commands


def random_commands(
    p: PimComputeUnitParameters, rng: np.random.Generator, count: int, *, nan: bool = True
) -> list[Command]:
    """Return commands of every kind in any order, after registers are filled."""
    size = p.column_bits // 8

    def random_bytes() -> np.ndarray:
        data = rng.integers(0, 256, size).astype(np.uint8)
        return data if nan else data & 0x7E

    commands = [
        Command(operation=Operation.WRITE_INPUT, word=word, data=random_bytes())
        for word in range(p.words)
    ]
    commands += [Command(operation=Operation.WRITE_METADATA, data=random_bytes())]

    def multiply(first: bool, last: bool) -> Command:
        return Command(
            operation=Operation.MULTIPLY,
            data=random_bytes(),
            mode=Mode(int(rng.integers(0, 3))),
            step=int(rng.integers(0, p.steps)),
            group=int(rng.integers(0, 16)),
            pump=int(rng.integers(0, p.pumps)),
            first=first,
            last=last,
        )

    commands.append(Command(operation=Operation.FILL_SCALES, data=random_bytes()))
    commands.append(replace(multiply(True, True), mode=Mode.LINEAR, begins=True, ends=True))
    commands.append(replace(multiply(True, True), mode=Mode.QK))
    commands.append(multiply(True, True))
    # The newest sums are those of a linear layer's group.
    consumed = commands[-1].mode is Mode.LINEAR
    read = 0
    for _ in range(count):
        kind = Operation(int(rng.choice(5, p=(0.5, 0.15, 0.1, 0.1, 0.15))))
        if rng.random() < 0.3:
            commands.append(random_scaling(p, rng, random_bytes()))
        elif kind is Operation.MULTIPLY:
            begins, ends = (bool(rng.random() < 0.3) for _ in range(2))
            column = multiply(rng.random() < 0.2, rng.random() < 0.3)
            commands.append(replace(column, begins=begins, ends=ends))
            consumed = consumed if not column.last else column.mode is Mode.LINEAR
            read = 0 if commands[-1].last else read
        elif kind is Operation.READ_RESULT and consumed:
            # The sums of a linear layer's group are consumed by the scaler.
            commands += total_reads(p, 1)
        elif kind is Operation.READ_RESULT:
            # The words after the last pump's sums are undefined.
            advance = bool(rng.integers(0, 2)) and read < p.pumps - 1
            read += advance
            upper = bool(rng.integers(0, 2))
            commands.append(Command(operation=kind, upper=upper, advance=advance))
        else:
            word = int(rng.integers(0, p.words))
            commands.append(Command(operation=kind, word=word, data=random_bytes()))
    return commands


def random_scaling(
    p: PimComputeUnitParameters, rng: np.random.Generator, column: np.ndarray
) -> Command:
    """Return a command for scales or totals of groups."""
    if rng.random() < 0.5:
        return Command(operation=Operation.FILL_SCALES, data=column)
    return Command(
        operation=Operation.READ_RESULT,
        total=True,
        pump=int(rng.integers(0, p.pumps)),
        upper=bool(rng.integers(0, 2)),
        high=bool(rng.integers(0, 2)),
        # A total is not shifted.
        advance=bool(rng.integers(0, 2)),
    )


def payloads(p: PimComputeUnitParameters, commands: list[Command]) -> list[int]:
    """Return commands in the format of the unit's port."""
    blank = np.zeros(p.column_bits // 8, np.uint8)
    from_column = (Operation.MULTIPLY, Operation.FILL_METADATA, Operation.FILL_SCALES)
    fields: dict[str, Any] = {
        "operation": [command.operation.value for command in commands],
        "mode": [command.mode.value for command in commands],
        "data": [
            blank if command.operation in from_column or not len(command.data) else command.data
            for command in commands
        ],
    }
    names = ["step", "group", "pump", "first", "last", "word", "upper", "advance"]
    names += ["begins", "ends", "total", "high"]
    for name in names:
        fields[name] = [int(getattr(command, name)) for command in commands]
    arrays = {name: np.array(values) for name, values in fields.items()}
    return to_integers(pack(p.command_layout, arrays))

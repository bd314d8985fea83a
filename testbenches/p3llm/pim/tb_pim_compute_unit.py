"""Testbench of P3-LLM's compute unit: SmolLM2's products, one-hot operands, stalls, resets."""

from collections import deque
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data

from golden.p3llm.pim import real_operands
from golden.p3llm.pim.pim_compute_unit import PE_LANES, Command, Unit
from golden.p3llm.pim.real_operands import Operands
from hdl.p3llm.pim.group_scaler import GroupScaler
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_compute_unit import Operation, PimComputeUnitParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.p3llm.pim.unit_commands import (
    input_writes,
    payloads,
    product,
    random_commands,
    reads,
    scaled_product,
    total_reads,
)
from testbenches.packing import from_integers, unpack
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import Port, StreamSource


def prepare(p: PimComputeUnitParameters) -> None:
    """Capture the tensors before the simulator starts."""
    real_operands.trace()


class Columns:
    """The banks: a column in the cycle after its command was accepted, random data otherwise."""

    def __init__(self, dut: Any, source: StreamSource, bench: Bench) -> None:
        self.port, self.source, self.rng = Port(dut.column), source, bench.rng
        self.bits = len(dut.column)
        self.waiting: deque[int | None] = deque()
        self.clear()

    def clear(self) -> None:
        """Discard all columns."""
        self.waiting.clear()
        self.port.value = 0

    def drive(self) -> None:
        """Respond to the command that was accepted in the previous cycle."""
        column = self.waiting.popleft() if self.source.accepted else None
        self.port.value = self.rng.getrandbits(self.bits) if column is None else column

    def sample(self) -> None:
        """Observe nothing."""


class UnitBench:
    """A unit, its commands and columns, and the results."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p = catalog_parameters()
        self.dut = dut
        dut.clear_flags.value = 0
        self.bench = Bench(dut, salt)
        self.commands = self.bench.source("commands", source)
        self.columns = self.bench.add(Columns(dut, self.commands, self.bench))
        self.sink = self.bench.sink("results", sink)

    def offer(self, commands: list[Command]) -> None:
        """Queue commands, and the columns that they use."""
        self.commands.send(payloads(self.p, commands))
        from_column = (Operation.MULTIPLY, Operation.FILL_METADATA, Operation.FILL_SCALES)
        self.columns.waiting.extend(
            int.from_bytes(command.data.tobytes(), "little")
            if command.operation in from_column
            else None
            for command in commands
        )

    async def run(self, commands: list[Command]) -> int:
        """Run commands after a reset, compare results and flag; return the cycles."""
        model = Unit(self.p)
        model.run(commands)
        await self.bench.reset()
        self.offer(commands)
        cycles = await self.bench.run(until=lambda: self.commands.idle)
        for _ in range(12):
            await self.bench.step()
        expected = np.array(model.results, np.int64).reshape(-1, self.p.elements // 2)
        layout = data.ArrayLayout(32, self.p.elements // 2)
        packed = from_integers([one for _cycle, one in self.sink.received], layout.size)
        got = unpack(layout, packed).reshape(-1, self.p.elements // 2)
        self.bench.compare(
            "results",
            expected & 0xFFFFFFFF,
            got,
            cycles=[cycle for cycle, _one in self.sink.received],
        )
        nan = np.array([int(self.dut.flags.value)])
        self.bench.compare("nan", np.array([int(model.nan)]), nan)
        return cycles


def real_products(pumps: int) -> list[Operands]:
    """Return keys and values of SmolLM2, with tails of tokens.

    `scaled_tensors` covers linear layers.
    """
    products = []
    for layer in real_operands.LAYERS:
        products += [
            real_operands.queries_and_keys(layer, 1, tokens=37, heads=pumps),
            real_operands.probabilities_and_values(layer, 2, tokens=93, heads=pumps),
        ]
    return products


@cocotb.test()
async def real_tensors(dut: Any) -> None:
    """Run products of SmolLM2, for one input and for two, metadata written and filled."""
    unit = UnitBench(dut, "real")
    for pumps in range(1, unit.p.pumps + 1):
        commands = []
        for number, operands in enumerate(real_products(pumps)):
            commands += product(unit.p, operands, fill=number % 2 == 0)
        await unit.run(commands)


def register_writes(p: PimComputeUnitParameters, rng: np.random.Generator) -> list[Command]:
    """Return writes of random inputs and metadata."""
    writes = (Operation.WRITE_INPUT, Operation.WRITE_METADATA)
    return [one for one in random_commands(p, rng, 0) if one.operation in writes]


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Multiply without stalls: sums are read and inputs written in the cycles between columns."""
    unit = UnitBench(dut, "rate")
    p = unit.p
    rng = unit.bench.numpy_rng
    words = register_writes(p, rng)
    between: deque[Command] = deque()
    commands, columns = list(words), 0
    # The scaler consumes the sums of a linear layer.
    modes = [mode for mode in Mode if mode is not Mode.LINEAR]
    # Long enough that all sums of the previous group are read before these are complete.
    length = max(p.steps, 16)
    for group in range(6):
        for step in range(length):
            column = rng.integers(0, 256, p.column_bits // 8).astype(np.uint8)
            commands.append(
                Command(
                    operation=Operation.MULTIPLY,
                    data=column,
                    mode=modes[group % len(modes)],
                    step=step % p.steps,
                    pump=p.pumps - 1,
                    first=step == 0,
                    last=step == length - 1,
                )
            )
            columns += 1
            # The sums of the previous group are complete after a few columns of this one.
            if step == 3 and group:
                between.extend(reads(p, p.pumps))
            if between:
                commands.append(between.popleft())
    cycles = await unit.run(commands)
    # With two pumps every other cycle is free for them.
    ideal = len(words) + columns * p.pumps
    if p.pumps == 1:
        ideal += len(commands) - columns - len(words)
    else:
        # The wait for the first even cycle is not counted.
        assert cycles <= ideal + 1, (cycles, ideal)
    tensors = f"SmolLM2 layers {real_operands.LAYERS}, weights, keys, values of prose"
    unit.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def scaled_tensors(dut: Any) -> None:
    """Run linear layers of SmolLM2 whose groups are scaled in the unit, for one input and two."""
    unit = UnitBench(dut, "scaled", "random", "random")
    p = unit.p
    group = min(64, p.steps * PE_LANES)
    for pumps in range(1, p.pumps + 1):
        for layer, groups in zip(real_operands.LAYERS, (1, 3, 10), strict=True):
            shape: dict[str, int] = {"outputs": 24, "inputs": groups * group, "group": group}
            operands = real_operands.linear(layer, "down_proj", tokens=pumps, **shape)
            scales = real_operands.group_scales(layer, "down_proj", **shape)
            await unit.run(scaled_product(p, operands, scales))


@cocotb.test()
async def scaled_full_rate(dut: Any) -> None:
    """Multiply the shortest groups that the scaler can process without stalls."""
    unit = UnitBench(dut, "scaled rate")
    p = unit.p
    rng = unit.bench.numpy_rng
    words = register_writes(p, rng)
    fills = (Operation.FILL_SCALES, Operation.FILL_METADATA)
    between: deque[tuple[int, Command]] = deque()
    commands, groups, rounds = list(words), 6, 4
    steps = -(-GroupScaler.interval(p.elements, p.pumps) // p.pumps)
    # A total is complete so many columns after its last one.
    behind = -(-GroupScaler.latency(p.elements, p.pumps) // p.pumps)

    def column() -> np.ndarray:
        return rng.integers(0, 256, p.column_bits // 8).astype(np.uint8)

    commands += [Command(operation=fill, data=column()) for fill in fills]
    before = len(commands)
    for number in range(columns := rounds * groups * steps):
        group, step = divmod(number, steps)
        commands.append(
            Command(
                operation=Operation.MULTIPLY,
                data=column(),
                step=step % p.steps,
                group=group % 8,
                pump=p.pumps - 1,
                first=step == 0,
                last=step == steps - 1,
                begins=group % groups == 0,
                ends=group % groups == groups - 1,
            )
        )
        # The scales of the group that ends here were sampled with its last column.
        if commands[-1].last and group % 2:
            between.extend((number, Command(operation=one, data=column())) for one in fills)
        if commands[-1].last and commands[-1].ends:
            between.extend((number + behind, one) for one in total_reads(p, p.pumps))
        if between and between[0][0] <= number:
            commands.append(between.popleft()[1])
    cycles = await unit.run(commands)
    ideal = before + columns * p.pumps + (len(commands) - before - columns) * (p.pumps == 1)
    assert cycles <= ideal + 1, (cycles, ideal)
    unit.bench.record(cycles=cycles, ideal_cycles=ideal)


@cocotb.test()
async def scaled_times(dut: Any) -> None:
    """Complete groups of one column: each waits until the scaler has accepted the previous one."""
    unit = UnitBench(dut, "scaled times")
    p = unit.p
    latency = GroupScaler.latency(p.elements, p.pumps)
    # A column starts with the first pump.
    interval = -(-GroupScaler.interval(p.elements, p.pumps) // p.pumps) * p.pumps
    words = register_writes(p, unit.bench.numpy_rng)
    column = np.ones(p.column_bits // 8, np.uint8)
    words.append(Command(operation=Operation.FILL_SCALES, data=column))
    ends = Command(
        operation=Operation.MULTIPLY, data=column, first=True, last=True, begins=True, ends=True
    )
    begin = await unit.run([*words, ends])
    read = total_reads(p, 1)[:1]
    seen = [await unit.run([*words, *[ends] * groups, *read]) - begin for groups in range(1, 5)]
    expected = [latency + number * interval for number in range(4)]
    unit.bench.compare("cycles of totals", np.array(expected), np.array(seen))


@cocotb.test()
async def one_hot(dut: Any) -> None:
    """Put a one at each place of a column: it affects only its element and lane."""
    unit = UnitBench(dut, "one hot")
    p = unit.p
    # Inputs 1, 2, 4, 8 in E4M3: lane l has the weight 2**l; the unit of a sum is 2**-9 in QK.
    inputs = np.array([[0x38, 0x40, 0x48, 0x50]] * p.pumps, np.uint8)
    commands = input_writes(p, inputs)
    zero_points = np.zeros(p.column_bits // 8, np.uint8)
    commands.append(Command(operation=Operation.WRITE_METADATA, data=zero_points))
    expected = []
    for nibble in range(p.elements * PE_LANES):
        column = 1 << 4 * nibble
        data_bytes = np.frombuffer(column.to_bytes(p.column_bits // 8, "little"), np.uint8)
        commands.append(
            Command(
                operation=Operation.MULTIPLY,
                data=data_bytes,
                mode=Mode.QK,
                first=True,
                last=True,
                pump=p.pumps - 1,
            )
        )
        commands += reads(p, p.pumps)
        element, lane = divmod(nibble, PE_LANES)
        sums = np.zeros(p.elements, np.int64)
        sums[element] = 1 << 9 + lane
        expected += [sums.reshape(2, -1)] * p.pumps
    await unit.run(commands)
    layout = data.ArrayLayout(32, p.elements // 2)
    packed = from_integers([one for _cycle, one in unit.sink.received], layout.size)
    unit.bench.compare("places", np.concatenate(expected), unpack(layout, packed))


@cocotb.test()
async def every_group(dut: Any) -> None:
    """Select each group's metadata in every mode, for codes that are all special values."""
    unit = UnitBench(dut, "every group")
    p, rng = unit.p, unit.bench.numpy_rng
    size = p.column_bits // 8
    # Inputs 1, 2, 4, 8 in E4M3, so that no two lanes cancel.
    commands = input_writes(p, np.array([[0x38, 0x40, 0x48, 0x50]], np.uint8))
    commands.append(Command(operation=Operation.FILL_SCALES, data=np.ones(size, np.uint8)))
    for _ in range(8):
        data_bytes = rng.integers(0, 256, size).astype(np.uint8)
        commands.append(Command(operation=Operation.WRITE_METADATA, data=data_bytes))
        for mode in Mode:
            scaled = mode is Mode.LINEAR
            for group in range(16):
                commands.append(
                    Command(
                        operation=Operation.MULTIPLY,
                        data=np.full(size, 0x88, np.uint8),
                        mode=mode,
                        group=group,
                        first=True,
                        last=True,
                        begins=scaled,
                        ends=scaled,
                    )
                )
                commands += total_reads(p, 1) if scaled else reads(p, 1)
    await unit.run(commands)


@cocotb.test()
async def one_nan(dut: Any) -> None:
    """Put a NaN into one lane of one input: it is reported if that input is active, and cleared."""
    unit = UnitBench(dut, "one nan")
    p = unit.p
    nan, one = 0x7F, 0x38
    zero_points = np.zeros(p.column_bits // 8, np.uint8)
    for pump in range(p.pumps):
        for lane in range(PE_LANES):
            inputs = np.full((p.pumps, p.steps * PE_LANES), one, np.uint8)
            inputs[pump, lane] = nan
            commands = input_writes(p, inputs)
            commands.append(Command(operation=Operation.WRITE_METADATA, data=zero_points))
            for working in range(p.pumps):
                multiply = Command(
                    operation=Operation.MULTIPLY,
                    data=zero_points,
                    mode=Mode.QK,
                    first=True,
                    last=True,
                    pump=working,
                )
                await unit.run([*commands, multiply, *reads(p, working + 1)])
                flag = int(dut.flags.value)
                assert flag == (pump <= working), (pump, lane, working)
                dut.clear_flags.value = 1
                await unit.bench.step()
                dut.clear_flags.value = 0
                await unit.bench.step()
                assert int(dut.flags.value) == 0, (pump, lane, working)


# Commands of every kind in any order.
stalls = stall_test(UnitBench, lambda unit: random_commands(unit.p, unit.bench.numpy_rng, 150))
resets = reset_test(
    UnitBench,
    lambda unit: random_commands(unit.p, unit.bench.numpy_rng, 60, nan=False),
    begun=lambda unit: random_commands(unit.p, unit.bench.numpy_rng, 40),
    longest=60,
    rounds=6,
    pauses=("random", "random"),
)

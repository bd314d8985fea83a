"""Testbench of P3-LLM's pseudo-channel: real products, legal and illegal random traces, resets."""

from dataclasses import dataclass, fields
from typing import Any

import cocotb
import numpy as np

from golden.p3llm.pim import real_operands
from golden.p3llm.pim.pim_channel import Channel, ColumnCommand, RowCommand, Slot
from hdl.p3llm.pim.bank_timing import RowOperation
from hdl.p3llm.pim.pim_channel import STATUS, ColumnOperation, PimChannelParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.p3llm.pim.channel_traces import ROWS, drawn_trace, product_trace
from testbenches.p3llm.pim.cycle_driver import NEVER_MOVES, CycleDriver
from testbenches.p3llm.pim.earliest_commands import earliest_trace
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.shared_tests import reset_test
from testbenches.streams import Port, read

REFRESHES = ("refresh", "refresh_bank")
"""Kinds of refreshes: of all banks, and of one."""

QUIET = 10
"""Cycles without commands after a trace, in which its last effects become visible."""


def prepare(p: PimChannelParameters) -> None:
    """Capture the tensors before the simulator starts."""
    real_operands.trace()


class Arrays:
    """Model of the banks: rows of bytes, opened, read and written by the channel's commands.

    Parameters
    ----------
    dut : Any
        The design under test.
    p : PimChannelParameters
        Compute units and banks.
    """

    def __init__(self, dut: Any, p: PimChannelParameters) -> None:
        self.p = p
        self.issued, self.data = Port(dut.bank_command), Port(dut.bank_data)
        self.layout = p.bank_command_layout
        self.busy = sum(
            ((1 << field.width) - 1) << field.offset
            for name, field in self.layout
            if name in ("activate", "read", "write")
        )
        banks = p.timing.banks
        self.memory = np.zeros((banks, ROWS, 32, p.unit.column_bits // 8), np.uint8)
        self.rows = [0] * self.p.timing.banks
        self.columns = [0] * self.p.units
        self.clear()

    def clear(self) -> None:
        """Close all rows."""
        self.rows = [0] * self.p.timing.banks
        self.columns = [0] * self.p.units
        self.data.value = 0

    def drive(self) -> None:
        """Output the columns that were read in the previous cycle."""
        size = self.p.unit.column_bits
        self.data.value = sum(column << unit * size for unit, column in enumerate(self.columns))

    def sample(self) -> None:
        """Execute the issued command."""
        issued = read(self.issued)
        if not issued & self.busy:
            return
        size = self.layout.size
        fields_ = unpack(self.layout, from_integers([issued], size))
        for bank in range(self.p.timing.banks):
            row = self.memory[bank, self.rows[bank]]
            column = int(fields_["column"][0])
            if fields_["read"][0] >> bank & 1:
                data_bytes = row[column].tobytes()
                self.columns[bank // 2] = int.from_bytes(data_bytes, "little")
            if fields_["write"][0] >> bank & 1:
                bits = np.arange(self.p.unit.column_bits // 8)
                chosen = (int(fields_["mask"][0]) >> bits & 1).astype(bool)
                row[column][chosen] = fields_["data"][0][chosen]
            if fields_["activate"][0] >> bank & 1:
                self.rows[bank] = int(fields_["row"][0])


def packed(layout: Any, commands: list[Any], blank: Any, size: int) -> np.ndarray:
    """Return commands, or none, as bits, one row per cycle."""
    given = [command or blank for command in commands]
    values: dict[str, Any] = {"valid": np.array([command is not None for command in commands])}
    # Without group scaling a command has no fields for it.
    for one in (one for one in fields(blank) if one.name in dict(iter(layout))):
        column = [getattr(command, one.name) for command in given]
        if one.name == "data":
            empty = np.zeros(size, np.uint8)
            values["data"] = np.array([data if len(data) else empty for data in column])
        else:
            plain = [getattr(value, "value", value) for value in column]
            values[one.name] = np.array(plain).astype(np.int64)
    return pack(layout, values)


@dataclass(frozen=True)
class Work:
    """Commands from a reset on, with the bytes in the banks.

    Members
    -------
    slots : list[Slot]
        The commands of each cycle.
    memory : numpy.ndarray
        Bytes by bank, row and column.
    legal : bool
        No command violates a rule.
    clears : numpy.ndarray, optional
        For each cycle, whether the status is cleared.
    """

    slots: list[Slot]
    memory: np.ndarray
    legal: bool = False
    clears: np.ndarray | None = None


class ChannelBench:
    """A channel, its arrays, and its outputs in every cycle; it has no streams to stall."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        assert source == sink == "none", "a channel has no streams"
        self.p = p = catalog_parameters()
        self.bench = Bench(dut, salt, timeout=NEVER_MOVES)
        shapes = {
            "row_command": p.row_command_layout.size,
            "column_command": p.column_command_layout.size,
            "clear_status": 1,
        }
        outputs = ("result", "status", "bank_command")
        self.driver = self.bench.add(CycleDriver(dut, shapes, outputs))
        self.arrays = self.bench.add(Arrays(dut, p))

    def offer(self, work: Work) -> None:
        """Fill the banks; queue the commands, the clears of the status, and cycles without any."""
        self.arrays.memory = work.memory.copy()
        size = self.p.unit.column_bits // 8
        rows = [row for row, _column in work.slots] + [None] * QUIET
        columns = [column for _row, column in work.slots] + [None] * QUIET
        blank_row = RowCommand(operation=RowOperation.ACTIVATE)
        blank_column = ColumnCommand(operation=ColumnOperation.READ)
        self.driver.waiting = {
            "row_command": to_integers(packed(self.p.row_command_layout, rows, blank_row, size)),
            "column_command": to_integers(
                packed(self.p.column_command_layout, columns, blank_column, size)
            ),
        }
        if work.clears is not None:
            self.driver.waiting["clear_status"] = [*map(int, work.clears), 0]

    async def run(self, work: Work) -> Channel:
        """Run commands after a reset; compare all outputs of the channel, and the memory."""
        model = Channel(self.p, work.memory)
        model.run(work.slots)
        await self.bench.reset()
        self.offer(work)
        await self.bench.step(len(work.slots) + QUIET)
        bits = self.p.unit.column_bits
        seen = [
            (cycle, value >> 1)
            for cycle, value in enumerate(self.driver.recorded["result"])
            if value & 1
        ]
        compare = self.bench.compare
        expected = [cycle for cycle, _word in model.results]
        compare("cycles of results", np.array(expected), np.array([one for one, _ in seen]))
        got = np.packbits(
            from_integers([word for _, word in seen], bits), axis=-1, bitorder="little"
        )
        words = np.array([word for _cycle, word in model.results], np.uint8).reshape(-1, bits // 8)
        compare("results", words, got, cycles=expected)
        self._compare_status(model, work.clears, legal=work.legal)
        self._compare_issued(model)
        compare("memory", model.memory, self.arrays.memory)
        await self._clear_status()
        return model

    async def _clear_status(self) -> None:
        """Clear the status after a trace, including a NaN flag of the units."""
        driver = self.driver
        driver.waiting = {
            **{name: [0] for name in driver.shapes},
            "clear_status": [0] * driver.cycle + [1, 0],
        }
        await self.bench.step(4)
        got = unpack(STATUS, from_integers(driver.recorded["status"][-3:], STATUS.size))
        # An overdue refresh is not cleared.
        names = [name for name, _field in STATUS if name != "refi"]
        self.bench.compare(
            "cleared",
            np.zeros((3, len(names)), bool),
            np.stack([got[one] for one in names], -1) > 0,
        )

    def _compare_issued(self, model: Channel) -> None:
        """Compare the arrays' commands in every cycle: the legal ones, and no others."""
        layout, kinds = self.p.bank_command_layout, ("activate", "precharge", "read", "write")
        recorded = self.driver.recorded["bank_command"][: len(model.issued)]
        got = unpack(layout, from_integers(recorded, layout.size))
        masks = [
            [sum(1 << bank for bank in now.get(kind, ())) for kind in kinds]
            + [sum(1 << bank for kind in REFRESHES for bank in now.get(kind, ()))]
            for now in model.issued
        ]
        names = (*kinds, "refresh")
        self.bench.compare("banks", np.array(masks), np.stack([got[one] for one in names], -1))

    def _compare_status(self, model: Channel, clears: np.ndarray | None, *, legal: bool) -> None:
        """Compare the sticky violations in every cycle; a legal trace has none."""
        names = [name for name, _field in STATUS if name != "nan"]
        forgets = np.zeros(len(model.broken), bool) if clears is None else clears
        sticky: set[str] = set()
        expected = [[False] * len(names)]
        for broken, forget in zip(model.broken, forgets, strict=True):
            sticky = broken | (set() if forget else sticky)
            expected.append([name in sticky for name in names])
        read_ = self.driver.recorded["status"]
        got = unpack(STATUS, from_integers(read_, STATUS.size))
        values = np.stack([got[name] for name in names], axis=-1).astype(bool)
        self.bench.compare("status", np.array(expected), values[: len(expected)])
        if clears is None:
            # A NaN is reported some cycles after its command.
            nan = np.array([any(unit.nan for unit in model.units)])
            self.bench.compare("nan", nan, got["nan"][-1:].astype(bool))
        # The assertion that a legal trace contains no illegal command. Refreshes are excluded if
        # their intervals are too short for a whole trace.
        sticky -= {"refi"}
        assert not legal or not sticky, f"a trace that should be legal breaks {sticky}"


@cocotb.test()
async def real_tensors(dut: Any) -> None:
    """Multiply SmolLM2's operands from the banks of all units, with changes of rows."""
    bench = ChannelBench(dut, "real")
    for mode in ("linear", "keys", "values"):
        trace = product_trace(bench.p, mode)
        model = await bench.run(Work(trace.slots, trace.memory, legal=True))
        sums = np.array([word.view("<i4") for _cycle, word in model.results[: len(trace.sums)]])
        # Expected values from a matrix product of integers.
        bench.bench.compare("sums", trace.sums, sums)
        if mode == "linear":
            bench.bench.record(
                cycles=trace.last_column - trace.first_column + bench.p.unit.pumps,
                ideal_cycles=trace.columns * bench.p.unit.pumps,
                tensors=f"SmolLM2 layers {real_operands.LAYERS}, weights, keys, values of prose",
            )


@cocotb.test()
async def any_commands(dut: Any) -> None:
    """Run random traces, most of whose commands are legal, and some that violate every rule."""
    bench = ChannelBench(dut, "any")
    broken: set[str] = set()
    for care in (1.0, 0.9, 0.5):
        slots, memory = drawn_trace(bench.p, bench.bench.numpy_rng, 700, care)
        clears = bench.bench.numpy_rng.random(len(slots)) < 0.1 if care < 1 else None
        model = await bench.run(Work(slots, memory, legal=care == 1.0, clears=clears))
        broken |= set().union(*model.broken)
    # Every trace has the violations that depend on no time; the other rules are proved.
    always = {"busy", "closed"} | ({"phase"} if bench.p.unit.pumps > 1 else set())
    assert always <= broken, always - broken


@cocotb.test()
async def earliest_commands(dut: Any) -> None:
    """Repeat each command from the first cycle in which it is illegal until it is legal."""
    bench = ChannelBench(dut, "repeat")
    slots, memory = earliest_trace(bench.p, bench.bench.numpy_rng)
    model = await bench.run(Work(slots, memory))
    kinds = set().union(*(issued.keys() for issued in model.issued))
    assert kinds == {"activate", "precharge", *REFRESHES, "read", "write"}, kinds


# All banks are closed, and all counters are 0, after a reset between commands.
resets = reset_test(
    ChannelBench,
    lambda bench: Work(*drawn_trace(bench.p, bench.bench.numpy_rng, 60, 0.7)),
    longest=50,
    rounds=3,
    pauses=("none", "none"),
)

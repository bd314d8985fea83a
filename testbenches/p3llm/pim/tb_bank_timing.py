"""Testbench of the banks' rules: commands of products, random commands, end of every time."""

from typing import Any

import cocotb
import numpy as np

from golden.p3llm.pim import real_operands
from hdl.p3llm.pim.bank_timing import VIOLATIONS, BankTimingParameters, RowOperation
from testbenches.bench import Bench, catalog_parameters
from testbenches.p3llm.pim.bank_traces import (
    BankTrace,
    bank_by_bank_trace,
    drawn_trace,
    pairs_trace,
    product_traces,
    refresh_trace,
    set_trace,
)
from testbenches.p3llm.pim.cycle_driver import NEVER_MOVES, CycleDriver
from testbenches.packing import from_integers, unpack
from testbenches.shared_tests import reset_test
from testbenches.streams import four_states

OUTPUTS = ("row_legal", "column_legal", "violations")

CODES = {one.name.lower(): one.value for one in RowOperation}

RULES = tuple(name for name, _field in VIOLATIONS)


def prepare(p: BankTimingParameters) -> None:
    """Capture the tensors before the simulator starts."""
    real_operands.trace()


class TimingBench:
    """The unit, with its outputs in every cycle; it has no streams to stall."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        assert source == sink == "none", "the unit has no streams"
        self.p: BankTimingParameters = catalog_parameters()
        self.bench = Bench(dut, salt, timeout=NEVER_MOVES)
        shapes = {"row": self.p.row_layout, "column": self.p.column_layout}
        self.driver = self.bench.add(CycleDriver(dut, shapes, OUTPUTS))
        self.rng = self.bench.numpy_rng

    def offer(self, trace: BankTrace) -> None:
        """Queue a trace; the fields of cycles without a command are random."""
        count, banks = len(trace.rows), self.p.banks

        def masks(commands: list[Any]) -> np.ndarray:
            drawn = self.rng.integers(0, 1 << banks, count)
            for cycle, command in enumerate(commands):
                # A refresh applies to all banks, independent of its mask.
                if command and command[0] != "refresh":
                    drawn[cycle] = sum(1 << bank for bank in command[1])
            return drawn

        operations = self.rng.integers(0, len(CODES), count)
        writes = self.rng.integers(0, 2, count)
        for cycle, (row, column) in enumerate(zip(trace.rows, trace.columns, strict=True)):
            operations[cycle] = CODES[row[0]] if row else operations[cycle]
            writes[cycle] = column[0] == "write" if column else writes[cycle]
        valid = [
            np.array([command is not None for command in commands])
            for commands in (trace.rows, trace.columns)
        ]
        self.driver.send(
            {
                "row": {"valid": valid[0], "operation": operations, "banks": masks(trace.rows)},
                "column": {"valid": valid[1], "write": writes, "banks": masks(trace.columns)},
            }
        )

    async def run(self, trace: BankTrace) -> None:
        """Run a trace from a reset, and compare every output in each cycle."""
        # A reset of one cycle, so that no counter can end during the reset.
        await self.bench.reset(1)
        self.offer(trace)
        count = len(trace.rows)
        await self.bench.step(count)
        said = self.driver.recorded
        got = unpack(VIOLATIONS, from_integers(said["violations"], VIOLATIONS.size))
        seen = [said["row_legal"], said["column_legal"], *(got[rule] for rule in RULES)]
        expected = [
            [verdict.row, verdict.column, *(rule in verdict.broken for rule in RULES)]
            for verdict in trace.verdicts
        ]
        names = ", ".join((*OUTPUTS[:2], *RULES))
        array = np.stack([np.array(one) for one in seen], axis=-1).astype(bool)
        self.bench.compare(names, np.array(expected), array, cycles=list(range(count)))


@cocotb.test()
async def products(dut: Any) -> None:
    """Check the commands of SmolLM2's products: all are legal, one cycle each."""
    timing = TimingBench(dut, "products")
    trace = product_traces(timing.p, timing.rng)
    await timing.run(trace)
    # Refreshes are between products, independent of their lengths.
    broken = set().union(*(verdict.broken for verdict in trace.verdicts)) - {"refi"}
    columns = sum(verdict.column for verdict in trace.verdicts)
    assert columns > 0 and not broken, broken
    cycles = len(trace.rows)
    timing.bench.record(
        cycles=cycles,
        ideal_cycles=cycles,
        tensors=f"SmolLM2 layers {real_operands.LAYERS}: {columns} columns of products",
    )


@cocotb.test()
async def any_commands(dut: Any) -> None:
    """Check random commands, legal and illegal, for any banks on both buses."""
    timing = TimingBench(dut, "any")
    trace = drawn_trace(timing.p, timing.rng, 1000 if four_states() else 8000)
    await timing.run(trace)
    broken = set().union(*(verdict.broken for verdict in trace.verdicts))
    assert {"closed", "opened", "ras"} <= broken, broken


@cocotb.test()
async def bank_by_bank(dut: Any) -> None:
    """Repeat every command of each bank from the first to the last cycle in which it is illegal."""
    timing = TimingBench(dut, "banks")
    few = timing.p.banks > 8 or four_states()
    await timing.run(bank_by_bank_trace(timing.p, timing.rng, 3 if few else 64))


@cocotb.test()
async def pairs_of_banks(dut: Any) -> None:
    """Access each bank after each other one."""
    timing = TimingBench(dut, "pairs")
    await timing.run(pairs_trace(timing.p, timing.rng))


@cocotb.test()
async def refreshes(dut: Any) -> None:
    """Refresh in time and late."""
    timing = TimingBench(dut, "refreshes")
    await timing.run(refresh_trace(timing.p, timing.rng, 2 * timing.p.refi))


@cocotb.test()
async def refreshes_of_banks(dut: Any) -> None:
    """Refresh bank after bank, in complete and incomplete sets, among activates."""
    timing = TimingBench(dut, "sets")
    await timing.run(set_trace(timing.p, timing.rng))


def random_trace(timing: TimingBench) -> BankTrace:
    """Return random commands, legal and illegal."""
    return drawn_trace(timing.p, timing.rng, 60)


# After a reset between commands, all banks are closed, all counters are 0, and no refresh is due.
resets = reset_test(
    TimingBench,
    random_trace,
    longest=60,
    rounds=lambda timing: 4 if four_states() else 40,
    pauses=("none", "none"),
)
refresh_resets = reset_test(
    TimingBench,
    lambda timing: refresh_trace(timing.p, timing.rng, 1),
    begun=random_trace,
    longest=60,
    pauses=("none", "none"),
    name="refresh_resets",
)

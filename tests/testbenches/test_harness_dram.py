"""The harness's DRAM banks against the model of the pseudo-channel that commands them."""

from pathlib import Path

import numpy as np

from golden.p3llm.pim.pim_channel import Channel, ColumnCommand, RowCommand
from hdl.catalog import entry_named
from hdl.p3llm.pim.bank_timing import RowOperation
from hdl.p3llm.pim.pim_channel import ColumnOperation, PimChannelParameters
from testbenches.harness import Harness
from testbenches.harness_memory import Dram
from testbenches.p3llm.pim.channel_traces import drawn_trace
from testbenches.p3llm.pim.tb_pim_channel import QUIET, packed


def by_position(memory: np.ndarray) -> np.ndarray:
    """Reorder bytes by bank, row and column to the order of a file: by position and unit."""
    by_side = memory.reshape(-1, 2, *memory.shape[1:])
    return by_side.transpose(2, 1, 3, 0, 4)


def test_banks_open_read_and_write_as_the_model(tmp_path: Path) -> None:
    """Run random commands, some illegal; compare results with their cycles, and all bytes."""
    entry = entry_named("pim_channel")
    p: PimChannelParameters = entry.parameters("tiny")
    slots, memory = drawn_trace(p, np.random.default_rng(3), 900, 0.9)
    model = Channel(p, memory)
    model.run(slots)
    file = tmp_path / "banks"
    file.write_bytes(by_position(memory).tobytes())
    column_bytes = p.unit.column_bits // 8
    dram = Dram(file=file, units=p.units, column_bytes=column_bytes, layout=p.bank_command_layout)
    blanks = (
        ("row_command", p.row_command_layout, RowCommand(operation=RowOperation.ACTIVATE)),
        ("column_command", p.column_command_layout, ColumnCommand(operation=ColumnOperation.READ)),
    )
    quiet = [(None, None)] * QUIET
    driven = {
        name: packed(layout, [slot[side] for slot in [*slots, *quiet]], blank, column_bytes)
        for side, (name, layout, blank) in enumerate(blanks)
    } | {"clear_status": np.zeros((1, 1), np.uint8)}
    harness = Harness.compiled(entry, p)
    with harness.session([dram]) as session:
        # No stream is expected to transfer: the run lasts as long as the trail.
        trail = len(slots) + QUIET
        run = session.run({}, {}, driven=driven, record=["result"], trail=trail)
    cycles = np.flatnonzero(run.outputs["result"][:, 0])

    assert cycles.tolist() == [cycle for cycle, _word in model.results]
    words = np.array([word for _cycle, word in model.results])
    bits = run.outputs["result"][cycles]
    assert np.array_equal(np.packbits(bits[:, 1:], axis=-1, bitorder="little"), words)
    assert np.array_equal(np.fromfile(file, np.uint8), by_position(model.memory).reshape(-1))
    commands = [{kind: len(banks) for kind, banks in one.items()} for one in model.issued]
    reads = [one.get("read", 0) for one in commands]
    assert run.counts["together"] == sum(count for count in reads if count == p.units)
    assert run.counts["alone"] == sum(count for count in reads if count != p.units)
    assert run.counts["written"] == sum(one.get("write", 0) for one in commands)

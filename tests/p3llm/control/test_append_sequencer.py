"""The append sequencer writes a token's codes, scales and zero points, and no other bits."""

import numpy as np
import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from golden.p3llm.dram_image import key_image, value_image
from golden.p3llm.p3llm import Cache
from hdl.catalog import entry_named
from hdl.p3llm.control.append_sequencer import AppendSequencer
from hdl.p3llm.instructions import MemoryOperation, memory_instruction
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, ColumnOperation
from testbenches.p3llm.system_models import drawn_cache

PRESETS = entry_named("p3llm").presets

TINY = PRESETS["tiny"]
LAYER = 300
ARRIVES = 3
"""Cycles from a read to its column."""


def mixed(before: Cache, after: Cache, token: int) -> Cache:
    """Return a cache with one token of another."""
    parts = {name: part.copy() for name, part in vars(before).items()}
    for name in parts.keys() - {"factors"}:
        parts[name][:, token] = getattr(after, name)[:, token]
    return Cache(**parts)


def image(cache: Cache, head: int) -> np.ndarray:
    """Return a head's keys and values after the data of other heads."""
    parts = [key_image(TINY, cache, head), value_image(TINY, cache, head)]
    return np.concatenate([np.full((LAYER, *parts[0].shape[1:]), 0x5A, np.uint8), *parts])


def slices(cache: Cache, head: int, token: int) -> list[dict[str, int]]:
    """Return the codes of a key, then of a value, in the quantiser's format."""
    given = []
    for value, name in enumerate(("key", "value")):
        codes = getattr(cache, f"{name}s")[head, token].reshape(-1, TINY.lanes).tolist()
        for number, numbers in enumerate(codes):
            given.append(
                {
                    "codes": numbers,
                    "zero_point": int(getattr(cache, f"{name}_zeros")[head, token]),
                    "scale": int(getattr(cache, f"{name}_scales")[head, token]),
                    "last": number == len(codes) - 1,
                    "value": value,
                    "complete": value and number == len(codes) - 1,
                }
            )
    return given


def append(cache: Cache, head: int, token: int, banks: np.ndarray, seed: int) -> None:
    """Write a token into the banks' bytes; the scheduler accepts columns after random delays."""
    unit, rng = AppendSequencer(parameters=TINY), np.random.default_rng(seed)
    zeros = {name: 0 for name, _field in memory_instruction(TINY)}
    pairs = {name: [0, 0] for name in ("inputs", "sums", "columns")}
    sets = -(-TINY.slots // (4 * TINY.block)) * TINY.key_set
    said = {"operation": MemoryOperation.APPEND.value, "base": 0, "values": sets}

    async def bench(ctx) -> None:
        ctx.set(unit.layer, LAYER)
        ctx.set(unit.position, token)
        ctx.set(unit.codes.valid, 1)
        for given in slices(cache, head, token):
            ctx.set(unit.codes.payload, given)
            await ctx.tick()
        ctx.set(unit.codes.valid, 0)
        ctx.set(unit.instructions.payload, {**zeros, **pairs, **said})
        ctx.set(unit.instructions.valid, 1)
        # The codes pass through a memory.
        while not ctx.get(unit.instructions.ready):
            await ctx.tick()
        await ctx.tick()
        ctx.set(unit.instructions.valid, 0)
        coming: list[int | None] = [None] * ARRIVES
        for _cycle in range(2000):
            taken = bool(ctx.get(unit.column.valid) and rng.random() < 0.5)
            ctx.set(unit.taken, taken)
            column = None
            if taken:
                place = ctx.get(unit.column.position)
                bank = ctx.get(unit.command.bank)
                assert place % (1 << COLUMN_BITS) == ctx.get(unit.command.column)
                number = place >> COLUMN_BITS
                side = (number + number // 16) % 2
                assert bank == 2 * ctx.get(unit.column.unit) + side
                column_bytes = banks[place, bank >> 1]
                writes = ctx.get(unit.column.write)
                operation = ColumnOperation.WRITE if writes else ColumnOperation.READ
                assert ctx.get(Value.cast(unit.command.operation)) == operation.value
                if writes:
                    word = ctx.get(Value.cast(unit.command.data)).to_bytes(
                        len(column_bytes), "little"
                    )
                    chosen = ctx.get(unit.command.mask) >> np.arange(len(column_bytes)) & 1 == 1
                    column_bytes[chosen] = np.frombuffer(word, np.uint8)[chosen]
                else:
                    column = int.from_bytes(column_bytes.tobytes(), "little")
            coming.append(column)
            arrived = coming.pop(0)
            await ctx.tick()
            ctx.set(unit.arrived, arrived is not None)
            ctx.set(unit.arrived_data, arrived or 0)
            if not ctx.get(unit.writes):
                return
        raise AssertionError("no end")

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("token", [0, 1, 18, 63, 64, 127])
def test_a_token_is_written_and_nothing_else(token: int) -> None:
    """The first and last token of a column, a unit, a round and a set."""
    rng, head = np.random.default_rng(token), token % TINY.kv_heads
    older, newer = (drawn_cache(TINY, TINY.slots, rng) for _ in range(2))
    banks = image(older, head)
    append(newer, head, token, banks, token)
    assert (banks == image(mixed(older, newer, token), head)).all()

"""Testbench of the KV eDRAM on banks that lose bits of words that are not refreshed in time."""

from typing import Any

import cocotb
import numpy as np

from golden.kelle.edram.kv_edram import Retention
from hdl.kelle.edram.kv_edram import HALVES, SIDES
from testbenches.kelle.edram.tb_kv_edram import Cache, real_entries

RETENTION = Retention(cycles=400, rate=0.05, seed=7)
"""Retention of the behavioural banks in this run; see `testbenches.kelle.edram.retention`."""


async def fill(cache: Cache) -> list[int]:
    """Write real rows to some addresses."""
    rows = list(real_entries(cache.p))[:16]
    await cache.bench.reset()
    for address, keys, values in rows:
        cache.write("keys", address, keys)
        cache.write("values", address, values)
    await cache.finish("keys_write", "values_write")
    return [address for address, _keys, _values in rows]


@cocotb.test()
async def refreshed_words_stay(dut: Any) -> None:
    """Sweep both halves repeatedly, each within the retention time: nothing is lost."""
    cache = Cache(dut, "refreshed words stay")
    addresses = await fill(cache)
    for _ in range(8):
        for half in HALVES:
            cache.sources[half].send(addresses)
        await cache.finish(*HALVES)
        for _cycle in range(RETENTION.cycles - 2 * len(addresses)):
            await cache.bench.step()
    for side in SIDES:
        cache.sources[f"{side}_read"].send(addresses)
    await cache.finish("keys_read", "values_read")
    await cache.check()


@cocotb.test()
async def forgotten_words_fade(dut: Any) -> None:
    """Refresh the MSB banks only: LSB words flip exactly the bits of the model."""
    cache = Cache(dut, "forgotten words fade")
    p = cache.p
    addresses = await fill(cache)
    for _ in range(3):
        for _cycle in range(RETENTION.cycles - 2 * len(addresses)):
            await cache.bench.step()
        cache.sources["msb"].send(addresses)
        await cache.finish("msb")
    width = 8 * p.word_bytes
    low = (1 << p.banks * width) - 1
    flips = 0
    for rows in cache.written:
        for address in addresses:
            msb, lsb = rows[address] & low, rows[address] >> p.banks * width
            faded = 0
            for bank in range(p.banks):
                word = lsb >> bank * width & ((1 << width) - 1)
                old = RETENTION.read(word, address, RETENTION.cycles + 1, width)
                flips += (word ^ old).bit_count()
                faded |= old << bank * width
            rows[address] = faded << p.banks * width | msb
    for side in SIDES:
        cache.sources[f"{side}_read"].send(addresses)
    await cache.finish("keys_read", "values_read")
    await cache.check()
    bits = len(SIDES) * len(addresses) * p.banks * width
    rate = np.array([flips / bits])
    assert 0.5 * RETENTION.rate < rate[0] < 1.5 * RETENTION.rate, f"{rate[0]} of all bits flipped"

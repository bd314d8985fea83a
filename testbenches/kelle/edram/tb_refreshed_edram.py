"""Testbench of the refreshed KV eDRAM: banks with retention errors, real rows and traffic."""

from typing import Any

import cocotb
import numpy as np

from golden.kelle.edram.kv_edram import Retention
from hdl.kelle.edram.kv_edram import SIDES, KvEdramParameters
from hdl.kelle.edram.refresh_walker import GROUPS, RefreshSettings
from hdl.kelle.edram.refreshed_edram import RefreshedEdramParameters
from testbenches.bench import Bench
from testbenches.kelle.edram.tb_kv_edram import real_entries
from testbenches.packing import from_integers, pack, to_integer, to_integers, unpack
from testbenches.streams import Stream

PARAMETERS = RefreshedEdramParameters(
    edram=KvEdramParameters(
        banks=2,
        word_bytes=4,
        words=32,
        head_size=16,
        slots=4,
        kv_heads=2,
        vector_size=20,
        vectors=2,
    ),
    score_bits=2,
    tick_bits=8,
    interval_bits=4,
)
TICK, TIMEOUT = 80, 40
SWEEP = PARAMETERS.refresh.sweep_cycles
RETENTION = Retention(cycles=TICK + TIMEOUT + SWEEP + 1, rate=0.5, seed=11)
"""Retention time that an interval of one tick ensures; see `testbenches.kelle.edram.retention`."""
TICKS = 12


class Banks:
    """A bench that drives and monitors every port; row r of real entries is at `addresses[r]`."""

    def __init__(self, dut: Any, salt: str, traffic: str) -> None:
        self.p = PARAMETERS
        self.bench = Bench(dut, f"{salt} {traffic}")
        self.dut = dut
        names = [f"{side}_{port}" for side in SIDES for port in ("read", "write")]
        self.sources = {name: self.bench.source(name, traffic) for name in names}
        self.scores = self.bench.source("scores")
        self.reads = {side: Stream(dut, f"{side}_read") for side in SIDES}
        self.rows = list(real_entries(self.p.edram))
        self.addresses = [address for address, _keys, _values in self.rows]
        self.got: dict[str, list[int]] = {side: [] for side in SIDES}
        self.bench.add(self)

    def clear(self) -> None:
        """Discard the rows that were read."""
        self.got = {side: [] for side in SIDES}

    def drive(self) -> None:
        """Drive nothing by itself."""

    def sample(self) -> None:
        """Record every row."""
        for side in SIDES:
            if int(getattr(self.dut, f"{side}_valid").value):
                self.got[side].append(int(getattr(self.dut, side).value))

    async def start(self, intervals: tuple[int, int, int, int], valid: bool) -> None:
        """Reset, write all rows, and send scores: even entries are important."""
        names = ("msb_hst", "msb_lst", "lsb_hst", "lsb_lst")
        settings = RefreshSettings(
            parameters=self.p.refresh,
            tick_cycles=TICK,
            timeout=TIMEOUT,
            **dict(zip(names, intervals, strict=True)),
        )
        fields = {
            name: {group: np.array(value) for group, value in item.items()}
            if isinstance(item, dict)
            else np.array(item)
            for name, item in settings.payload.items()
        }
        layout = self.p.refresh.settings_layout
        self.dut.settings.value = to_integer(pack(layout, fields))
        await self.bench.reset()
        for address, keys, values in self.rows:
            for side, row in zip(SIDES, (keys, values), strict=True):
                self.write(side, address, row)
        entries = np.arange(self.p.edram.entries)
        updates = {"entry": entries, "score": 3 * (entries % 2 == 0), "valid": 0 * entries + valid}
        self.scores.send(to_integers(pack(self.p.refresh.score_layout, updates)))
        await self.bench.run(until=lambda: self.scores.idle and self.written)

    @property
    def written(self) -> bool:
        """Whether all writes have been taken."""
        return all(self.sources[f"{side}_write"].idle for side in SIDES)

    def write(self, side: str, address: int, row: np.ndarray) -> None:
        """Offer a row."""
        edram = self.p.edram
        words = to_integers(pack(8 * edram.word_bytes, row.reshape(-1)))
        packed = sum(word << 8 * edram.word_bytes * i for i, word in enumerate(words))
        self.sources[f"{side}_write"].send([packed << edram.address_bits | address])

    async def live(self, rewrite: bool) -> None:
        """Simulate some ticks with reads of all rows, and writes of equal or of other rows."""
        edram, rng = self.p.edram, self.bench.rng
        for _cycle in range(TICKS * TICK):
            for number, side in enumerate(SIDES):
                if self.sources[f"{side}_read"].idle:
                    self.sources[f"{side}_read"].send([rng.choice(self.addresses)])
                if self.sources[f"{side}_write"].idle and rng.random() < 0.3:
                    address, keys, values = rng.choice(self.rows)
                    row = (keys, values)[number]
                    self.write(side, address if rewrite else edram.words - 1, row)
            await self.bench.step()
        await self.bench.run(until=lambda: self.written)

    async def intact(self) -> np.ndarray:
        """Read everything; return whether words are unchanged: [row, side, half, bank]."""
        edram = self.p.edram
        await self.bench.run(until=lambda: all(source.idle for source in self.sources.values()))
        # The rows of the last reads are still due.
        for _ in range(edram.read_cycles):
            await self.bench.step()
        self.clear()
        for side in SIDES:
            self.sources[f"{side}_read"].send(self.addresses)
        count = len(self.addresses)
        await self.bench.run(until=lambda: all(len(self.got[s]) >= count for s in SIDES))
        same = []
        for number, side in enumerate(SIDES):
            bits = from_integers(self.got[side], edram.row_layout.size)
            found = unpack(edram.row_layout, bits)
            wanted = np.array([row[1 + number] for row in self.rows]).astype(np.int64)
            same.append(found == wanted)
        return np.stack(same, axis=1)


@cocotb.test()
@cocotb.parametrize(traffic=["none", "random", "bursty"])
async def short_intervals_preserve_every_bit(dut: Any, traffic: str) -> None:
    """Read and write continuously or with pauses: no bit of any word changes."""
    banks = Banks(dut, "kept", traffic)
    await banks.start((1, 1, 1, 1), valid=True)
    await banks.live(rewrite=True)
    same = await banks.intact()
    banks.bench.compare("words intact", np.ones_like(same), same)
    layout = banks.p.refresh.counts_layout
    counts = unpack(layout, from_integers([int(dut.counts.value)], layout.size))[0]
    least = (TICKS - 1) * banks.p.refresh.entries * banks.p.refresh.words
    assert np.all(counts.sum(axis=1) >= least), f"{counts} words refreshed, at least {least} a half"


@cocotb.test()
@cocotb.parametrize(
    case=[
        ((1, 1, 1, 8), {("lsb", "lst")}),
        ((1, 1, 8, 8), {("lsb", "lst"), ("lsb", "hst")}),
        ((1, 8, 1, 1), {("msb", "lst")}),
        ((8, 8, 1, 1), {("msb", "lst"), ("msb", "hst")}),
        (None, {(half, group) for half in ("msb", "lsb") for group in GROUPS}),
    ]
)
async def only_late_groups_lose_bits(dut: Any, case: Any) -> None:
    """Set the interval of one group above its retention time, or mark all entries invalid."""
    intervals, late = case
    banks = Banks(dut, "late", "random")
    await banks.start(intervals or (1, 1, 1, 1), valid=intervals is not None)
    await banks.live(rewrite=False)
    same = await banks.intact()
    p = banks.p
    entry = np.array(banks.addresses) // p.edram.entry_words
    fades = np.zeros_like(same)
    for number, half in enumerate(("msb", "lsb")):
        for group, parity in (("hst", 0), ("lst", 1)):
            if (half, group) in late:
                fades[entry % 2 == parity, :, number] = True
    banks.bench.compare("words intact", ~fades, same)

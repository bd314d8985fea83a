"""Testbench of the systolic evictor: SmolLM2's attention scores, stalls, resets, extremes."""

from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data
from numpy.lib.stride_tricks import as_strided

from golden.kelle.eviction.aerp import replay
from golden.kelle.eviction.systolic_evictor import Victim
from golden.llm import open_trace
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.kelle.eviction.evictor_wavefronts import (
    WavefrontTable,
    policy_for,
    random_wavefronts,
    single_saturations,
    step_wavefronts,
    tabulate,
)
from testbenches.packing import from_digits, from_integers, unpack
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import Port

LAYERS = (0, 14, 29)
STEPS = 256
LONG = 1024
"""Number of slots from which a budget needs the longer text; fewer heads suffice then."""


def workload(p: SystolicEvictorParameters) -> tuple[Any, tuple[int, ...], int, int]:
    """Return the trace, its layers, and the first and the number of decode steps for a preset."""
    if p.slots >= LONG:
        steps, layers = 64, LAYERS[1:2]
        return open_trace(text="news", tokens=p.slots + steps, layers=layers), layers, p.slots, 64
    trace = open_trace(text="prose", tokens=640, layers=LAYERS)
    # Prefill slightly less than the budget, so that the replay also fills the last free slots.
    return trace, LAYERS, p.slots - p.slots // 8, STEPS


def prepare(p: SystolicEvictorParameters) -> None:
    """Capture the tensors before the simulator starts."""
    workload(p)


def shown(victim: Victim, p: SystolicEvictorParameters) -> tuple[int, ...]:
    """Return the defined fields of a victim: only `found` and `saturated` if none was found."""
    flags = (int(victim.found), int(victim.saturated) if p.halves else 0)
    return (victim.index, victim.importance, *flags) if victim.found else (0, 0, *flags)


class SkewedLanes:
    """Drive the lanes of every wavefront in flight, and record the write-backs of the rows.

    Lane i of a wavefront is driven i cycles after the transfer of its header; other lanes have
    noise. `page` has the digits of all lanes, one row per cycle; a wavefront is a diagonal of it.
    """

    def __init__(self, bench: Bench, pattern: str, p: SystolicEvictorParameters) -> None:
        self.bench, self.p = bench, p
        self.source = bench.source("wavefronts", pattern)
        self.lanes, self.updates = Port(bench.dut.lanes), Port(bench.dut.updates)
        # Digits in the order of the port: the last lane first, each from its most significant bit.
        lane = p.lane_layout.size
        self.digits = np.zeros((0, p.rows, lane), np.uint8)
        noise = bench.numpy_rng.integers(0, 2, (64, p.rows, lane), dtype=np.uint8) + ord("0")
        self.noise = np.tile(noise.reshape(64, -1)[:, ::-1], (-(-p.rows // 64), 1))
        self.page = np.concatenate([self.noise, self.noise])
        width, first = self.page.shape[1], self.page.shape[1] - lane
        self.heads = self.page[:, first:]
        self.diagonals = [
            as_strided(self.page[row, first:], (p.rows, lane), (width - lane, 1))
            for row in range(len(self.noise))
        ]
        self.next_wavefront = 0
        self.first_cycle = bench.cycle
        self.seen: list[str] = []
        self.accepted_at: list[int] = []

    def clear(self) -> None:
        """Discard the wavefronts in flight."""
        self.next_wavefront = 0
        self.first_cycle = self.bench.cycle
        self.seen.clear()
        self.accepted_at.clear()
        self.page[:] = np.concatenate([self.noise, self.noise])

    def offer(self, table: WavefrontTable) -> None:
        """Offer all wavefronts."""
        self.digits = table.lanes[..., ::-1] + ord("0")
        self.source.send(table.headers)

    def drive(self) -> None:
        """Drive lane 0 with the next wavefront, and the other lanes with those in flight."""
        if not self.seen:
            self.first_cycle = self.bench.cycle
        row = self.bench.cycle % len(self.noise)
        if row == 0:
            half = len(self.noise)
            self.page[:half], self.page[half:] = self.page[half:], self.noise
        if self.source.offered:
            self.heads[row] = self.digits[self.next_wavefront, 0]
        self.lanes.bits = self.page[row].tobytes().decode()

    def sample(self) -> None:
        """Record whether the first wavefront was transferred, and the write-backs."""
        if self.source.accepted:
            self.diagonals[self.bench.cycle % len(self.noise)][:] = self.digits[self.next_wavefront]
            self.accepted_at.append(self.bench.cycle)
            self.next_wavefront += 1
        self.seen.append(self.updates.bits)

    def check(self, table: WavefrontTable) -> None:
        """Require every write-back in its cycle, and no other."""
        p, bench = self.p, self.bench
        cycles = self.first_cycle + np.arange(len(self.seen))
        got = unpack(data.ArrayLayout(p.update_layout, p.rows), from_digits(self.seen))
        valid = np.zeros((len(cycles), p.rows), np.int64)
        importance = np.zeros_like(valid)
        accepted = np.array(self.accepted_at, np.int64)[:, np.newaxis] - self.first_cycle
        rows = np.broadcast_to(np.arange(p.rows), (len(accepted), p.rows))
        when = accepted + 1 + rows
        inside = when < len(cycles)
        valid[when[inside], rows[inside]] = 1
        updates = table.updates[: len(accepted)]
        importance[when[inside], rows[inside]] = updates[inside]
        bench.compare("updates.valid", valid, got["valid"], cycles=cycles)
        bench.compare("updates.importance", importance, got["importance"] * valid, cycles=cycles)


class Evictor:
    """A bench with the evictor's streams attached."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: SystolicEvictorParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.lanes = SkewedLanes(self.bench, source, self.p)
        self.bench.add(self.lanes)
        self.sink = self.bench.sink("victims", sink)

    def offer(self, table: WavefrontTable) -> None:
        """Offer all wavefronts."""
        self.lanes.offer(table)

    async def run(self, table: WavefrontTable) -> int:
        """Reset, offer everything, compare all victims and write-backs; return the cycles."""
        await self.bench.reset()
        self.offer(table)
        cycles = await self.bench.run(
            until=lambda: self.lanes.source.idle and len(self.sink.received) >= len(table.victims)
        )
        await self.bench.step(self.p.rows + 1)
        self.lanes.check(table)
        self._check_victims(table.victims)
        return cycles

    def _check_victims(self, expected: list[Victim]) -> None:
        layout = self.p.victim_layout
        packed = [payload for _cycle, payload in self.sink.received]
        got = unpack(layout, from_integers(packed, layout.size))
        found = got["found"].astype(bool)
        saturated = got["saturated"] if self.p.halves else np.zeros_like(got["found"])
        fields = [got["index"] * found, got["importance"] * found, got["found"], saturated]
        self.bench.compare(
            "victims (index, importance, found, saturated)",
            np.array([shown(victim, self.p) for victim in expected]),
            np.stack(fields, axis=-1),
            cycles=[cycle for cycle, _payload in self.sink.received],
        )


def real_steps(p: SystolicEvictorParameters) -> tuple[list[Any], str]:
    """Replay the policy over every key/value head of the captured layers."""
    trace, layers, first, count = workload(p)
    group = trace.heads // trace.kv_heads
    steps = []
    for layer in layers:
        for kv_head in range(trace.kv_heads):
            heads = range(kv_head * group, (kv_head + 1) * group)
            scores = np.stack([trace.attention_trace(layer, head).scores for head in heads])
            steps += replay(
                scores, policy_for(p), first=first, steps=count, source=p.source, evictor=p
            )
    what = f"SmolLM2 layers {layers}, {trace.kv_heads} KV heads, {count} decode steps each"
    return steps, what


@cocotb.test()
async def real_scores(dut: Any) -> None:
    """Compare victims of SmolLM2's decode steps, at full rate, one cycle after the last score."""
    p = catalog_parameters()
    steps, what = real_steps(p)
    table = tabulate((wavefront for step in steps for wavefront in step_wavefronts(step, p)), p)
    evictor = Evictor(dut, "real_scores")
    cycles = await evictor.run(table)
    victims = [victim.index for victim in table.victims]
    evictor.bench.compare(
        "victims of the policy",
        np.array([step.victim for step in steps]),
        np.array(victims),
    )
    searches = np.array([evictor.lanes.accepted_at[number] for number in table.last])
    seen = np.array([cycle for cycle, _payload in evictor.sink.received])
    evictor.bench.compare("cycle of the victim", searches + p.rows, seen)
    # Lower bound: one wavefront per cycle; the delay of the bottom row is added once.
    evictor.bench.record(cycles=cycles, ideal_cycles=len(table.headers), tensors=what)


@cocotb.test()
async def single_scores_saturate(dut: Any) -> None:
    """One score of a head saturates, in any row and tile: only its victim has the flag."""
    evictor = Evictor(dut, "single_scores_saturate", "random", "random")
    p = evictor.p
    await evictor.run(tabulate(single_saturations(evictor.bench.numpy_rng, p), p))


def random_table(evictor: Evictor, searches: int) -> WavefrontTable:
    """Return random searches."""
    wavefronts = random_wavefronts(evictor.bench.numpy_rng, evictor.p, searches)
    return tabulate(wavefronts, evictor.p)


stalls = stall_test(Evictor, lambda evictor: random_table(evictor, 40))
resets = reset_test(
    Evictor,
    lambda evictor: random_table(evictor, 12),
    longest=lambda evictor: 4 * evictor.p.rows,
    times=12,
)

"""Testbench of the array with its evictor: victims in SmolLM2's decode steps, from q and K."""

from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data

from golden.arith.requantiser import requantised
from golden.kelle.eviction.systolic_evictor import Victim, Wavefront
from hdl.kelle.array.evicting_array import EvictingArrayParameters
from testbenches.arith.requantiser_factors import random_factor
from testbenches.bench import Bench, catalog_parameters
from testbenches.kelle.array.tb_systolic_array import read
from testbenches.kelle.array.tile_passes import (
    few_digits,
    passes_of,
    projection,
    random_passes,
    values_operands,
)
from testbenches.kelle.decode_work import (
    LAYER,
    Builder,
    Work,
    decode_work,
    few_slots,
    open_layer,
    workload,
)
from testbenches.kelle.eviction.evictor_wavefronts import WavefrontTable, tabulate
from testbenches.packing import from_integers, pack, to_integer, unpack
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import StreamSource, four_states

SUM_BITS = 34
"""Bits of sums of a few products with upper bytes."""


def prepare(p: EvictingArrayParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_layer(p.evictor.slots)
    open_layer(few_slots(p))


class Surroundings:
    """Drive scales and slot states of each lane when its result is due, and record all outputs."""

    def __init__(self, bench: Bench, vectors: StreamSource, p: EvictingArrayParameters) -> None:
        self.bench, self.vectors, self.p = bench, vectors, p
        self.lane = np.arange(p.rows)
        # Bits of the inputs of each result, one row each, and numbers of the results' vectors.
        self.slots = np.zeros((1, p.rows, p.slot_layout.size), np.uint8)
        self.scales = np.zeros((1, p.scale_layout.size), np.uint8)
        self.scored: dict[int, int] = {}
        self.done: dict[int, int] = {}
        shape = (16, p.rows)
        rng = bench.numpy_rng
        self.noise = rng.integers(0, 2, (*shape, p.slot_layout.size), dtype=np.uint8)
        self.scale_noise = rng.integers(0, 2, (*shape, p.scale_layout.size), dtype=np.uint8)
        depth = p.latency + p.rows + 1
        # By age in cycles: the vector that was accepted then, numbered among those that complete a
        # sum, and among those that complete scores.
        self.done_at, self.scored_at = np.full(depth, -1), np.full(depth, -1)
        self.accepted_at: list[int] = []
        self.results: list[int] = []
        self.updates: list[int] = []
        self.first_cycle = self.bench.cycle

    def give(self, work: Work) -> None:
        """Prepare the inputs of all results of work."""
        fields = {
            name: np.array([getattr(wavefront, name) for wavefront in work.wavefronts]).astype(
                np.int64
            )
            for name, _field in self.p.slot_layout
        }
        self.slots = pack(self.p.slot_layout, fields)
        pairs = np.array(work.scales)
        self.scales = pack(self.p.scale_layout, {"scale": pairs[:, 0], "shift": pairs[:, 1]})
        self.scored = dict(zip(work.scored, range(len(work.scored)), strict=True))
        self.done = dict(zip(work.done, range(len(work.done)), strict=True))

    def clear(self) -> None:
        """Discard all recorded values."""
        self.done_at[:] = self.scored_at[:] = -1
        self.accepted_at = []
        self.results = []
        self.updates = []
        self.first_cycle = self.bench.cycle

    def drive(self) -> None:
        """Drive each lane with the inputs of its current result."""
        if not self.results:
            self.first_cycle = self.bench.cycle
        p, dut = self.p, self.bench.dut
        index = self.bench.cycle % len(self.noise)
        for port, ages, numbers, table, noise in (
            (dut.slots, self.lane + p.latency, self.scored_at, self.slots, self.noise),
            (
                dut.scales,
                self.lane + p.latency - p.stages,
                self.done_at,
                self.scales,
                self.scale_noise,
            ),
        ):
            due = numbers[ages - 1]
            if port is dut.slots:
                chosen = table[due, self.lane]
            else:
                chosen = table[due]
            bits = np.where((due >= 0)[:, np.newaxis], chosen, noise[index])
            port.value = to_integer(bits.reshape(-1))

    def sample(self) -> None:
        """Record accepted vectors and all outputs."""
        for ages in (self.done_at, self.scored_at):
            ages[1:] = ages[:-1]
            ages[0] = -1
        if self.vectors.accepted:
            number = len(self.accepted_at)
            self.accepted_at.append(self.bench.cycle)
            self.done_at[0] = self.done.get(number, -1)
            self.scored_at[0] = self.scored.get(number, -1)
        self.results.append(read(self.bench.dut.results))
        self.updates.append(read(self.bench.dut.updates))

    def check_silence(self) -> None:
        """Require that no lane has output a result or a new importance."""
        for name, seen, lane in (
            ("results", self.results, self.p.result_layout),
            ("updates", self.updates, self.p.evictor.update_layout),
        ):
            layout = data.ArrayLayout(lane, self.p.rows)
            got = unpack(layout, from_integers(seen, layout.size))["valid"]
            self.bench.compare(f"{name}.valid after reset", np.zeros_like(got), got)

    def check(self, work: Work, table: WavefrontTable) -> None:
        """Require every result and every new importance in its lane and cycle, and no other."""
        p = self.p
        accepted = np.array(self.accepted_at) - self.first_cycle
        self.bench.compare(
            "vectors accepted", np.array([len(work.vectors)]), np.array([len(accepted)])
        )
        self._check(
            "results",
            self.results,
            p.result_layout,
            accepted[work.done] + p.latency,
            {
                "value": np.array(work.values),
                "index": np.broadcast_to(
                    np.array(work.indices)[:, np.newaxis], (len(work.done), p.rows)
                ),
            },
        )
        if work.wavefronts:
            self._check(
                "updates",
                self.updates,
                p.evictor.update_layout,
                accepted[work.scored] + p.latency + 1,
                {"importance": table.updates},
            )

    def _check(
        self, name: str, seen: list[int], lane: Any, when: np.ndarray, fields: dict[str, np.ndarray]
    ) -> None:
        layout = data.ArrayLayout(lane, self.p.rows)
        cycles = np.arange(len(seen)) + self.first_cycle
        got = unpack(layout, from_integers(seen, layout.size))
        cycle = when[:, np.newaxis] + self.lane
        valid = np.zeros((len(seen), self.p.rows), np.int64)
        valid[cycle, self.lane] = 1
        self.bench.compare(f"{name}.valid", valid, got["valid"], cycles=cycles)
        for field, values in fields.items():
            expected = np.zeros_like(valid)
            expected[cycle, self.lane] = values
            shown = got[field] * got["valid"]
            self.bench.compare(f"{name}.{field}", expected, shown, cycles=cycles)


class Accelerator:
    """A bench that drives and monitors all ports."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: EvictingArrayParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.vectors = self.bench.source("vectors", source)
        self.weights = self.bench.source("weights", source)
        self.around = self.bench.add(Surroundings(self.bench, self.vectors, self.p))
        self.sink = self.bench.sink("victims", sink)

    def offer(self, work: Work) -> None:
        """Offer everything."""
        self.around.give(work)
        self.weights.send(work.beats)
        self.vectors.send(work.vectors)

    async def run(self, work: Work) -> WavefrontTable:
        """Reset, run work, and compare results, importances and victims; return the model's."""
        table = tabulate(work.wavefronts, self.p.evictor)
        await self.bench.reset()
        self.offer(work)
        await self.bench.run(
            until=lambda: self.vectors.idle and len(self.sink.received) >= len(table.victims)
        )
        await self.bench.step(self.p.latency + self.p.rows + 1)
        self.around.check(work, table)
        self._check_victims(table.victims)
        return table

    async def check_silence(self) -> None:
        """Require that nothing is output when nothing is input."""
        await self.bench.step(self.p.latency + self.p.rows)
        self.around.check_silence()
        assert not self.sink.received

    def _check_victims(self, victims: list[Victim]) -> None:
        layout = self.p.evictor.victim_layout
        got = unpack(layout, from_integers([item for _, item in self.sink.received], layout.size))
        for name in ("index", "importance", "found"):
            expected = np.array([int(getattr(victim, name)) for victim in victims])
            known = np.array([victim.found for victim in victims]) | (name == "found")
            self.bench.compare(f"victims.{name}", expected * known, got[name] * known)


@cocotb.test()
async def decode_steps(dut: Any) -> None:
    """Compare victims of decode steps, one cycle after the last score, without array stalls."""
    p = catalog_parameters()
    builder = Builder(p)
    victims, what = decode_work(builder, *workload(p), p.evictor.slots)
    work = builder.work
    unit = Accelerator(dut, "decode_steps")
    table = await unit.run(work)
    received = unit.sink.received
    layout = p.evictor.victim_layout
    got = unpack(layout, from_integers([item for _, item in received], layout.size))["index"]
    unit.bench.compare("victims of the policy", np.array(victims), got)
    accepted = np.array(unit.around.accepted_at)
    last_scores = accepted[np.array(work.scored)[table.last]] + p.latency + p.rows - 1
    seen = np.array([cycle for cycle, _ in received])
    unit.bench.compare("cycle of the victim", last_scores + 1, seen)
    # Lower bound per tile: the load of weights or the vectors, whichever is more; then the latency.
    period = max(p.array.load_cycles, builder.queries)
    tiles_loaded = len(work.beats) // p.array.load_cycles
    unit.bench.compare(
        "cycles from the first tile to the last",
        np.array([(tiles_loaded - 1) * period]),
        np.array([accepted[-builder.queries] - accepted[0]]),
    )
    unit.bench.record(
        cycles=int(accepted[-1] - accepted[0] + p.latency + p.rows + 1),
        ideal_cycles=tiles_loaded * period,
        tensors=what,
    )


@cocotb.test()
async def victims_wait(dut: Any) -> None:
    """Accept no victim until the array has stalled for long; no victim is lost or changed."""
    p = catalog_parameters()
    builder = Builder(p)
    decode_work(builder, p.evictor.victims + 2, (1,), few_slots(p))
    unit = Accelerator(dut, "victims_wait")
    unit.sink.pauses = chain(repeat(True, 2 * len(builder.work.beats)), repeat(False))
    await unit.run(builder.work)


@cocotb.test()
async def searches_of_one_vector(dut: Any) -> None:
    """End a search with every vector while no victim is accepted: the unit holds all victims."""
    p = catalog_parameters()
    builder = Builder(p)
    rng = Bench(dut, "searches_of_one_vector").numpy_rng
    largest = min(100, 1 << p.evictor.score_width - 1)
    for item in random_passes(rng, p.array, p.evictor.victims + 3):
        one = replace(item, vectors=item.vectors[:1])
        scale, shift = random_factor(rng, SUM_BITS)
        wavefront = Wavefront(
            load=True,
            compare=True,
            last=True,
            halve=False,
            scores=requantised(one.sums[0] << 8 * one.high, scale, shift),
            importance=rng.integers(-largest, largest, p.rows),
            valid=rng.random(p.rows) < 0.9,
            protect=rng.random(p.rows) < 0.2,
        )
        builder.add([one], scale, shift, [wavefront])
    unit = Accelerator(dut, "searches_of_one_vector")
    unit.sink.pauses = chain(repeat(True, 40 * p.rows), repeat(False))
    await unit.run(builder.work)


@cocotb.test()
async def other_products(dut: Any) -> None:
    """Run A.V and a projection between decode steps: they change no importance."""
    p = catalog_parameters()
    trace = open_layer(few_slots(p))
    builder = Builder(p)
    decode_work(builder, 1, (0,), few_slots(p))
    rng = Bench(dut, "other_products").numpy_rng
    values, weights = values_operands(trace, LAYER, 0, p.array, 2 * p.rows)
    operands = (values, weights[: builder.queries])
    values = list(passes_of(operands, p.array, wide=True))
    for number in range(0, len(values), 4):
        # From results of a few bits to results that nearly all saturate.
        builder.add(values[number : number + 4], 40000, 34 - number % 20)
    weights, activations = projection(trace, LAYER, "q_proj", p.array, p.vectors)
    channels = min(4 * p.rows, 576)
    operands = (weights[:channels], activations[:, :channels])
    builder.add(list(passes_of(operands, p.array, outputs=1)), int(rng.integers(1, 65536)), 27)
    decode_work(builder, 1, (1,), few_slots(p))
    unit = Accelerator(dut, "other_products")
    await unit.run(builder.work)


@cocotb.test()
@cocotb.parametrize(source=["none", "random"])
async def any_products(dut: Any, source: str) -> None:
    """Run random tiles with random scales and shifts."""
    p = catalog_parameters()
    builder = Builder(p)
    rng = Bench(dut, f"any_products {source}").numpy_rng
    for _ in range(300 if p.rows < 16 and not four_states() else 40):
        if rng.random() < 0.6:
            passes = [
                replace(item, high=bool(rng.integers(2)))
                for item in random_passes(rng, p.array, int(rng.integers(1, 4)))
            ]
            factor = random_factor(rng, SUM_BITS)
        else:
            item, factor = few_digits(rng, p.array)
            passes = [item]
        count = min(p.vectors, *(len(item.vectors) for item in passes))
        cut = [replace(item, vectors=item.vectors[:count]) for item in passes]
        # Some vectors share accumulators, so that their totals follow each other.
        common = rng.integers(0, p.vectors, count).tolist() if rng.random() < 0.3 else None
        builder.add(cut, *factor, indices=common)
    decode_work(builder, 1, (1,), few_slots(p))
    unit = Accelerator(dut, f"any_products {source}", source=source)
    await unit.run(builder.work)


def decode_of(unit: Accelerator, steps: int, layer: int) -> Work:
    """Return a few decode steps of SmolLM2 in a layer."""
    builder = Builder(unit.p)
    decode_work(builder, steps, (layer,), few_slots(unit.p))
    return builder.work


stalls = stall_test(Accelerator, lambda unit: decode_of(unit, 4, 0))
resets = reset_test(
    Accelerator,
    lambda unit: decode_of(unit, 2, 2),
    longest=lambda unit: 8 * unit.p.rows,
    times=8,
    after=Accelerator.check_silence,
)

"""Testbench of the array with its evictor: victims of SmolLM2's decode steps, from q and K."""

from dataclasses import dataclass, replace
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data

from golden.kelle.aerp import AerpParameters, DecodeStep, replay
from golden.kelle.evicting_array import SCORE_FRACTION, quantised_scores
from golden.kelle.requantiser import requantised
from golden.kelle.systolic_array import TilePass, tiles
from golden.kelle.systolic_evictor import Wave
from golden.kelle.tile_accumulator import TileAccumulatorModel
from golden.llm import Trace, open_trace
from hdl.kelle.evicting_array import EvictingArrayParameters
from hdl.kelle.systolic_evictor import ScoreSource, SystolicEvictorParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.kelle.evictor_waves import policy_for, step_waves, tabulate
from testbenches.kelle.tb_systolic_array import read
from testbenches.kelle.tile_passes import pack_weights, passes_of, projection, values_operands
from testbenches.packing import from_integers, pack, to_integer, to_integers, unpack
from testbenches.streams import PAUSES

LAYER = 14
LONG = 1024
"""Slots above which a budget needs a longer text than the prose."""


def open_layer(slots: int) -> Trace:
    """Return the tensors of one layer over a text that fills the slots."""
    if slots >= LONG:
        return open_trace(text="news", tokens=slots + 64, layers=(LAYER,))
    return open_trace(text="prose", tokens=640, layers=(0, LAYER, 29))


def prepare(p: EvictingArrayParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_layer(p.evictor.slots)
    open_layer(few_slots(p))


def few_slots(p: EvictingArrayParameters) -> int:
    """Return a budget that is searched quickly."""
    return min(p.evictor.slots, 4 * p.rows)


def workload(p: EvictingArrayParameters) -> tuple[int, tuple[int, ...]]:
    """Return how many decode steps of which heads take a few seconds."""
    tiles_a_step = p.evictor.slots // p.rows * (64 // p.rows)
    return (32, (0, 1, 2)) if tiles_a_step <= 8 else (6, (0, 1, 2) if p.rows < 32 else (0,))


@dataclass
class Work:
    """What the streams carry and what must come out, in the order of the vectors.

    Members
    -------
    beats, vectors : list[int]
        Packed payloads.
    scored : list[int]
        Numbers of the vectors that give scores to the evictor.
    waves : list[Wave]
        What each of them does there.
    done : list[int]
        Numbers of the vectors that give results.
    values, indices : list
        Those results, [rows] each, and the vectors' numbers among their kind.
    scales : list[tuple[int, int]]
        Scale and shift of every result.
    """

    beats: list[int]
    vectors: list[int]
    scored: list[int]
    waves: list[Wave]
    done: list[int]
    values: list[np.ndarray]
    indices: list[int]
    scales: list[tuple[int, int]]


class Builder:
    """Spell output tiles as loads and vectors, and model what the accumulators make of them."""

    def __init__(self, p: EvictingArrayParameters) -> None:
        self.p = p
        self.model = TileAccumulatorModel(p.accumulator, p.rows)
        self.work = Work([], [], [], [], [], [], [], [])

    def add(
        self, passes: list[TilePass], scale: int, shift: int, waves: list[Wave] | None = None
    ) -> None:
        """Add the passes of one output tile; `waves` go with the vectors of the last one."""
        p, work = self.p, self.work
        for number, item in enumerate(passes):
            work.beats += pack_weights(item.weights, p.array)
            first, last = number == 0, number == len(passes) - 1
            count = len(item.vectors)
            for index, sums in enumerate(item.sums):
                totals = self.model.add(sums, index=index, first=first, high=item.high)
                if last:
                    work.done.append(len(work.vectors) + index)
                    work.values.append(requantised(totals, scale, shift))
                    work.indices.append(index)
                    work.scales.append((scale, shift))
            if last and waves:
                work.scored += [len(work.vectors) + index for index in range(count)]
                work.waves += waves
            work.vectors += self._pack(item, first, last, waves if last else None)

    def _pack(
        self, item: TilePass, first: bool, last: bool, waves: list[Wave] | None
    ) -> list[int]:
        p, count = self.p, len(item.vectors)
        names = [name for name, _field in p.evictor.wave_layout]
        tag = {
            "step": {
                "first": np.full(count, int(first)),
                "high": np.full(count, int(item.high)),
                "index": np.arange(count),
            },
            "done": np.full(count, int(last)),
            "score": np.full(count, int(waves is not None)),
            "wave": {
                name: np.array([int(getattr(wave, name)) for wave in waves])
                if waves
                else np.zeros(count, np.int64)
                for name in names
            },
        }
        fields = {
            "elements": item.vectors,
            "transposed": np.full(count, int(item.transposed)),
            "swap": (np.arange(count) == 0).astype(int),
            "unsigned_weights": np.full(count, int(item.unsigned_weights)),
            "tag": tag,
        }
        return to_integers(pack(p.vector_layout, fields))


def step_work(
    builder: Builder,
    step: DecodeStep,
    evictor: SystolicEvictorParameters,
    queries: np.ndarray,
    keys: np.ndarray,
    scale: int,
    shift: int,
) -> None:
    """Add one decode step: every tile of slots, then the arriving token's own score."""
    p = builder.p
    valid = step.positions >= 0
    cached = np.where(valid[:, np.newaxis], keys[step.positions], 0)
    arriving = np.zeros((p.rows, keys.shape[1]), np.int64)
    arriving[step.slot % p.rows] = keys[step.now]
    waves = list(step_waves(step, evictor))
    moving = queries[:, step.now]
    stationary = np.concatenate([cached, arriving])
    for first, passes in tiles(stationary, moving, p.array, transposed=True, wide=True):
        number = first // p.rows * len(moving)
        builder.add(passes, scale, shift, waves[number : number + len(moving)])


def decode_work(
    builder: Builder, steps: int, kv_heads: tuple[int, ...], slots: int
) -> tuple[list[int], str]:
    """Add SmolLM2's decode steps; return the victims that the policy names, and what it was."""
    evictor, victims = replace(builder.p.evictor, slots=slots), []
    trace = open_layer(slots)
    group = trace.heads // trace.kv_heads
    policy: AerpParameters = policy_for(evictor)
    for kv_head in kv_heads:
        taken = [trace.attention_trace(LAYER, kv_head * group + head) for head in range(group)]
        queries, keys, scale, shift, scores = quantised_scores(
            np.stack([head.q for head in taken]), taken[0].k
        )
        real = scores / float(1 << SCORE_FRACTION)
        real[:, *np.triu_indices(real.shape[1], k=1)] = -np.inf
        first = slots - slots // 8
        for step in replay(
            real, policy, first=first, steps=steps, source=ScoreSource.RAW, evictor=evictor
        ):
            step_work(builder, step, evictor, queries, keys, scale, shift)
            victims.append(step.victim)
    return victims, f"SmolLM2 layer {LAYER}, {len(kv_heads)} KV heads, {steps} steps each"


class Surroundings:
    """Drive scales and slot states lane by lane as results fall due, and note all outputs."""

    def __init__(self, bench: Bench, vectors: Any, work: Work, p: EvictingArrayParameters) -> None:
        self.bench, self.vectors, self.work, self.p = bench, vectors, work, p
        self.table = tabulate(work.waves, p.evictor)
        self.lane = np.arange(p.rows)
        layout = p.slot_layout
        slots = {
            name: np.array([getattr(wave, name) for wave in work.waves]).astype(np.int64)
            for name, _field in layout
        }
        self.slots = pack(layout, slots)
        pairs = np.array(work.scales)
        self.scales = pack(p.scale_layout, {"scale": pairs[:, 0], "shift": pairs[:, 1]})
        self.scored = dict(zip(work.scored, range(len(work.scored)), strict=True))
        self.done = dict(zip(work.done, range(len(work.done)), strict=True))
        shape = (16, p.rows)
        rng = bench.numpy_rng
        self.noise = rng.integers(0, 2, (*shape, layout.size), dtype=np.uint8)
        self.scale_noise = rng.integers(0, 2, (*shape, p.scale_layout.size), dtype=np.uint8)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        depth = self.p.latency + self.p.rows + 1
        # By age: which vector, among those that are done and those that score, was accepted then.
        self.done_at, self.scored_at = np.full(depth, -1), np.full(depth, -1)
        self.accepted_at: list[int] = []
        self.results: list[int] = []
        self.updates: list[int] = []
        self.first_cycle = self.bench.cycle

    def drive(self) -> None:
        """Put on each lane what belongs to the result that is due there."""
        if not self.results:
            self.first_cycle = self.bench.cycle
        p, dut = self.p, self.bench.dut
        turn = self.bench.cycle % len(self.noise)
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
            bits = np.where((due >= 0)[:, np.newaxis], chosen, noise[turn])
            port.value = to_integer(bits.reshape(-1))

    def sample(self) -> None:
        """Note what was accepted and what is shown."""
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

    def check(self) -> None:
        """Require every result and every new importance in its lane and cycle, and no other."""
        p, work = self.p, self.work
        accepted = np.array(self.accepted_at) - self.first_cycle
        self.bench.compare(
            "vectors accepted", np.array(len(work.vectors)), np.array(len(accepted))
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
        if work.waves:
            self._check(
                "updates",
                self.updates,
                p.evictor.update_layout,
                accepted[work.scored] + p.latency + 1,
                {"importance": self.table.updates},
            )

    def _check(
        self, name: str, seen: list[int], lane: Any, when: np.ndarray, fields: dict[str, np.ndarray]
    ) -> None:
        layout = data.ArrayLayout(lane, self.p.rows)
        cycles = np.arange(len(seen)) + self.first_cycle
        got = unpack(layout, from_integers(seen, layout.size))
        place = when[:, np.newaxis] + self.lane
        valid = np.zeros((len(seen), self.p.rows), np.int64)
        valid[place, self.lane] = 1
        self.bench.compare(f"{name}.valid", valid, got["valid"], cycles=cycles)
        for field, values in fields.items():
            expected = np.zeros_like(valid)
            expected[place, self.lane] = values
            shown = got[field] * got["valid"]
            self.bench.compare(f"{name}.{field}", expected, shown, cycles=cycles)


class Accelerator:
    """A bench with all ports attached, and the work for it."""

    def __init__(
        self, dut: Any, salt: str, work: Work, *, source: str = "none", sink: str = "none"
    ) -> None:
        self.p: EvictingArrayParameters = catalog_parameters()
        self.work = work
        self.bench = Bench(dut, salt)
        self.vectors = self.bench.source("vectors", source)
        self.weights = self.bench.source("weights", source)
        self.around = self.bench.add(Surroundings(self.bench, self.vectors, work, self.p))
        self.sink = self.bench.sink("victims", sink)

    def start(self) -> None:
        """Offer everything."""
        self.weights.send(self.work.beats)
        self.vectors.send(self.work.vectors)

    async def run(self) -> None:
        """Reset, offer everything, and wait for all results and victims."""
        await self.bench.reset()
        self.sink.received.clear()
        self.start()
        expected = len(self.around.table.victims)
        await self.bench.run(
            until=lambda: self.vectors.idle and len(self.sink.received) == expected
        )
        for _ in range(self.p.latency + self.p.rows + 1):
            await self.bench.step()

    def check(self) -> None:
        """Compare results, importances and victims."""
        self.around.check()
        layout = self.p.evictor.victim_layout
        got = unpack(layout, from_integers([item for _, item in self.sink.received], layout.size))
        victims = self.around.table.victims
        for name in ("index", "importance", "found"):
            expected = np.array([int(getattr(victim, name)) for victim in victims])
            known = np.array([victim.found for victim in victims]) | (name == "found")
            self.bench.compare(f"victims.{name}", expected * known, got[name] * known)


@cocotb.test()
async def decode_steps(dut: Any) -> None:
    """Every victim of real decode steps, one cycle after the last score; no stall of the array."""
    p = catalog_parameters()
    builder = Builder(p)
    victims, what = decode_work(builder, *workload(p), p.evictor.slots)
    work = builder.work
    unit = Accelerator(dut, "decode_steps", work)
    await unit.run()
    unit.check()
    received = unit.sink.received
    layout = p.evictor.victim_layout
    got = unpack(layout, from_integers([item for _, item in received], layout.size))["index"]
    unit.bench.compare("victims of the policy", np.array(victims), got)
    accepted = np.array(unit.around.accepted_at)
    last_scores = accepted[np.array(work.scored)[unit.around.table.last]] + p.latency + p.rows - 1
    seen = np.array([cycle for cycle, _ in received])
    unit.bench.compare("cycle of the victim", last_scores + 1, seen)
    # Bound: the load of weights, or the vectors where there are more; the rest is the fill.
    period = max(p.array.load_cycles, 3)
    tiles_loaded = len(work.beats) // p.array.load_cycles
    unit.bench.compare(
        "cycles from the first tile to the last",
        np.array((tiles_loaded - 1) * period),
        np.array(accepted[-3] - accepted[0]),
    )
    unit.bench.record(
        cycles=int(accepted[-1] - accepted[0] + p.latency + p.rows + 1),
        ideal_cycles=tiles_loaded * period,
        tensors=what,
    )


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """A few decode steps under every pair of pause patterns."""
    p = catalog_parameters()
    builder = Builder(p)
    decode_work(builder, 3, (0,), few_slots(p))
    salt = f"stalls {source} {sink}"
    unit = Accelerator(dut, salt, builder.work, source=source, sink=sink)
    await unit.run()
    unit.check()


@cocotb.test()
async def other_products(dut: Any) -> None:
    """A.V and a projection pass between decode steps without touching importances."""
    p = catalog_parameters()
    trace = open_layer(few_slots(p))
    builder = Builder(p)
    decode_work(builder, 1, (0,), few_slots(p))
    rng = Bench(dut, "other_products").numpy_rng
    operands = values_operands(trace, LAYER, 0, p.array, 2 * p.rows)
    values = list(passes_of(operands, p.array, wide=True))
    for number in range(0, len(values), 4):
        builder.add(values[number : number + 4], 40000, 30)
    weights, activations = projection(trace, LAYER, "q_proj", p.array, p.vectors)
    channels = min(4 * p.rows, 576)
    operands = (weights[:channels], activations[:, :channels])
    builder.add(list(passes_of(operands, p.array, outputs=1)), int(rng.integers(1, 65536)), 27)
    decode_work(builder, 1, (1,), few_slots(p))
    unit = Accelerator(dut, "other_products", builder.work)
    await unit.run()
    unit.check()


@cocotb.test()
async def resets(dut: Any) -> None:
    """A reset in the middle of work leaves nothing behind."""
    p = catalog_parameters()
    builder = Builder(p)
    decode_work(builder, 2, (2,), few_slots(p))
    unit = Accelerator(dut, "resets", builder.work, source="random", sink="bursty")
    for _ in range(8):
        await unit.bench.reset()
        unit.start()
        for _cycle in range(unit.bench.rng.randint(1, 8 * p.rows)):
            await unit.bench.step()
    await unit.run()
    unit.check()

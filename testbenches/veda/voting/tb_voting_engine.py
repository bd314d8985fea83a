"""Testbench of the voting engine: SmolLM2's attention, stalls, resets, corner cases, full rate."""

from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.veda.voting.vote_threshold import PAPER, ThresholdCoefficients
from golden.veda.voting.voting_engine import exact_votes
from golden.veda.voting.voting_policy import VotingPolicy, VotingStep, replay
from hdl.memory.threshold_search import SEARCH_OVERHEAD
from hdl.veda.voting.threshold_parameters import COEFFICIENT_BITS
from hdl.veda.voting.voting_parameters import VotingEngineParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import Bench, catalog_parameters, context
from testbenches.packing import from_integers, unpack
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import Port
from testbenches.veda.voting.edge_heads import FEWEST
from testbenches.veda.voting.voting_steps import (
    StepTable,
    edge_codes,
    random_work,
    replayed,
    sink_codes,
    tabulate,
    threshold_codes,
    threshold_work,
    usual_coefficients,
)

LAYERS = (0, 14, 29)
TOKENS = 640
"""Tokens of the text."""

HEADS = 6
"""Heads that may be between their sum and their votes."""

TURNS = 3
"""Cycles of trimming in which the counts are written, and the search starts and ends."""


def evicts_two(run: Run) -> bool:
    """Return whether two slots are not protected, as the trimming of a text needs."""
    p = run.parameters
    return p.slots - (p.reserved if p.protect_sink else 0) >= 2


PROTECTED = "fewer than two slots are not protected"


def workload(p: VotingEngineParameters, full: bool) -> tuple[tuple[int, ...], VotingPolicy, int]:
    """Return the layers of a preset, its policy, and the number of generated tokens.

    An engine for more heads than the model has uses those of several layers.
    """
    groups = -(-p.heads // 9)
    layers = LAYERS if full and groups == 1 else tuple(range(14, 14 + groups))
    protected = p.reserved if p.protect_sink else 0
    prompt, target, steps = 160, 128, 16
    if p.slots < prompt:
        # At least two victims at the prompt's end, for any number of slots, none of them protected.
        prompt = min(max(p.slots - 4, protected + 2, 3), p.slots)
        target, steps = max(min(p.slots // 2, prompt - 2), protected), 24
    elif full:
        prompt = min(512, p.slots)
        target, steps = prompt // 2, 128
    policy = VotingPolicy(
        prompt=prompt,
        target=target,
        reserved=p.reserved,
        largest=(1 << p.count_bits) - 1,
        protected=protected,
    )
    return layers, policy, steps


def prepare(p: VotingEngineParameters) -> None:
    """Capture the tensors before the simulator starts."""
    for full in (False, True):
        open_trace(text="prose", tokens=TOKENS, layers=workload(p, full)[0])


def real_steps(p: VotingEngineParameters, full: bool) -> tuple[list[VotingStep], str]:
    """Replay the policy, and return all tokens from shortly before the prompt's end on.

    The layers alternate, as in the model: each step reads the counts of its layer's previous step.
    """
    layers, policy, steps = workload(p, full)
    trace = open_trace(text="prose", tokens=TOKENS, layers=layers)
    heads = [(layer, head) for layer in layers for head in range(trace.heads)]
    scores = np.stack(
        [trace.attention_trace(*head).scores[: policy.prompt + steps] for head in heads]
    )[:, :, : policy.prompt + steps]
    texts = []
    engine = exact_votes(usual_coefficients(p), fallback=p.threshold.fallback)
    for first in range(0, len(heads) - p.heads + 1, p.heads):
        group = replay(scores[first : first + p.heads], policy, engine)
        texts.append([step for step in group if step.token >= policy.prompt - 4])
    taken = [step for token in zip(*texts, strict=True) for step in token]
    return taken, f"SmolLM2 layers {layers}, {p.heads} heads, {steps} generated tokens"


class Waits:
    """Count the cycles in which an offered item is not accepted."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.cycles = 0

    def clear(self) -> None:
        """Reset the count."""
        self.cycles = 0

    def drive(self) -> None:
        """Drive nothing."""

    def sample(self) -> None:
        """Sample the source after its own `sample`."""
        self.cycles += self.source.offered


class Engine:
    """A bench with the engine's streams."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p = catalog_parameters()
        self.bench = Bench(dut, salt, timeout=3 * self.p.fifo_depth + 500)
        self.steps = self.bench.source("steps", source)
        self.probabilities = self.bench.source("probabilities", source)
        self.waits = self.bench.add(Waits(self.probabilities))
        self.counts_in = self.bench.source("counts_in", source)
        self.counts_out = self.bench.sink("counts_out", sink)
        self.victims = self.bench.sink("victims", sink)
        self.coefficients = Port(dut.coefficients)

    def offer(self, table: StepTable, *, counts: bool = True) -> None:
        """Apply the coefficients, and offer all inputs, or all but the counts."""
        coefficients = table.coefficients
        self.coefficients.value = coefficients.mean | coefficients.deviation << COEFFICIENT_BITS
        self.steps.send(table.headers)
        self.probabilities.send(table.probabilities)
        if counts:
            self.counts_in.send(table.counts)

    async def run(self, table: StepTable, *, late: int = 0) -> int:
        """Reset, offer all inputs, the counts `late` cycles later; compare; return the cycles."""
        await self.bench.reset()
        self.offer(table, counts=False)
        await self.bench.step(late)
        self.counts_in.send(table.counts)
        return await self.finish(table)

    async def finish(self, table: StepTable) -> int:
        """Wait for all outputs of the model, and compare them; return the cycles."""
        cycles = await self.bench.run(
            until=lambda: (
                len(self.counts_out.received) >= len(table.sent)
                and len(self.victims.received) >= len(table.victims)
                and self.steps.idle
            )
        )
        # No further output follows.
        await self.bench.step(8)
        self.check(table)
        return cycles

    def check(self, table: StepTable) -> None:
        """Compare counts and victims with the model."""
        p = self.p
        # Steps that evict all tokens output no counts.
        cycles = [cycle for cycle, _count in self.counts_out.received]
        counts = np.array([count for _cycle, count in self.counts_out.received], np.int64)
        self.bench.compare("counts", table.sent, counts, cycles=cycles)
        layout = p.victim_layout
        packed = [payload for _cycle, payload in self.victims.received]
        got = unpack(layout, from_integers(packed, layout.size)) if packed else {}
        fields = [got.get(name, np.zeros(0)) for name in ("slot", "votes", "found")]
        self.bench.compare(
            "victims (slot, votes, found)",
            table.victims,
            (np.stack(fields, axis=-1) * fields[2][:, np.newaxis]).astype(np.int64),
            cycles=[cycle for cycle, _payload in self.victims.received],
        )


@cocotb.test()
@only_if(evicts_two, PROTECTED)
async def real_probabilities(dut: Any) -> None:
    """Every vote, count and victim of SmolLM2's tokens, trimming included."""
    p = catalog_parameters()
    steps, what = real_steps(p, context()["full"])
    bench = Bench(dut, "real_probabilities")
    table = tabulate(replayed(steps, p), p, bench.numpy_rng)
    bench.compare(
        "victims of the policy",
        np.array([victim for step in steps for victim in step.victims]),
        table.victims[:, 0],
    )
    engine = Engine(dut, "real_probabilities")
    await engine.run(table)
    outcomes = [outcome for result in table.results for outcome in result.outcomes]
    bench.record(
        cycles=0,
        ideal_cycles=0,
        tensors=what,
        heads=len(outcomes),
        fallbacks=sum(outcome.fallback for outcome in outcomes),
    )


@cocotb.test()
@only_if(evicts_two, PROTECTED)
async def trimming(dut: Any) -> None:
    """Trim the cache at a prompt's end: search the words of counts, then pass over the slots."""
    p = catalog_parameters()
    steps, what = real_steps(p, context()["full"])
    rng = Bench(dut, "trimming").numpy_rng
    trim = next(work for work in replayed(steps, p) if work[0].evictions > 1)
    step, codes, counts = trim
    cycles = []
    for evictions in (0, step.evictions):
        table = tabulate([(replace(step, evictions=evictions), codes, counts)], p, rng)
        engine = Engine(dut, "trimming")
        cycles.append(await engine.run(table))
        bits = max(int(table.results[0].counts.max()).bit_length(), 1)
    words = -(-step.length // p.search_lanes)
    search = bits * (words + SEARCH_OVERHEAD)
    cost = cycles[1] - cycles[0]
    # A victim is output one cycle after its slot, which shows for the last slot of the pass.
    last_is_victim = int(table.victims[-1, 0] == step.length - 1)
    expected = search + step.length + TURNS + last_is_victim
    engine.bench.compare("cycles of trimming", np.array([expected]), np.array([cost]))
    engine.bench.record(
        cycles=0,
        ideal_cycles=0,
        trimming=f"{what}: {step.length} to {step.length - step.evictions}, {bits} bits",
        trimming_cycles=cost,
        trimming_passes=round(cost / step.length, 2),
    )


@cocotb.test()
async def heads_in_a_row(dut: Any) -> None:
    """Heads without a gap, layer after layer: the array never stalls."""
    p = catalog_parameters()
    long = min(p.slots, p.slots if context()["full"] else 512)
    bench = Bench(dut, "heads_in_a_row")
    rng = bench.numpy_rng
    # Short heads, then long ones, and half as long, as at a prompt's end.
    short = p.threshold.interval
    lengths = [short, short + 5, long, max(short, long // 2), long]
    if p.rounds * long > 16_000:
        lengths = [short, long]
    lengths = [length for length in lengths if length <= p.slots] or [long]
    works = [random_work(rng, p, length=length, vote=True, evictions=1) for length in lengths]
    table = tabulate(works, p, rng)
    engine = Engine(dut, "heads_in_a_row")
    cycles = await engine.run(table)
    if p.slots < short:
        # All heads are shorter than the latency of a threshold: the array has to wait.
        return
    stalled = engine.waits.cycles
    assert stalled == 0, f"the array waits for {stalled} cycles"
    # The last victim, and the bound: one probability per cycle, and the last head's latency.
    last = engine.victims.received[-1][0]
    beats = len(table.probabilities)
    expected = beats + p.threshold.latency + lengths[-1] + 3
    bench.compare("cycles to the last victim", np.array([expected]), np.array([cycles]))
    bench.record(
        cycles=cycles,
        ideal_cycles=expected,
        array_beats=beats,
        array_stalls=stalled,
        last_victim=last,
    )


@cocotb.test()
@cocotb.parametrize(late=[0, 400])
async def short_heads(dut: Any, late: int) -> None:
    """Begin a text: with few slots, passes are faster than their own writes.

    If counts arrive late, heads accumulate in all buffers.
    """
    p = catalog_parameters()
    salt = f"short_heads {late}"
    rng = Bench(dut, salt).numpy_rng
    lengths = [*range(1, min(p.slots, 16) + 1)] * 2
    works = [random_work(rng, p, length=length) for length in lengths]
    table = tabulate(works, p, rng)
    engine = Engine(dut, salt)
    await engine.run(table, late=late)


COEFFICIENTS = {
    "paper": PAPER,
    "no deviation": ThresholdCoefficients(5000, 0),
    "above all": ThresholdCoefficients(8191, 100),
}
"""Coefficients a and b, which are calibrated for each model."""


@cocotb.test()
@cocotb.parametrize(coefficients=["usual", *COEFFICIENTS])
async def thresholds_to_the_last_bit(dut: Any, coefficients: str) -> None:
    """Vote in cases where the last bit of a threshold decides, and the first bit of a root."""
    p = catalog_parameters()
    salt = f"thresholds_to_the_last_bit {coefficients}"
    rng = Bench(dut, salt).numpy_rng
    chosen = COEFFICIENTS.get(coefficients, usual_coefficients(p))
    step = 1 if coefficients == "usual" else 5
    lengths = range(1 if step > 1 else 2, min(p.slots, 40) + 1, step)
    heads = [threshold_codes(rng, p, max(length, 2), chosen) for length in lengths]
    longest = min(p.slots, 512)
    heads += [sink_codes(rng, p, longest) for _ in range(4 // step)]
    if chosen.deviation and FEWEST <= p.slots:
        edges = rng.integers(FEWEST, min(p.slots, 64) + 1, 20 // step)
        heads += [edge_codes(rng, p, int(length), chosen) for length in edges]
    works = [threshold_work(rng, p, codes) for codes in heads]
    table = tabulate(works, p, rng, chosen)
    engine = Engine(dut, salt)
    await engine.run(table)


@cocotb.test()
async def no_counts_for_long(dut: Any) -> None:
    """Probabilities accumulate until the FIFO is full; none is lost."""
    p = catalog_parameters()
    rng = Bench(dut, "no_counts_for_long").numpy_rng
    # At most `HEADS` heads may wait for their votes, so each fills a quarter of the FIFO.
    length = min(p.slots, max(256, p.fifo_depth // 4))
    count = 1 + 2 * p.fifo_depth // (length * p.rounds)
    works = [random_work(rng, p, length=length, vote=True, evictions=1) for _ in range(count)]
    table = tabulate(works, p, rng)
    engine = Engine(dut, "no_counts_for_long")
    await engine.bench.reset()
    engine.offer(table, counts=False)
    for _ in range(p.fifo_depth + p.threshold.latency + 200):
        await engine.bench.step()
    # Three votes are downstream of the FIFO: one in its register, two waiting to be counted.
    held = p.fifo_depth + 3
    # With few slots the number of heads is the limit, and not the FIFO.
    least = held if HEADS * length >= p.fifo_depth else HEADS * length
    assert least <= engine.probabilities.taken <= held + 2, engine.probabilities.taken
    engine.counts_in.send(table.counts)
    await engine.finish(table)


def random_table(engine: Engine, lengths: NDArray[np.int64]) -> StepTable:
    """Return random steps of some lengths."""
    rng, p = engine.bench.numpy_rng, engine.p
    return tabulate([random_work(rng, p, length=int(length)) for length in lengths], p, rng)


stalls = stall_test(
    Engine,
    lambda engine: random_table(
        engine, engine.bench.numpy_rng.integers(1, min(engine.p.slots, 48) + 1, 4)
    ),
)
resets = reset_test(
    Engine,
    lambda engine: random_table(
        engine, engine.bench.numpy_rng.integers(2, min(engine.p.slots, 40) + 1, 5)
    ),
    longest=400,
    times=12,
)

"""Testbench of the eviction controller with its evictor: whole decodes of SmolLM2's scores."""

from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np

from golden.kelle.eviction.aerp import EMPTY, AerpParameters, contributions, replay
from golden.kelle.eviction.head_scores import HeadScores
from golden.kelle.eviction.prefill import centred
from golden.kelle.eviction.prefill_selector import Kept, importances, select
from golden.kelle.eviction.systolic_evictor import quantise_scores
from golden.llm import open_trace
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from testbenches.applicable import Run, only_if
from testbenches.kelle.eviction.eviction_bench import Decode
from testbenches.kelle.script import Steps
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import four_states

LAYER = 14
STEPS = 160
QUERIES = 3
"""Query heads that share a key/value head in SmolLM2."""


def prepare(p: EvictionParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=640, layers=(LAYER,))


def small(run: Run) -> bool:
    """Return whether a text fills all slots in few steps."""
    return run.parameters.evictor.slots < 32


def real_scores(p: EvictionParameters, tokens: int) -> list[np.ndarray]:
    """Return SmolLM2's scores [queries, tokens, tokens] for each head; masked ones are 0."""
    trace = open_trace(text="prose", tokens=640, layers=(LAYER,))
    heads = []
    for head in range(p.kv_heads):
        queries = [(head * QUERIES + q) % trace.heads for q in range(QUERIES)]
        scores = [trace.attention_trace(LAYER, q).scores[:tokens, :tokens] for q in queries]
        heads.append(np.stack(scores))
    return heads


def prefilled(p: EvictionParameters, scores: list[np.ndarray], first: int) -> list[Kept]:
    """Select the tokens that a prefill of `first` tokens keeps in each head, and popular ones."""
    totals = []
    for head in scores:
        given = np.zeros((len(head), first, first))
        for query in range(first):
            seen = slice(0, query + 1)
            given[:, query, seen] = contributions(head[:, query, seen], p.evictor.source)
        whole = quantise_scores(given, p.evictor)
        totals.append(importances(centred(whole, p.evictor) if p.centred else whole, p.evictor))
    return select(totals, p)


def plans(
    decode: Decode, scores: list[np.ndarray], first: int, steps: int
) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Yield the position of each decoded token, and what it adds to the importance of all tokens.

    A probability depends on the other tokens that the query attends to, so that a step's plan is
    made when the step begins.
    """
    for now in range(first, first + steps):
        yield now, [plan(decode, head, scores[head], now) for head in range(decode.p.kv_heads)]


def plan(decode: Decode, head: int, scores: np.ndarray, now: int) -> np.ndarray:
    """Return what token `now` adds to the tokens of a head, int64 [queries, positions]."""
    p, cached = decode.p, decode.model.heads[head].positions.copy()
    if p.evict_before and np.all(cached != EMPTY):
        cached[decode.model.heads[head].victim] = EMPTY
    used = cached != EMPTY
    raw = np.full((len(scores), p.evictor.slots + 1), -np.inf)
    raw[:, :-1][:, used] = scores[:, now, cached[used]]
    raw[:, -1] = scores[:, now, now]
    given = np.zeros((len(scores), now + 1))
    attended = contributions(raw, p.evictor.source)
    given[:, cached[used]], given[:, now] = attended[:, :-1][:, used], attended[:, -1]
    return quantise_scores(given, p.evictor)


@cocotb.test()
async def real_decode(dut: Any) -> None:
    """Compare slots, victims, positions, popular tokens and coarse scores of decode steps."""
    decode = Decode(dut, "real decode")
    p, bench = decode.p, decode.bench
    slots = p.evictor.slots
    # Slightly less than the budget, so that the steps also fill the last free slots.
    first = min(max(slots - 4, p.sinks + 1), decode.positions - 1)
    steps = min(STEPS if p.kv_heads * slots <= 1024 else 12, decode.positions - first)
    scores = real_scores(p, min(first + steps, 640))
    await decode.reset()
    await decode.prefill(prefilled(p, scores, first))
    start = bench.cycle
    await search_before(decode, first)
    for now, given in plans(decode, scores, first, steps):
        await decode.step(now, given)
    cycles = bench.cycle - start
    await decode.check()
    if not p.evict_before:
        compare_with_policy(decode, scores, first, steps)
    # Lower bound: each head completes one tile per `rows` cycles.
    bench.record(
        cycles=cycles,
        ideal_cycles=steps * p.kv_heads * max(slots, QUERIES * p.tiles),
        stored_vectors=len(decode.expected.stores),
        tensors=f"SmolLM2 layer {LAYER}: {p.kv_heads} heads, {steps} decode steps",
    )


async def search_before(decode: Decode, first: int) -> None:
    """Search the victims of the first step, if a step uses those of the previous step."""
    p = decode.p
    for head in range(p.kv_heads if p.evict_before else 0):
        nothing = np.zeros((1, p.evictor.slots), np.int64)
        decode.send_search(head, nothing)
        decode.expected.score_updates += decode.model.search(head, nothing, first)
    await decode.bench.run(until=lambda: decode.wavefronts.idle)


@cocotb.test()
@only_if(small, "real decodes begin with most slots full")
async def full_prefills(dut: Any) -> None:
    """Decode a few steps after prefills that fill all slots, or all but one."""
    decode = Decode(dut, "full prefills", sink="random")
    p = decode.p
    longest = range(p.evictor.slots - 1, p.evictor.slots + 3)
    for first in sorted({min(first, decode.positions - 1) for first in longest}):
        steps = min(4, decode.positions - first)
        await decode.reset()
        scores = real_scores(p, first + steps)
        await decode.prefill(prefilled(p, scores, first))
        await search_before(decode, first)
        for now, given in plans(decode, scores, first, steps):
            await decode.step(now, given)
        await decode.check()


def compare_with_policy(decode: Decode, scores: list[np.ndarray], first: int, steps: int) -> None:
    """Compare slots and evicted positions with the replay of the policy, head by head."""
    p = decode.p
    policy = AerpParameters(budget=p.evictor.slots, window=p.window, sinks=p.sinks)
    wanted = [
        [
            (step.slot, int(step.positions[step.slot]))
            for step in replay(
                head,
                policy,
                first=first,
                steps=steps,
                source=p.evictor.source,
                evictor=p.evictor,
                centre=HeadScores(p) if p.centred else None,
            )
        ]
        for head in scores
    ]
    got = np.array(decode.expected.placements).reshape(steps, p.kv_heads, -1)
    evicted = np.where(got[..., 2] == 1, got[..., 3], EMPTY)
    decode.bench.compare(
        "slots and victims of golden.aerp",
        np.array(wanted).transpose(1, 0, 2),
        np.stack([got[..., 1], evicted], axis=-1),
    )


def random_plan(decode: Decode, tokens: int) -> list[np.ndarray]:
    """Return scores [queries, tokens] for each head: extremes and ties, or random ones."""
    p, rng = decode.p, decode.bench.numpy_rng
    width, signed = p.evictor.input_width, int(p.evictor.input_shape.signed)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    if rng.integers(3) == 0:
        return [rng.choice([0, 1 << p.evictor.shift, high], (2, tokens)) for _ in range(p.kv_heads)]
    return [rng.integers(low, high + 1, (2, tokens)) for _ in range(p.kv_heads)]


@cocotb.test()
@only_if(small, "many slots take many steps to fill")
async def positions_run_out(dut: Any) -> None:
    """Decode beyond the last position, with constant positions: `no_victim` is set as defined."""
    decode = Decode(dut, "positions run out")
    p, slots = decode.p, decode.p.evictor.slots
    last = decode.positions - 1
    await decode.reset()
    for step in range(3 * slots):
        now = min(max(last - slots - p.window, 0) + step, last)
        await decode.step(now, random_plan(decode, 4 * slots))
    assert decode.model.no_victim
    await decode.check()


def random_text(decode: Decode, tokens: int) -> range:
    """Return positions of a text of at most some tokens, of which half begin with the sinks."""
    rng, tokens = decode.bench.rng, min(tokens, decode.positions)
    first = rng.choice([0, rng.randrange(decode.positions - tokens + 1)])
    return range(first, first + tokens)


def random_tokens(decode: Decode, tokens: int) -> Steps:
    """Decode texts in random layers, from an empty cache, with ties, extremes and popularity."""
    texts = [random_text(decode, tokens) for _layer in range(decode.p.layers)]
    order = [layer for layer, text in enumerate(texts) for _token in text]
    decode.bench.rng.shuffle(order)
    following = list(map(iter, texts))
    for layer in order:
        yield from decode.choose(layer)
        now = next(following[layer])
        yield from decode.decode(now, random_plan(decode, now + 1))


def streamed_tokens(decode: Decode) -> Steps:
    """Search all heads back to back, with lookups of slots in every cycle."""
    decode.lookups.active = True
    for now in random_text(decode, 4 * decode.p.evictor.slots):
        yield from decode.decode(now, random_plan(decode, now + 1), streamed=True)


def two_texts(decode: Decode) -> Steps:
    """Decode a text, and another one after its end, which begins with free slots."""
    for tokens in (3, 2):
        yield from random_tokens(decode, tokens * decode.p.evictor.slots)
        for layer in range(decode.p.layers):
            yield from decode.choose(layer)
            yield from decode.end_text()
    yield from random_tokens(decode, decode.p.evictor.slots)


few_slots = only_if(small, "many slots take many steps to fill")
stalls = stall_test(
    Decode, lambda decode: random_tokens(decode, 4 * decode.p.evictor.slots), condition=few_slots
)
streamed_searches = stall_test(
    Decode, streamed_tokens, condition=few_slots, name="streamed_searches"
)
second_text = stall_test(Decode, two_texts, condition=few_slots, name="second_text")
resets = reset_test(
    Decode,
    lambda decode: random_tokens(decode, 2 * decode.p.evictor.slots),
    begun=lambda decode: random_tokens(decode, 4 * decode.p.evictor.slots),
    # A step takes some 40 cycles per head: most resets follow the first eviction.
    longest=lambda decode: 100 * decode.p.kv_heads * decode.p.evictor.slots,
    times=2,
    rounds=lambda _decode: 1 if four_states() else 4,
    pauses=("random", "random"),
    condition=few_slots,
)

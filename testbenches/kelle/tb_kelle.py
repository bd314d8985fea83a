"""Testbench of the accelerator: decode steps of a SmolLM2 layer, from state to state."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import requantised, scale_and_shift
from golden.kelle.eviction.eviction_controller import KEPT
from golden.kelle.eviction.prefill import prefill
from golden.kelle.whole_model import IntegerVocabulary, vocabulary_sums
from golden.llm import open_trace
from hdl.kelle.edram.refresh_walker import RefreshSettings
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import record_fact
from testbenches.kelle.accelerator import WAITING, arrays
from testbenches.kelle.decode import MOST_CACHES, Decode, intervals, longest, shortened
from testbenches.kelle.script import Steps
from testbenches.kelle.step_cycles import step_bound
from testbenches.kelle.text_layers import TOKENS, layer_numbers
from testbenches.packing import Bits, pack
from testbenches.shared_tests import SLOW, reset_test, stall_test
from testbenches.streams import four_states

Integers = NDArray[np.int64]


def prepare(p: KelleParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=layer_numbers(p))


def step_tick(p: KelleParameters) -> int:
    """Return a tick with time for a sweep and a step."""
    return p.memory.refresh.sweep_cycles + step_bound(p) * 9 // 8 + 400


def small(run: Run) -> bool:
    """Return whether decoding a whole text takes seconds."""
    return run.parameters.slots <= 16


def alone(run: Run) -> bool:
    """Return whether the cache is small and the batch is one sequence."""
    return small(run) and run.parameters.batch == 1


def step_fits_a_tick(run: Run) -> bool:
    """Return whether the counter of ticks can count the cycles of a step."""
    return step_tick(run.parameters) < 1 << run.parameters.tick_bits


def quick(run: Run) -> bool:
    """Return whether the simulation of many cycles takes seconds."""
    return small(run) and not run.four_states


@cocotb.test()
@only_if(step_fits_a_tick, "each step needs one tick, so that the scores of a sweep are known")
async def real_decode(dut: Any) -> None:
    """Decode with a full cache: outputs, victims, popular tokens, slots, and refreshed words.

    One step per tick: the sweep of each tick is between two steps, so that the model knows the
    scores that it uses.
    """
    decode = Decode(dut, "real decode")
    p, bench, accelerator = decode.p, decode.bench, decode.accelerator
    steps = min(128, TOKENS - decode.full) if bench.context["full"] else 2
    if p.hidden_size > 1024 or p.caches > MOST_CACHES:
        steps = 1
    if p.slots <= 16:
        steps = 6 if four_states() else 32
    steps = len(decode.text(decode.full, steps))
    sweep = p.memory.refresh.sweep_cycles + 64
    tick = step_tick(p)
    # The scores of a long text take several ticks, during which some slots would be empty.
    await decode.start(intervals(p, tick), decode.full, select=p.slots <= 16)
    begun = accelerator.begun
    cycles: dict[int, list[int]] = {}
    used: list[float] = []
    while begun + sweep < bench.cycle:
        begun += tick
        decode.refresh.tick()
    for now in decode.text(decode.full, steps):
        await bench.wait(begun + sweep)
        taken = await decode.step(now)
        cycles.setdefault(decode.members, []).append(taken)
        used.append(accelerator.weight_utilisation(bench.cycle))
        begun += tick
        assert bench.cycle < begun - 64, f"a step must end before its tick: {bench.cycle}, {begun}"
        await bench.wait(begun + sweep)
        decode.refresh.tick()
        bench.compare("words refreshed", decode.refresh.counts, accelerator.counts())
        await decode.corrupt()
    await decode.check()
    placements = [placement for step in decode.steps for placement in step.placements]
    bench.record(
        cycles=sum(map(sum, cycles.values())),
        ideal_cycles=steps * accelerator.roofline,
        cycles_by_members={members: max(taken) for members, taken in sorted(cycles.items())},
        popular_tokens=sum(step.store is not None for step in decode.steps),
        recomputed_tokens=sum(step.members - 1 for step in decode.steps),
        evictions=sum(placement.evicted >= 0 for placement in placements),
        recomputed_victims=sum(placement.vector != KEPT for placement in placements),
        refreshed_words=int(decode.refresh.counts.sum()),
        weight_pass_utilisation=f"{np.mean(used):.1%}",
        tensors=f"SmolLM2 layer {layer_numbers(p)[0]}, {steps} tokens of {p.batch} sequences",
    )


@cocotb.test()
@only_if(lambda run: run.parameters.caches > MOST_CACHES, "real_decode has all layers")
async def first_layer(dut: Any) -> None:
    """Decode one token of each sequence in the first layer of many, without refreshes."""
    decode = Decode(dut, "first layer")
    p, bench, accelerator = decode.p, decode.bench, decode.accelerator
    await decode.start(longest(p), decode.full, select=False)
    cycles = await decode.step(decode.full)
    used = accelerator.weight_utilisation(bench.cycle)
    await decode.check()
    bench.record(
        cycles=cycles,
        ideal_cycles=accelerator.roofline,
        cycles_by_members={decode.members: cycles},
        weight_pass_utilisation=f"{used:.1%}",
        off_chip_rows=len(accelerator.overflow.read) if accelerator.overflow else 0,
        tensors=f"SmolLM2 layer {layer_numbers(p)[0]}, one token of {p.batch} sequences",
    )


@cocotb.test()
@only_if(small, "a text is decoded until its slots are full")
async def second_text(dut: Any) -> None:
    """End a sequence's text while the others continue: a second one begins with free slots."""
    decode = Decode(dut, "second text", sink="random")
    p = decode.p
    await decode.start(longest(p), decode.full)
    texts = decode.text(decode.full, 3 * p.slots + 8)
    for now in texts:
        # The end is offered with the next step's token, which must not overtake it.
        if now in (texts.start + 4, texts.start + 6):
            decode.end_text(now, p.caches - 1)
        await decode.step(now, p.layers - 1)
    await decode.check()


@cocotb.test()
@only_if(lambda run: run.parameters.weight_memory > 0, "without a weight memory")
async def weights_ahead(dut: Any) -> None:
    """Decode steps back to back, while weights of the next step are already transferred.

    A step takes no longer than its slowest part and the latencies of norms and array between its
    matrices, during which the weight memory continues to fill.
    """
    decode = Decode(dut, "weights ahead")
    p, bench, accelerator = decode.p, decode.bench, decode.accelerator
    steps = len(decode.text(decode.full, 6 if p.slots <= 16 else 2))
    await decode.start(longest(p), decode.full)
    accelerator.offers_weights = False
    for _step in range(steps):
        accelerator.offer_weights()
    begun, ahead = bench.cycle, 0
    ends = []
    for now in decode.text(decode.full, steps):
        await decode.step(now)
        ends.append(bench.cycle)
        ahead = max(ahead, accelerator.words - (now + 1 - decode.full) * accelerator.step_words)
    await decode.check()
    assert accelerator.words == steps * accelerator.step_words
    for number, cycles in enumerate(np.diff([begun, *ends])):
        record_fact("cycles of steps back to back", str(number), int(cycles))
    record_fact("cycles of the slowest part", "step", accelerator.roofline)
    record_fact("words transferred before their step", "at most", ahead)
    assert ahead > 0


@cocotb.test()
@only_if(lambda run: run.parameters.vocabulary_size > 0, "without an LM head")
async def vocabulary(dut: Any) -> None:
    """Predict between steps with all pauses: the argmax of exact sums, ties to the lowest token."""
    for pattern in ("none", "random", "bursty"):
        decode = Decode(dut, "vocabulary", pattern, pattern)
        p, bench, accelerator = decode.p, decode.bench, decode.accelerator
        await decode.start(longest(p), decode.full)
        # The second half of the tokens repeats the first half, so that all sums have ties.
        size, top = (p.hidden_size, -(-p.vocabulary_size // 2)), 1 << p.weight_bits - 1
        half = bench.numpy_rng.integers(-top, top, size, np.int8)
        matrix = np.tile(half, 2)[:, : p.vocabulary_size]
        # Epsilon is that of the last layer, so that the next step must select that of the first.
        whole = IntegerVocabulary(matrix=matrix, epsilon=decode.layers[-1].epsilon, step=1.0)
        wanted = []
        for now in decode.text(decode.full, 3):
            await decode.step(now)
            state = decode.steps[-1].output
            # An LM head in which the sum of every token is negative.
            signs = np.where(state < 0, 1, -1).astype(np.int8)[:, np.newaxis]
            negative = replace(whole, matrix=np.abs(np.maximum(matrix, 1 - top)) * signs)
            # A state and its negation have different argmaxes.
            for row, tokens in ((state, whole), (-state, whole), (state, negative)):
                sums = vocabulary_sums(tokens, row, p)
                wanted.append((int(sums.argmax()), int(sums.max())))
                await accelerator.predict(row, tokens.filled(p.head_size), p.layers - 1)
            assert wanted[-1][1] < 0
        await decode.check()
        bench.compare("predictions", np.array(wanted), accelerator.predictions())


@cocotb.test()
@only_if(lambda run: not small(run), "a small cache is filled by the selector in every test")
async def selected_prefill(dut: Any) -> None:
    """Let the unit select the tokens of a long text, and decode with them."""
    decode = Decode(dut, "selected prefill")
    await decode.start(longest(decode.p), decode.full)
    await decode.step(decode.full)
    await decode.check()


@cocotb.test()
@cocotb.parametrize(select=[True, False])
@only_if(alone, "the order of two streams does not depend on dimensions")
async def token_after_its_prefill(dut: Any, select: bool) -> None:
    """Offer a token in the same cycle as its prefill: it waits for the prefill."""
    decode = Decode(dut, f"token after its prefill {select}")
    await decode.start(longest(decode.p))
    made = prefill(decode.model, decode.full)
    decode.learn(made.score_updates)
    # This test does not refresh, so that rows may be written before their slots are in use.
    decode.accelerator.send_cache(decode.model, made)
    await decode.accelerator.run("row_writes")
    if select:
        decode.accelerator.send_scores(made)
    else:
        for token in made.kept:
            decode.accelerator.send_kept(token)
    await decode.step(decode.full)
    await decode.check()


@cocotb.test()
@only_if(lambda run: small(run) and run.parameters.layers > 1, "with one layer")
async def prefill_after_a_token(dut: Any) -> None:
    """Offer a prefill of another layer during a step: it waits, and uses its own layer."""
    decode = Decode(dut, "prefill after a token")
    accelerator = decode.accelerator
    await decode.start(longest(decode.p))
    model = decode.models[decode.p.batch]
    made = prefill(model, decode.full)
    decode.learn(made.score_updates)
    accelerator.next_prefill = list(made.kept)
    await decode.step(0)
    accelerator.send_cache(model, made)
    await accelerator.run("prefill", "row_writes")
    await decode.step(decode.full, layer=1)
    await decode.check()


@cocotb.test()
@only_if(small, "a large cache takes hundreds of steps to fill")
async def empty_cache(dut: Any) -> None:
    """Decode from the first token of a text: tiles are empty, partly filled, then full."""
    decode = Decode(dut, "empty cache")
    await decode.start(longest(decode.p))
    for now in decode.text(0, 4 if four_states() else 2 * decode.p.slots):
        await decode.step(now)
    await decode.check()


@cocotb.test()
@only_if(lambda run: run.parameters.step_tokens > 1, "one token per step")
async def longest_block(dut: Any) -> None:
    """Decode one token after a prefill, then a block of as many as a step has: their cycles."""
    decode = Decode(dut, "longest block")
    p = decode.p
    await decode.start(longest(p), decode.full, select=False)
    for count in (1, p.step_tokens):
        first, begun = decode.following[0], decode.bench.cycle
        tokens = [(0, first + place) for place in range(count)]
        states = decode.layers[0].quantised_states[first : first + count]
        await decode.script.run(
            decode.accelerator.decode(decode.compute(tokens, states, 0), states)
        )
        record_fact("cycles of a step", f"{count} tokens", decode.bench.cycle - begun)
        record_fact("ideal cycles of a step", f"{count} tokens", decode.accelerator.bound(count))
        record_fact("rows of the combined matrix", f"{count} tokens", decode.members)
    await decode.check()


def without_last(p: KelleParameters, tokens: Sequence[tuple[int, int]]) -> Bits:
    """Return tokens that do not end their step, of the highest sequence number, legal or not."""
    values = {
        "position": [position for _sequence, position in tokens],
        "sequence": [(1 << p.sequence_bits) - 1] * len(tokens),
        "last": [0] * len(tokens),
    }
    return pack(p.arriving_layout, arrays(values))


@cocotb.test()
@only_if(lambda run: small(run) and run.parameters.step_tokens > 1, "one token per step")
async def illegal_tokens(dut: Any) -> None:
    """Offer as many tokens as a step has without an end, of the last sequence or a higher number.

    Each step skips positions, as illegal texts do.
    """
    decode = Decode(dut, "illegal tokens")
    p, accelerator = decode.p, decode.accelerator
    await decode.start(longest(p), decode.full)
    accelerator.token_words = without_last
    for _step in range(4):
        first = decode.following[p.batch - 1] + 2
        tokens = [(p.batch - 1, first + place) for place in range(p.step_tokens)]
        states = decode.layers[0].quantised_states[first : first + p.step_tokens]
        await decode.script.run(accelerator.decode(decode.compute(tokens, states, 0), states))
    await decode.check()


@cocotb.test()
@cocotb.parametrize(prefilled=[True, False])
@only_if(lambda run: small(run) and run.parameters.step_tokens > 1, "one token per step")
async def random_blocks(dut: Any, prefilled: bool) -> None:
    """Decode blocks of random lengths, from an empty or a full cache, with slots evicted in them.

    Tokens become popular in the middle of a block, and their vectors are those of other tokens
    before. Between steps, the rows of recomputed tokens are overwritten, to detect reads of them.
    """
    decode = Decode(dut, f"random blocks {prefilled}")
    p = decode.p
    await decode.start(longest(p), decode.full if prefilled else 0)
    for _round in range(2 if four_states() else 40):
        await decode.script.run(decode.blocks(p.step_tokens))
        await decode.corrupt()
    await decode.check()


@cocotb.test()
@only_if(quick, "hours at large dimensions or in four states")
async def steps_in_advance(dut: Any) -> None:
    """Offer each step, in random layers, while the previous one is computed.

    Epsilon is constant during a step, so that all layers have the same one.
    """
    decode = Decode(dut, "steps in advance", change=partial(replace, epsilon=1000))
    await decode.start(longest(decode.p), decode.full)
    await decode.script.run(decode.blocks(20, ahead=True))
    await decode.finish()
    await decode.check()


@cocotb.test()
@only_if(
    lambda run: run.parameters.layers > 1 and run.parameters.caches <= MOST_CACHES,
    "with one layer, or too many caches",
)
async def layers_back_to_back(dut: Any) -> None:
    """Decode tokens in all layers: each has its own slots, vectors, keys, values and scales.

    The bench converts the output state of a layer to the quantisation step of the next layer.
    """
    decode = Decode(dut, "layers back to back")
    await decode.start(longest(decode.p), decode.full)
    for now in decode.text(decode.full, 4 if decode.p.slots <= 16 else 1):
        states = decode.states(now)
        for number, layer in enumerate(decode.layers):
            if number:
                before = decode.layers[number - 1].steps[Operation.DOWN]
                factor = scale_and_shift(before / layer.steps[Operation.DOWN])
                outputs = [step.output for step in decode.steps[-decode.p.batch :]]
                states = requantised(np.stack(outputs), *factor)
            await decode.step(now, number, states)
    await decode.check()


@cocotb.test()
@only_if(small, "the norm's own test has every size")
async def another_epsilon(dut: Any) -> None:
    """Decode with a large epsilon: SmolLM2's is negligible next to the squares of its states."""
    change = partial(replace, epsilon=1 << 30)
    decode = Decode(dut, "another epsilon", change=change)
    await decode.start(longest(decode.p), decode.full)
    await decode.step(decode.full)
    await decode.check()


@cocotb.test()
@only_if(quick, "the array's own test has every size")
async def short_scales(dut: Any) -> None:
    """Decode with scales of few bits: results depend on the last bits of products, and on ties."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        decode = Decode(dut, "short scales", change=lambda layer, rng=rng: shortened(layer, rng))
        await decode.start(longest(decode.p), decode.full)
        for now in decode.text(decode.full, 20):
            await decode.step(now)
        await decode.check()


@cocotb.test()
@only_if(quick, "its outputs wait for many cycles")
async def late_outputs(dut: Any) -> None:
    """Accept no output state for the length of some steps, while the next token is offered."""
    decode = Decode(dut, "late outputs")
    accelerator, bench = decode.accelerator, decode.bench
    await decode.start(longest(decode.p), decode.full)
    sink = accelerator.sinks["outputs"]
    pauses, sink.pauses = sink.pauses, repeat(True)
    await decode.script.run(accelerator.begin_step(*decode.expect(decode.full)))
    accelerator.offer(*decode.expect(decode.full + 1))
    for _cycle in range(4 * accelerator.roofline):
        await bench.step()
    assert not sink.received
    sink.pauses = pauses
    await decode.finish()
    await decode.check()


@cocotb.test()
@only_if(quick, "each step waits for a slow memory")
async def late_input_vectors(dut: Any) -> None:
    """Answer a request for an input vector only after the next token has waited for it."""
    decode = Decode(dut, "late input vectors")
    accelerator = decode.accelerator
    accelerator.answer_after = WAITING
    await decode.start(longest(decode.p), decode.full)
    for now in decode.text(decode.full, 20):
        await decode.step(now)
    await decode.check()
    record_fact("late input vectors", "answered", accelerator.answered)


@cocotb.test()
@only_if(quick, "hours at large dimensions or in four states")
async def crowded_banks(dut: Any) -> None:
    """Refresh in nearly all cycles of the banks: reads are late, and the step waits for them."""
    decode = Decode(dut, "crowded banks")
    p = decode.p
    refresh = p.memory.refresh
    always = {f"{half}_{group}": 1 for half in ("msb", "lsb") for group in ("hst", "lst")}
    tick = refresh.sweep_cycles + 4
    await decode.start(
        RefreshSettings(parameters=refresh, tick_cycles=tick, timeout=0, **always), decode.full
    )
    popular = any(model.inputs for model in decode.models)
    for now in decode.text(decode.full, 4):
        await decode.step(now)
    await decode.check()
    # Where the cache has popular tokens, the input of one was read as well.
    assert decode.members > p.batch or not popular


def refreshed_steps(decode: Decode) -> Steps:
    """Fill the cache and decode tokens and blocks, while refreshes occur at any time."""
    p = decode.p
    sweep = p.memory.refresh.sweep_cycles
    tick = min(3 * sweep, (1 << p.tick_bits) - 1)
    yield from decode.load(intervals(p, tick, min(sweep, tick - sweep)), decode.full)
    for now in decode.text(decode.full, 3):
        yield from decode.decode(now)
    yield from decode.blocks(3 * p.step_tokens)
    assert decode.accelerator.counts().min() > 0


def steps_after_a_reset(decode: Decode) -> Steps:
    """Fill the cache with tokens that the bench selects, and decode tokens and blocks."""
    yield from decode.load(longest(decode.p), decode.full, select=False)
    yield from decode.decode(decode.full)
    yield from decode.blocks((1 if four_states() else 2) * decode.p.step_tokens)


stalls = stall_test(
    Decode,
    refreshed_steps,
    pairs=[(pattern, pattern) for pattern in SLOW],
    condition=only_if(quick, "hours at large dimensions or in four states"),
)
resets = reset_test(
    Decode,
    steps_after_a_reset,
    longest=lambda decode: 2 * decode.accelerator.load_beats,
    times=lambda _decode: 1 if four_states() else 4,
    rounds=lambda _decode: 1 if four_states() else 2,
    condition=only_if(small, "a large cache takes minutes to fill again"),
)

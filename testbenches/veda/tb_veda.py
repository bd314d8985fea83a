"""Testbench of VEDA: decode steps of SmolLM2 with eviction, several layers, stalls, bad input."""

from typing import Any

import cocotb
import numpy as np

from hdl.veda.parameters import VedaParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import catalog_parameters, context
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import four_states, read
from testbenches.veda.accelerator import Accelerator
from testbenches.veda.decode_texts import (
    layered,
    mixed,
    mixed_layers,
    past_of,
    prompt,
    text_layers,
)
from testbenches.veda.decode_texts import states_of_all_sizes as random_states
from testbenches.veda.decode_work import (
    LAYERS,
    DecodeWork,
    open_tokens,
    random_tokens,
    real_tokens,
)
from testbenches.veda.hbm_timing import HbmTiming
from testbenches.veda.layer_weights import real_states, real_weights

STALLS = [
    ("none", "random"),
    ("random", "none"),
    ("bursty", "adversarial"),
    ("adversarial", "bursty"),
    ("random", "random"),
]
"""Stall patterns of inputs and of outputs."""


ENTRY = 150
"""Cycles from the start of work in which most of its inputs enter."""


def reset_within(accelerator: Accelerator, longest: int) -> int:
    """Return the cycles within which a reset occurs: during the entry of inputs, or all of them."""
    return accelerator.bench.rng.choice((ENTRY, longest))


def small(run: Run) -> bool:
    """Return whether whole layers take only seconds."""
    return run.parameters.array.width < 64


def many(p: VedaParameters) -> bool:
    """Return whether many cycles are affordable."""
    return p.array.width < 64 and not four_states()


def prepare(p: VedaParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_tokens()


@cocotb.test()
@only_if(lambda run: small(run) or run.full, "minutes at large dimensions: FULL=1")
async def whole_layers(dut: Any) -> None:
    """Execute up to three consecutive layers for tokens of SmolLM2."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "whole_layers")
    # At the published dimensions a layer has 1.6 million lines.
    layers = 1 if four_states() or p.hidden_size >= 4096 else 3
    work = layered(p, 127, 3 if many(p) else 1, layers)
    cycles = await accelerator.run(work)
    facts = {"cycles_layers": cycles, "beats_layers": work.ideal_cycles, "layers": len(work.steps)}
    accelerator.bench.record(cycles=0, ideal_cycles=0, **facts)


@cocotb.test()
@only_if(
    lambda run: run.full and not small(run) and run.parameters.hidden_size < 4096,
    "a figure for large dimensions that takes minutes: FULL=1",
)
async def layers_from_hbm(dut: Any) -> None:
    """Execute up to three layers for a token, with a memory that has rows, banks and refresh."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "layers_from_hbm", timing=HbmTiming())
    work = layered(p, 127, 1, 3)
    cycles = await accelerator.run(work)
    facts = {"cycles_hbm": cycles, "beats_hbm": work.ideal_cycles}
    accelerator.bench.record(cycles=0, ideal_cycles=0, **facts)


@cocotb.test()
@only_if(
    lambda run: small(run) or (run.full and run.parameters.hidden_size < 4096),
    "hours at the published dimensions, minutes at large ones: FULL=1",
)
async def whole_prompt(dut: Any) -> None:
    """Process a prompt in blocks; each line of a matrix is fetched once per block."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "whole_prompt")
    layers = 1 if four_states() else 3
    if many(p):
        work = prompt(p, 2 * p.block + 2, p.block + 1, p.block, layers)
    else:
        work = prompt(p, p.block, max(1, min(5, p.block - 2)), 0, layers)
    cycles = await accelerator.run(work)
    assert not read(dut.overflow)
    fetched = np.array([accelerator.memory.beats])
    accelerator.bench.compare("lines fetched", np.array([work.ideal_lines]), fetched)
    facts = {
        "cycles_prompt": cycles,
        "beats_prompt": work.ideal_cycles,
        "lines_prompt": work.ideal_lines,
        "tokens_prompt": sum(len(states) for states in work.states_in),
    }
    accelerator.bench.record(cycles=0, ideal_cycles=0, **facts)


@cocotb.test()
@only_if(lambda run: small(run) and not run.four_states, "real states suffice for large dimensions")
async def states_of_all_sizes(dut: Any) -> None:
    """Whole layers of hidden states of all magnitudes, which expose bits that others mask."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "states_of_all_sizes")
    rng, steps = accelerator.bench.numpy_rng, 12
    work = mixed_layers(rng, p, steps, states=random_states(rng, p, steps + p.block))
    await accelerator.run(work)


small_layers = only_if(small, "whole layers of large dimensions take long")


def some_layers(accelerator: Accelerator, steps: int) -> DecodeWork:
    """Return whole layers and attention alone in random order."""
    return mixed_layers(accelerator.bench.numpy_rng, accelerator.p, steps)


layer_stalls = stall_test(
    Accelerator,
    lambda accelerator: some_layers(accelerator, 1 if four_states() else 6),
    pairs=STALLS,
    condition=small_layers,
    name="layer_stalls",
)
layer_resets = reset_test(
    Accelerator,
    lambda accelerator: some_layers(accelerator, 1 if four_states() else 2),
    longest=lambda accelerator: reset_within(accelerator, 2500 if many(accelerator.p) else 700),
    rounds=lambda _accelerator: 1 if four_states() else 4,
    condition=small_layers,
    name="layer_resets",
)


@cocotb.test()
async def real_decode(dut: Any) -> None:
    """Tokens of SmolLM2 through up to two alternating layers; each step evicts one token."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "real_decode")
    cached = 127 if p.slots > 127 else p.slots - 1
    count = 128 if context()["full"] else min(3, 1 + 16 // p.rounds)
    numbers = LAYERS[1:][: p.layers]
    tokens = [real_tokens(p, layer) for layer in numbers]
    work = DecodeWork(p)
    for layer, text in enumerate(tokens):
        work.load(layer, *past_of(text, cached))
    for index in range(cached, cached + count):
        for layer, text in enumerate(tokens):
            work.add(layer, text, index, vote=True, evictions=1)
    cycles = await accelerator.run(work)
    assert not read(dut.overflow)
    size = f"{p.heads} heads, {count} tokens, {cached + 1} cached"
    accelerator.bench.record(
        cycles=cycles,
        ideal_cycles=work.ideal_cycles,
        tensors=f"SmolLM2 layers {numbers}, {size}",
    )


@cocotb.test()
async def votes_cost_nothing(dut: Any) -> None:
    """Run the same layers with and without votes: the last output is in the same cycle."""
    p = catalog_parameters()
    tokens = real_tokens(p, LAYERS[1])
    length = min(p.slots, 128 if context()["full"] else 32)
    cycles = []
    for vote in (True, False):
        accelerator = Accelerator(dut, "votes_cost_nothing")
        work = DecodeWork(p)
        for layer in range(len(text_layers(p, 2))):
            work.load(layer, *past_of(tokens, length - 1))
            work.add(layer, tokens, length, vote=vote, evictions=int(vote))
        cycles.append(await accelerator.run(work))
        facts = {f"cycles_{'with' if vote else 'without'}_votes": cycles[-1]}
        accelerator.bench.record(cycles=0, ideal_cycles=0, **facts)
    accelerator.bench.compare("cycles with votes", np.array(cycles[1:]), np.array(cycles[:1]))


@cocotb.test()
async def trimming_is_a_search_and_a_pass(dut: Any) -> None:
    """Trim the first of up to three layers: the others wait at most two passes for its votes."""
    p = catalog_parameters()
    tokens = real_tokens(p, LAYERS[1])
    length = min(p.slots, 256 if context()["full"] else 64)
    cycles = []
    for evictions in (0, length // 4):
        accelerator = Accelerator(dut, "trimming_is_a_search_and_a_pass")
        work = DecodeWork(p)
        for layer in range(len(text_layers(p))):
            work.load(layer, *past_of(tokens, length - 1))
            work.add(layer, tokens, length, vote=True, evictions=0 if layer else evictions)
        cycles.append(await accelerator.run(work))
    assert cycles[1] - cycles[0] <= 2 * max(length, 64), cycles
    facts = {"cycles_untrimmed": cycles[0], "cycles_trimmed": cycles[1]}
    accelerator.bench.record(cycles=0, ideal_cycles=0, **facts)


@cocotb.test()
@only_if(lambda run: run.full and not small(run), "a figure for large dimensions: FULL=1")
async def utilisation(dut: Any) -> None:
    """Measure one layer's attention by itself, from its instruction to its last output."""
    p = catalog_parameters()
    tokens = real_tokens(p, LAYERS[2])
    for length in (128, 512):
        accelerator = Accelerator(dut, f"utilisation {length}")
        work = DecodeWork(p)
        work.load(0, *past_of(tokens, length - 1))
        work.add(0, tokens, length - 1, vote=True, evictions=1)
        cycles = await accelerator.run(work)
        facts = {f"cycles_{length}": cycles, f"beats_{length}": work.ideal_cycles}
        accelerator.bench.record(cycles=0, ideal_cycles=0, **facts)


@cocotb.test()
async def whole_text(dut: Any) -> None:
    """Process a prompt token by token, trim the cache, and generate at a constant length."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "whole_text")
    prompt, target, reserved = (14, 8, 4) if many(p) else (8, 5, 3)
    # Several victims trim the cache; a single one would wait for the next token.
    prompt = min(prompt, p.slots)
    target = min(target, prompt - 2)
    tokens = real_tokens(p, LAYERS[0])
    work = DecodeWork(p)
    work.load(0, *past_of(tokens, 0))
    for index in range(prompt):
        evictions = prompt - target if index == prompt - 1 else 0
        work.add(0, tokens, index, vote=index >= reserved, evictions=evictions)
    await accelerator.run(work)
    # The remaining tokens are compacted in the order of the slots, as the counts are.
    model = work.models[0]
    keys, values = (
        np.delete(cache[:, :prompt], work.steps[-1].victims, axis=1)
        for cache in (model.keys, model.values)
    )
    generation = DecodeWork(p)
    generation.load(0, keys, values, work.steps[-1].counts)
    for index in range(prompt, prompt + 4):
        generation.add(0, tokens, index, vote=True, evictions=1)
    await accelerator.run(generation)
    lengths = [step.length for step in generation.steps]
    accelerator.bench.compare("cached tokens", np.full(4, target + 1), np.array(lengths))


def some_steps(accelerator: Accelerator, steps: int) -> DecodeWork:
    """Return attention alone of several layers, of all lengths."""
    return mixed(accelerator.bench.numpy_rng, accelerator.p, steps)


stalls = stall_test(
    Accelerator,
    lambda accelerator: some_steps(accelerator, 6 if many(accelerator.p) else 2),
    pairs=STALLS,
    runs=lambda accelerator: 4 if many(accelerator.p) else 1,
)
resets = reset_test(
    Accelerator,
    lambda accelerator: some_steps(accelerator, 4 if many(accelerator.p) else 2),
    longest=lambda accelerator: reset_within(accelerator, 1200),
    rounds=lambda accelerator: 4 if many(accelerator.p) else 2,
)


@cocotb.test()
@only_if(lambda run: run.parameters.slots <= 64, "many slots take long to fill")
async def no_slot_left(dut: Any) -> None:
    """Send a token without a free slot: it takes the last one, and `overflow` is set."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "no_slot_left")
    work = DecodeWork(p)
    tokens = random_tokens(accelerator.bench.numpy_rng, p, p.slots + 2)
    work.load(0, *past_of(tokens, p.slots - 1))
    work.add(0, tokens, p.slots - 1)
    await accelerator.run(work)
    assert not read(dut.overflow)
    work.add(0, tokens, p.slots)
    await accelerator.run(work)
    assert read(dut.overflow)


@cocotb.test()
@only_if(lambda run: run.parameters.slots <= 64, "many slots take long to fill")
async def all_victims(dut: Any) -> None:
    """Evict as many tokens as a full cache has, and more than a short one has."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "all_victims")
    work = DecodeWork(p)
    tokens = random_tokens(accelerator.bench.numpy_rng, p, p.slots)
    work.load(0, *past_of(tokens, p.slots - 1))
    work.add(0, tokens, p.slots - 1, vote=True, evictions=p.slots)
    wanted = [(0, slot) for slot in range(p.slots)]
    if p.layers > 1:
        work.load(1, *past_of(tokens, 0))
        work.add(1, tokens, 0, evictions=3)
        wanted.append((1, 0))
    await accelerator.run(work)
    assert work.evictions == wanted


@cocotb.test()
@only_if(lambda run: run.parameters.block & (run.parameters.block - 1) > 0, "all blocks are legal")
async def too_long_a_block(dut: Any) -> None:
    """Announce one token more than a block has: the block is truncated, and the error is set."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "too_long_a_block")
    work = DecodeWork(p)
    tokens = random_tokens(accelerator.bench.numpy_rng, p, 2 * p.block)
    work.load(0, *past_of(tokens, 1))
    work.add(0, tokens, 1, count=p.block)
    await accelerator.run(work)
    assert read(dut.errors) == 0
    offset = p.instruction_layout["last_token"].offset
    work.instructions[0] += 1 << offset
    await accelerator.run(work)
    assert read(dut.errors) == 1 << p.errors_layout["block"].offset


@cocotb.test()
async def no_number(dut: Any) -> None:
    """Send a NaN in a query: it affects only its own head, and sets its flag."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "no_number")
    cached = min(4, p.slots - 2)
    tokens = random_tokens(accelerator.bench.numpy_rng, p, cached + 2)
    work = DecodeWork(p)
    work.load(0, *past_of(tokens, cached))
    work.add(0, tokens, cached)
    await accelerator.run(work)
    assert read(dut.flags) == 0
    tokens.queries[cached + 1, 0, 0] = 0x7E00
    work.add(0, tokens, cached + 1, vote=True)
    await accelerator.run(work)
    undefined = np.isnan(work.steps[1].outputs.view(np.float16)).any(axis=2).reshape(-1)
    assert undefined.tolist() == [lane == 0 for lane in range(len(undefined))]
    assert read(dut.flags) == 1
    dut.clear_flags.value = 1
    await accelerator.bench.step()
    dut.clear_flags.value = 0
    await accelerator.bench.step()
    assert read(dut.flags) == 0


@cocotb.test()
@only_if(small, "whole layers of large dimensions take long")
async def no_norm(dut: Any) -> None:
    """Send an infinity in a hidden state: the output is undefined, and the flag is set."""
    p = catalog_parameters()
    accelerator = Accelerator(dut, "no_norm")
    cached = min(4, p.slots - 2)
    tokens, trace = random_tokens(accelerator.bench.numpy_rng, p, cached), open_tokens()
    states = real_states(p, trace, LAYERS[0])[:2]
    work = DecodeWork(p)
    work.load(0, *past_of(tokens, cached))
    work.give(0, real_weights(p, trace, LAYERS[0]))
    work.add_layer(0, states[:1], cached, leave=True)
    await accelerator.run(work)
    assert not read(dut.undefined)
    states[1, -1] = 0x7C00
    work.add_layer(0, states[1:], cached + 1, leave=True)
    await accelerator.run(work)
    assert np.isnan(work.states_out[1].view(np.float16)).all()
    assert read(dut.undefined)
    dut.clear_flags.value = 1
    await accelerator.bench.step()
    dut.clear_flags.value = 0
    await accelerator.bench.step()
    assert not read(dut.undefined)

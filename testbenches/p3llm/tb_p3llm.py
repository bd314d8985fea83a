"""Testbench of P3-LLM's system: decode steps of whole layers from the banks' bytes."""

from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np

from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from testbenches.applicable import Run, only_if
from testbenches.p3llm.all_sizes import (
    layer_of_all_sizes,
    states_of_all_sizes,
    vocabulary_of_all_sizes,
)
from testbenches.p3llm.system_bench import SystemBench
from testbenches.p3llm.system_models import LAYERS, Model, real_trace
from testbenches.streams import four_states


def is_small(run: Run) -> bool:
    """Return whether the simulation of a layer takes seconds."""
    return run.parameters.hidden_size < 512


def is_smollm2(run: Run) -> bool:
    """Return whether the dimensions are SmolLM2's."""
    return run.parameters.hidden_size == 576


def prepare(p: P3llmParameters) -> None:
    """Capture the tensors before the simulator starts."""
    if p.hidden_size == 576:
        real_trace()


async def run_steps(
    system: SystemBench,
    model: Model,
    steps: np.ndarray,
    cached: Sequence[int],
    *,
    layers: int | None = None,
) -> None:
    """Process hidden states [steps, requests, width] in all layers or in the first ones.

    Compare the hidden states, and the banks after the last step.
    """
    compare = system.bench.compare
    for number, states in enumerate(steps):
        positions = [count + number for count in cached]
        for layer in range(layers or system.p.layers):
            system.begin(layer, positions, states)
            expected = model.step(layer, states, positions)
            got, facts = await system.finish()
            for request, position in enumerate(positions):
                compare(
                    f"request {request}: state after layer {layer} of token {position}",
                    expected[request].view(np.uint32),
                    got[request].view(np.uint32),
                )
            system.bench.record(
                cycles=facts.pop("cycles"),
                ideal_cycles=system.p.channel.column_cycles * facts["multiplies"],
                **facts,
            )
            states = expected
    compare("bytes in the banks", model.image, system.image)


def lengths(p: P3llmParameters, longest: int) -> list[int]:
    """Return the number of cached tokens per request: the last one has the most."""
    return [max(1, longest // (1 + (request + 1) % p.batch)) for request in range(p.batch)]


@cocotb.test()
@only_if(lambda run: not is_smollm2(run), "the bench processes real layers instead")
async def random_layers(dut: Any) -> None:
    """Process random hidden states in random layers: tokens and sets end at any place.

    The first two tokens are the last of a set of keys, of values and of inputs, and the first of
    the next; the long version has others, and the second token of a text.
    """
    system = SystemBench(dut, "random_layers")
    rng = system.bench.numpy_rng
    p = system.p
    cases = [(min(KEY_SET * p.block, p.slots // 2) - 1, 2)]
    if system.bench.context["full"] and not four_states():
        cases += [(37, 2), (15, 1), (1, 1)]
    for cached, steps in cases if is_small(Run(p)) else [(17, 1)]:
        model = Model.random(p, lengths(p, cached), rng)
        await system.bench.reset()
        system.fill(model.image)
        states = rng.normal(size=(steps, p.batch, p.hidden_size)).astype(np.float32)
        await run_steps(system, model, states, lengths(p, cached))
        system.compare_times()
        idle = [kind for kind, count in system.counts.items() if not count]
        assert not idle, f"banks were never issued to {', '.join(idle)}"


@cocotb.test()
@only_if(lambda run: run.parameters.vocabulary_size > 0, "there is no vocabulary")
async def random_vocabulary(dut: Any) -> None:
    """Predict tokens with several largest logits, then process a layer."""
    system = SystemBench(dut, "drawn_vocabulary", source="random", sink="bursty")
    rng = system.bench.numpy_rng
    p, vocabulary = (
        system.p,
        (model := Model.random(system.p, lengths(system.p, 9), rng)).vocabulary,
    )
    await system.bench.reset()
    system.fill(model.image)
    steps = rng.normal(size=(1 if four_states() else 3, p.batch, p.hidden_size)).astype(np.float32)
    assert vocabulary
    for states in steps:
        expected = [vocabulary.predicted(state, p) for state in states]
        found = await system.predict(states)
        system.bench.compare("tokens and sums", np.array(expected), np.array(found))
    await run_steps(system, model, steps[:1], lengths(p, 9), layers=1)


@cocotb.test()
@only_if(
    lambda run: is_small(run) and not run.four_states, "random numbers replace those of all sizes"
)
async def all_sizes(dut: Any) -> None:
    """Process numbers of all magnitudes in layers: digits appear that larger ones would mask.

    The tokens cover each of the four nibbles of a column of values.
    """
    system = SystemBench(dut, "all_sizes")
    rng = system.bench.numpy_rng
    p = system.p
    for cached in (5, 12, 43, 2, 9)[: 5 if p.batch == 1 else 2]:
        model = Model.random(p, lengths(p, cached), rng, layer_of_all_sizes, binades=10)
        await system.bench.reset()
        system.fill(model.image)
        await run_steps(system, model, states_of_all_sizes(p, rng)[np.newaxis], lengths(p, cached))


@cocotb.test()
@only_if(
    lambda run: is_small(run) and run.parameters.vocabulary_size > 0 and not run.four_states,
    "random numbers replace those of all sizes",
)
async def sums_of_all_sizes(dut: Any) -> None:
    """Predict tokens from logits of all magnitudes and signs: the largest may be negative or 0."""
    system = SystemBench(dut, "sums_of_all_sizes")
    rng = system.bench.numpy_rng
    p = system.p
    model = Model.random(p, lengths(p, 1), rng, layer_of_all_sizes)
    drawn = model.vocabulary
    assert drawn
    await system.bench.reset()
    for number in range(12):
        states = states_of_all_sizes(p, rng)
        vocabulary = vocabulary_of_all_sizes(drawn, states, number % 3, p, rng)
        model.vocabulary = vocabulary
        system.fill(model.image)
        expected = [vocabulary.predicted(state, p) for state in states]
        found = await system.predict(states)
        system.bench.compare("tokens and sums", np.array(expected), np.array(found))


@cocotb.test()
@only_if(is_smollm2, "dimensions are not SmolLM2's")
async def real_layers(dut: Any) -> None:
    """Process a token of real text in layers of SmolLM2, with a cache of 600 tokens."""
    system = SystemBench(dut, "real_layers")
    cached, trace = lengths(system.p, 600), real_trace()
    model = Model.real(system.p, cached, system.bench.numpy_rng)
    await system.bench.reset()
    system.fill(model.image)
    states = trace.hidden(LAYERS[0])[0][cached]
    await run_steps(system, model, states[np.newaxis].astype(np.float32), cached)
    system.bench.record(cycles=0, ideal_cycles=0, tensors=f"SmolLM2 layers {LAYERS[:2]}, prose")


@cocotb.test()
@cocotb.parametrize(
    (("source", "sink"), [("random", "bursty"), ("bursty", "random"), ("adversarial", "random")])
)
@only_if(is_small, "a layer of large dimensions is long")
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Stall the streams of hidden states at both ends of a layer.

    Beyond the shared test, it compares the bytes in the banks; it has three pairs of patterns,
    because a layer is long.
    """
    system = SystemBench(dut, f"stalls {source} {sink}", source=source, sink=sink)
    rng = system.bench.numpy_rng
    p = system.p
    model = Model.random(p, lengths(p, 20), rng)
    await system.bench.reset()
    system.fill(model.image)
    states = rng.normal(size=(1, p.batch, p.hidden_size)).astype(np.float32)
    await run_steps(system, model, states, lengths(p, 20), layers=1)


@cocotb.test()
@only_if(is_small, "a layer of large dimensions is long")
async def resets(dut: Any) -> None:
    """Reset in the middle of layers; later results do not depend on earlier data.

    Beyond the shared test, it fills the banks before each layer and compares their bytes after the
    last one.
    """
    system = SystemBench(dut, "resets")
    rng = system.bench.numpy_rng
    p = system.p
    model = Model.random(p, lengths(p, 9), rng)
    states = rng.normal(size=(1, p.batch, p.hidden_size)).astype(np.float32)
    for _ in range(1 if four_states() else 4):
        await system.bench.reset()
        system.fill(model.image)
        system.begin(0, lengths(p, 9), states[0])
        for _cycle in range(system.bench.rng.randint(1, 3000)):
            await system.bench.step()
    await system.bench.reset()
    system.fill(model.image)
    # One layer uses all state that a reset could leave.
    await run_steps(system, model, states, lengths(p, 9), layers=1)

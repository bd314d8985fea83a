"""Testbench of MEADOW: SmolLM2 in prefill and decode, stalls, resets, corrupted weights.

The tests `stalls` and `resets` are not those of `testbenches.shared_tests`, since the memories are
a part of the bench: a program fills them before it begins. Beyond the items of `predictions`, they
compare the final hidden states and caches in memory, the bytes at every port, and the errors.
"""

import itertools
from typing import Any

import cocotb
import numpy as np

from golden.llm import open_trace
from golden.llm.layers import real_weights
from golden.meadow.layer_quantisation import IntegerLayer, quantised_layer
from golden.meadow.packing.weight_packer import Level
from golden.meadow.tile.requantisation import Integers
from hdl.meadow.instructions import Kind, instruction_layout
from hdl.meadow.parameters import MeadowParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import catalog_parameters, record_fact
from testbenches.meadow.accelerator import Accelerator
from testbenches.meadow.checked_program import LayerProgram
from testbenches.meadow.random_layers import STATE_STEP, of_kind, random_layers, random_vocabulary
from testbenches.streams import PAUSES, read

LAYERS = (0, 14, 29)
TOKENS = 640


def small(run: Run) -> bool:
    """Return whether the simulation of a layer takes seconds."""
    return run.parameters.head_size < 64


def prepare(p: MeadowParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_layers(p: MeadowParameters, layers: tuple[int, ...]) -> tuple[list[IntegerLayer], Any]:
    """Return layers of SmolLM2 in integers, and the hidden states of the first one."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    elements = np.arange(p.hidden_size) % trace.hidden_size
    found = []
    for layer in layers:
        states = trace.hidden(layer)[0][: max(p.tokens, 64), elements].astype(np.float64)
        rng = np.random.default_rng(layer)
        real = of_kind(real_weights(p, trace, layer), p, rng)
        found.append(quantised_layer(real, states, p, STATE_STEP)[0])
    states = trace.hidden(layers[0])[0][:, elements].astype(np.float64)
    return found, np.rint(states / STATE_STEP).astype(np.int64)


def totals(program: LayerProgram) -> list[int]:
    """Return the bytes at all ports, of unpacked weights, and of packed weights."""
    traffic = program.traffic
    return [sum(traffic.moved.values()), traffic.weights, traffic.fetched]


async def run_whole(dut: Any, salt: str, gemm: int = 0) -> tuple[Accelerator, dict[str, Any]]:
    """Run a prefill and a decode step of SmolLM2 through layers back to back.

    Attention uses TPHS, or GEMM with probabilities of `gemm` bytes.
    """
    p: MeadowParameters = catalog_parameters()
    # The published unpacker takes half a million cycles for a layer of the published size.
    narrow = p.head_size == 64 and p.unpacker_items < p.head_size
    numbers = LAYERS if p.head_size < 64 else LAYERS[: 1 if narrow else 2]
    layers, states = real_layers(p, numbers)
    program = LayerProgram(p, layers)
    tokens = min(p.most_tokens, p.slots - 1, 24 if narrow else 64)
    figures = []
    for first, last in itertools.pairwise([0, tokens, tokens + 1]):
        before = totals(program)
        program.add_block(states[first:last], range(len(layers)), gemm=gemm)
        figures.append(np.subtract(totals(program), before))
    accelerator = Accelerator(dut, salt, program)
    await accelerator.run()
    accelerator.check()
    spent, ideal = accelerator.spent.reshape(2, -1), np.reshape(program.traffic.ideal, (2, -1))
    facts: dict[str, Any] = {
        "tensors": f"SmolLM2 layers {numbers}, {tokens} tokens, then one by one"
    }
    layer = slice(1, 1 + (spent.shape[1] - 2) // len(layers))
    for number, name in ((0, "prefill"), (1, "decode")):
        moved, weights, fetched = (int(v) for v in figures[number])
        facts[name] = {
            "cycles": int(spent[number].sum()),
            "ideal_cycles": int(ideal[number].sum()),
            "bytes": moved,
            "bytes_of_weights": fetched,
            "bytes_unpacked": moved - fetched + weights,
            "first_layer": spent[number][layer].tolist(),
            "first_layer_ideal": ideal[number][layer].tolist(),
        }
    return accelerator, facts


@cocotb.test()
async def whole_layers(dut: Any) -> None:
    """Run SmolLM2's layers with attention in the pipeline."""
    accelerator, facts = await run_whole(dut, "whole_layers")
    ideal = sum(accelerator.program.traffic.ideal)
    accelerator.bench.record(cycles=accelerator.spent.sum(), ideal_cycles=ideal, **facts)


@cocotb.test()
async def whole_layers_by_gemm(dut: Any) -> None:
    """Compute the same hidden states with attention by GEMM."""
    gemm = probability_bytes(catalog_parameters())[0]
    _accelerator, facts = await run_whole(dut, "whole_layers_by_gemm", gemm)
    for name, fact in facts.items():
        record_fact("by_gemm", name, fact)


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
@only_if(small, "whole layers of large dimensions are long")
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Random layers packed at random levels, under pairs of pause patterns."""
    p: MeadowParameters = catalog_parameters()
    rng = np.random.default_rng([len(source), len(sink), ord(source[0]), ord(sink[0])])
    layers, states = random_layers(p, rng, 2)
    levels = [Level.NAIVE, Level.PACKET, Level.REINDEXED, Level.RAW]
    levels += [Level.CLASSES] if p.unpacker.unpacker.classes else []
    level = levels[rng.integers(len(levels))]
    program = LayerProgram(
        p,
        layers,
        vocabulary=random_vocabulary(p, rng),
        level=level,
        skip=bool(rng.random() < 0.5),
        rng=rng,
    )
    add_random(program, states, rng)
    accelerator = Accelerator(dut, f"stalls {source} {sink}", program, pauses=(source, sink))
    await accelerator.run()
    accelerator.check()


@cocotb.test()
@only_if(small, "whole layers of large dimensions are long")
async def late_cache_writes(dut: Any) -> None:
    """Write keys and values late: no later read of them precedes its write."""
    p: MeadowParameters = catalog_parameters()
    rng = np.random.default_rng(3)
    layers, states = random_layers(p, rng, 2)
    program = LayerProgram(p, layers, vocabulary=random_vocabulary(p, rng), rng=rng)
    add_random(program, states, rng)
    accelerator = Accelerator(dut, "late_cache_writes", program, late=200)
    await accelerator.run()
    accelerator.check()


@cocotb.test()
@only_if(lambda run: small(run) and not run.four_states, "random layers represent all sizes")
async def all_sizes(dut: Any) -> None:
    """Run layers whose elements and weights have all magnitudes, to the ends of their ranges."""
    p: MeadowParameters = catalog_parameters()
    for seed in range(4):
        rng = np.random.default_rng(seed)
        layers, states = random_layers(p, rng, 2, spread=True)
        vocabulary = random_vocabulary(p, rng, alike=seed > 1)
        program = LayerProgram(p, layers, vocabulary=vocabulary, rng=rng)
        add_random(program, states, rng)
        accelerator = Accelerator(dut, "all_sizes", program)
        await accelerator.run()
        accelerator.check()


def probability_bytes(p: MeadowParameters) -> list[int]:
    """Return the legal sizes in bytes of a probability in external memory."""
    return [size for size in (1, 2) if 8 * size >= p.probability_bits]


def add_random(program: LayerProgram, states: Integers, rng: np.random.Generator) -> None:
    """Add blocks of random lengths until the cache is full."""
    p, position = program.p, 0
    while position < p.slots:
        tokens = min(int(rng.integers(1, p.most_tokens + 1)), p.slots - position)
        block = states[position : position + tokens]
        # Each block uses TPHS or GEMM, independently of the block before.
        gemm = int(rng.choice([0, *probability_bytes(p)]))
        predict = bool(rng.random() < 0.7)
        program.add_block(block, range(len(program.layers)), predict=predict, gemm=gemm)
        position += tokens


@cocotb.test()
@cocotb.parametrize(how=["cut", "bits", "lost", "count", "unique", "doubled", "noise"])
@only_if(small, "whole layers of large dimensions are long")
async def corrupted_packets(dut: Any, how: str) -> None:
    """Missing weights are 0, errors are reported, and other matrices are not affected.

    An instruction of unknown kind precedes them.
    """
    p: MeadowParameters = catalog_parameters()
    rng = np.random.default_rng(len(how))
    layers, states = random_layers(p, rng, 2)
    program = LayerProgram(p, layers, rng=rng)
    for name in ("key", "query", "gate" if p.gated else "up", "down"):
        program.corrupt(0, name, rng, how)
    unknown = max(kind.value for kind in Kind) + 1
    program.code.instructions.append(unknown << instruction_layout(p)["kind"].offset)
    add_random(program, states, rng)
    accelerator = Accelerator(dut, f"corrupted {how}", program, pauses=("random", "none"))
    await accelerator.run()
    accelerator.check()
    dut.clear_flags.value = 1
    await accelerator.bench.step()
    dut.clear_flags.value = 0
    await accelerator.bench.step()
    assert read(dut.errors) == 0


@cocotb.test()
@only_if(small, "whole layers of large dimensions are long")
async def resets(dut: Any) -> None:
    """Reset during layers: the next run equals the golden model."""
    p: MeadowParameters = catalog_parameters()
    rng = np.random.default_rng(5)
    layers, states = random_layers(p, rng, 1)
    program = LayerProgram(p, layers, vocabulary=random_vocabulary(p, rng), rng=rng)
    for gemm in (0, probability_bytes(p)[0]):
        program.add_block(states[: max(p.most_tokens // 2, 1)], [0], predict=True, gemm=gemm)
    accelerator = Accelerator(dut, "resets", program, pauses=("random", "bursty"))
    for _ in range(5):
        await accelerator.bench.reset()
        accelerator.start()
        for _cycle in range(accelerator.bench.rng.randint(1, 3000)):
            await accelerator.bench.step()
    await accelerator.run()
    accelerator.check()

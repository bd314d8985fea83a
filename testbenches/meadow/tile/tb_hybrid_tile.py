"""Testbench of the tile: SmolLM2's attention, causal slots, stalls, resets."""

from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.llm.model import SMOLLM2
from golden.meadow.tile.hybrid_tile import (
    AttentionBlock,
    LinearBlock,
    attend,
    block_of,
    linear,
    linear_of,
    slot_cycles,
)
from golden.meadow.tile.requantisation import narrowed_rows, quantised
from hdl.meadow.tile.element_parameters import SCALE_BITS
from hdl.meadow.tile.tile_parameters import BIAS, MOST_EXPONENT, BlockMode, TileParameters
from testbenches.applicable import only_if
from testbenches.arith.requantiser_factors import random_factor
from testbenches.bench import context
from testbenches.meadow.tile.tile_bench import Block, StageBlock, TileBench
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import PAUSES

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Scaled = TypeVar("Scaled", AttentionBlock, LinearBlock)
LAYERS = (0, 14, 29)
TOKENS = 640
SUM_BITS = 22
"""Bits of the sums of a few products."""


def prepare(p: TileParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def width(p: TileParameters) -> int:
    """Return the elements of a token: SmolLM2's or OPT-125M's, or fewer if the unit is smaller."""
    words = (SMOLLM2.hidden_size if p.rotary else 768) // (p.slices * p.size)
    return max(min(p.slice_words, words, most_slice_words(p, p.tokens)), 1) * p.slices * p.size


def most_slice_words(p: TileParameters, tokens: int) -> int:
    """Return the maximum words per slice with which the lanes hold so many tokens."""
    return p.lane_words // -(-tokens // p.lanes)


def most_tokens(p: TileParameters, elements: int) -> int:
    """Return the maximum number of tokens of so many elements that the lanes hold."""
    return p.lanes * (p.lane_words // (elements // (p.slices * p.size)))


def real_tensors(
    p: TileParameters, layer: int, *, tokens: int, context: int, heads: int, shared: int
) -> tuple[Reals, Reals, Reals, Reals]:
    """Return tokens, query weights, keys and values of SmolLM2 in the requested dimensions.

    The two elements of a rotary pair, half a head apart in the model, are adjacent here. If the
    dimensions are not the model's, the model's elements are used from the first on, cyclically.
    """
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    linear = trace.linear(layer, "q_proj")
    size = trace.head_size
    half = np.arange(p.size // 2) % (size // 2)
    pairs = np.stack([half, half + size // 2], axis=-1).reshape(-1)
    elements = np.arange(width(p)) % trace.hidden_size
    rows = np.arange(context) % TOKENS
    weight = linear.weight.T[elements].reshape(-1, trace.heads, size)
    query = weight[:, np.arange(heads) % trace.heads][:, :, pairs].swapaxes(0, 1)
    # Three query heads of the model share a key/value head.
    owners = [trace.attention_trace(layer, 3 * n % trace.heads) for n in range(heads // shared)]
    keys = np.stack([one.k[rows][:, pairs] for one in owners])
    values = np.stack([one.v[rows][:, np.arange(p.size) % size] for one in owners])
    states = linear.inputs[rows[context - tokens :]][:, elements]
    parts = (np.asarray(part, np.float64) for part in (states, query, keys, values))
    states, query, keys, values = parts
    return states, query, keys, values


def real_block(
    p: TileParameters,
    layer: int,
    *,
    tokens: int,
    context: int,
    heads: int,
    shared: int,
    **how: Any,
) -> AttentionBlock:
    """Return a block of SmolLM2's attention in INT8."""
    sizes = {"tokens": tokens, "context": context, "heads": heads, "shared": shared}
    states, query, keys, values = real_tensors(p, layer, **sizes)
    bias = random_bias(p, query, np.random.default_rng(layer))
    block = block_of(states, query, keys, values, p, bias=bias, **how)
    return with_operands(block, p, np.random.default_rng(layer))


def random_bias(p: TileParameters, query: Reals, rng: np.random.Generator) -> Reals | None:
    """Return biases for queries, if the unit has any, as large as products with tokens of 1."""
    if not p.biases:
        return None
    return rng.normal(0, 1, (len(query), p.size)) * np.linalg.norm(query, axis=1).mean()


def linear_bias(p: TileParameters, tiles: int, rng: np.random.Generator) -> Integers | None:
    """Return biases in steps of sums, if the unit has any, of all magnitudes up to the largest."""
    if not p.biases:
        return None
    most = 1 << BIAS.width - 1
    sizes = 2.0 ** -rng.integers(0, 16, (tiles, p.size))
    return np.rint(rng.integers(-most, most, (tiles, p.size)) * sizes).astype(np.int64)


def with_operands(
    block: Scaled, p: TileParameters, rng: np.random.Generator, *, ends: bool = False
) -> Scaled:
    """Return a block with factors of tiles and exponents of tokens, if the unit has them.

    The shift of each tile is increased by 0 to 2, and decreased by the exponents' range, so that
    results of all tokens keep some bits. With `ends`, one tile has the largest scale and no shift,
    another one the smallest scale and the largest shift.
    """
    if p.token_exponents:
        exponents = rng.integers(0, MOST_EXPONENT + 1, len(block.tokens))
        block = replace(block, exponents=exponents)
    linear_block = isinstance(block, LinearBlock)
    scale, shift = block.factor if linear_block else block.factors[0]
    shift = max(shift - int(rng.integers(MOST_EXPONENT + 1)), 0) if p.token_exponents else shift
    factor: Any = scale, shift
    if p.tile_scales:
        count = len(block.weights) if linear_block else len(block.query)
        longest = p.element.sum_bits + SCALE_BITS - 1
        shifts = np.minimum(shift + rng.integers(0, 3, count), longest)
        scales = np.maximum(scale >> rng.integers(0, 2, count), 1)
        factor = np.stack([scales, shifts], axis=1)
        if ends:
            extremes = ((1 << SCALE_BITS) - 1, 0), (1, longest)
            for place, end in zip(rng.permutation(count)[:2], extremes, strict=False):
                factor[place] = end
    if linear_block:
        return replace(block, factor=factor)
    return replace(block, factors=(factor, *block.factors[1:]))


def random_block(p: TileParameters, rng: np.random.Generator) -> AttentionBlock:
    """Return a random block, in 30 % of the cases with operands at the ends of their range."""
    context = int(rng.integers(1, p.slots + 1))
    tokens = int(rng.integers(1, min(p.tokens, context) + 1))
    tokens = min(tokens, most_tokens(p, p.slices * p.size))
    elements = (
        int(rng.integers(1, min(p.slice_words, most_slice_words(p, tokens)) + 1))
        * p.slices
        * p.size
    )
    shared = int(rng.choice([n for n in (1, 2, 3) if n <= p.heads]))
    heads = shared * int(rng.integers(1, max(min(p.heads, 9) // shared, 1) + 1))
    shapes = [(tokens, elements), (heads, elements, p.size)]
    shapes += [(heads // shared, context, p.size)] * 2
    parts: list[Reals] = [rng.normal(0, 1, shape) for shape in shapes]
    if rng.random() < 0.3:
        parts = [np.sign(part) for part in parts]
    states, query, keys, values = parts
    causal, skip = rng.random(2) < (0.7, 0.5)
    bias = random_bias(p, query, rng)
    how = {"causal": bool(causal), "skip": bool(skip)}
    block = block_of(states, query, keys, values, p, bias=bias, **how)
    return with_operands(block, p, rng, ends=bool(rng.random() < 0.5))


def random_linear(p: TileParameters, rng: np.random.Generator) -> LinearBlock:
    """Return a linear layer of random numbers."""
    tokens = int(rng.integers(1, min(p.tokens, most_tokens(p, p.slices * p.size)) + 1))
    slice_words = int(rng.integers(1, min(p.slice_words, most_slice_words(p, tokens)) + 1))
    elements, tiles = slice_words * p.slices * p.size, int(rng.integers(1, min(p.heads, 9) + 1))
    states = rng.integers(-128, 128, (tokens, elements))
    weights = rng.integers(-128, 128, (tiles, elements, p.size))
    context = int(rng.integers(tokens, p.slots + 1))
    rotate = p.rotary and bool(rng.random() < 0.5)
    wide, bias = bool(rng.random() < 0.5), linear_bias(p, tiles, rng)
    block = linear_of(states, weights, p, context=context, rotate=rotate, wide=wide, bias=bias)
    return with_operands(block, p, rng, ends=bool(rng.random() < 0.5))


def any_factor(p: TileParameters, rng: np.random.Generator) -> LinearBlock:
    """Return a linear layer whose results depend on the last bits of the sums.

    The factor is random, or the sums are near ties: such a sum has two bits set, of which the lower
    one decides the rounding.
    """
    block = random_linear(p, rng)
    if rng.random() < 0.5:
        count = len(block.weights) if p.tile_scales else 1
        factors = [random_factor(rng, SUM_BITS) for _ in range(count)]
        return replace(block, factor=np.array(factors) if p.tile_scales else factors[0])
    # Of exponents, the smallest one gives ties.
    block = replace(block, exponents=None if block.exponents is None else 0 * block.exponents)
    upper, up, scale = int(rng.integers(1, 7)), int(rng.integers(0, 7)), int(rng.integers(0, 16))
    count, elements = block.tokens.shape
    lower = np.where(rng.random(count) < 0.6, 1 << rng.integers(0, upper, count), 0)
    states = np.zeros_like(block.tokens)
    index = np.arange(count), rng.integers(0, elements, count)
    states[index] = rng.choice([1, -1], count) * ((1 << upper) | lower)
    factor = 1 << scale, upper + up + scale + int(rng.choice([0, 1, 1]))
    return replace(
        block,
        tokens=states,
        weights=np.full_like(block.weights, 1 << up),
        bias=None if block.bias is None else 0 * block.bias,
        rotate=False,
        factor=np.tile(factor, (len(block.weights), 1)) if p.tile_scales else factor,
    )


def real_linear(
    p: TileParameters, name: str, states: Integers, tiles: int, *, rotate: bool = False
) -> LinearBlock:
    """Return a linear layer of SmolLM2 over INT8 states, or a part of it if the unit is smaller."""
    weight, _step = quantised(
        open_trace(text="prose", tokens=TOKENS, layers=LAYERS).linear(14, name).weight
    )
    size = SMOLLM2.head_size
    half = np.arange(p.size // 2) % (size // 2)
    pairs = np.stack([half, half + size // 2], axis=-1).reshape(-1)
    order = pairs if rotate else np.arange(p.size) % size
    outputs = (np.arange(tiles)[:, np.newaxis] * size + order) % len(weight)
    inputs = np.arange(states.shape[1]) % weight.shape[1]
    weights = weight[outputs][:, :, inputs].swapaxes(1, 2)
    bias = linear_bias(p, tiles, np.random.default_rng(tiles))
    block = linear_of(states, weights, p, context=len(states), rotate=rotate, bias=bias)
    return with_operands(block, p, np.random.default_rng(tiles))


def heads_of(p: TileParameters) -> tuple[int, int]:
    """Return the numbers of query heads, and of query heads that share keys: SmolLM2's or OPT's."""
    heads = min(p.heads, 9 if p.rotary else 12)
    return heads, 3 if p.rotary and heads % 3 == 0 else 1


@cocotb.test()
async def real_attention(dut: Any) -> None:
    """Run attention of SmolLM2 with and without skipped slots; compare values, cycles, bytes."""
    bench = TileBench(dut, "real_attention")
    p = bench.p
    heads, shared = heads_of(p)
    if p.tokens > 64 and not context()["full"]:
        heads = shared
    tokens = min(p.tokens, most_tokens(p, width(p)))
    sizes = {"tokens": tokens, "context": tokens, "heads": heads, "shared": shared}
    block = real_block(p, 14, **sizes)
    cycles = await bench.run([block])
    # Each byte is transferred once: weights, tokens, keys and values in, outputs out.
    once = 2 * block.keys.size + block.query.size + block.tokens.size + heads * tokens * p.size
    bench.bench.compare("bytes", np.array([once]), np.array([bench.moved()]))
    skipping = await bench.run([block.skipped(True)])
    bench.bench.record(
        cycles=cycles,
        ideal_cycles=slot_cycles(block, p),
        tensors=f"SmolLM2 layer 14, {tokens} tokens, {heads} heads",
        skipping_cycles=skipping,
        skipping_ideal=slot_cycles(block.skipped(True), p),
        off_chip_bytes=once,
    )


@cocotb.test()
async def decode(dut: Any) -> None:
    """Run a decode step: one token after a context, layer by layer."""
    bench = TileBench(dut, "decode")
    _heads, shared = heads_of(bench.p)
    sizes = {"tokens": 1, "context": bench.p.slots, "heads": shared, "shared": shared}
    await bench.run([real_block(bench.p, layer, **sizes) for layer in LAYERS])


@cocotb.test()
async def projections(dut: Any) -> None:
    """Run four commands of a layer: keys and values by GEMM, attention with them, projection."""
    bench = TileBench(dut, "projections")
    p = bench.p
    heads, shared = heads_of(p)
    heads = min(heads, 2 * shared)
    outputs = -(-heads // p.slices) * p.slices
    tokens = min(p.tokens, 40, most_tokens(p, width(p)), most_tokens(p, outputs * p.size))
    tensors = real_tensors(p, 14, tokens=tokens, context=tokens, heads=heads, shared=shared)
    states, _step = quantised(tensors[0])
    keys = real_linear(p, "k_proj", states, heads // shared, rotate=p.rotary)
    values = real_linear(p, "v_proj", states, heads // shared)
    own = [linear(layer, p).astype(np.float64) for layer in (keys, values)]
    bias = random_bias(p, tensors[1], np.random.default_rng(14))
    attention = block_of(*tensors[:2], own[0], own[1], p, bias=bias)
    attention = with_operands(attention, p, np.random.default_rng(1))
    blocks: list[Block] = [keys, values, attention]
    if outputs == heads and outputs <= p.slice_words * p.slices:
        # A row per token, with all heads concatenated.
        merged = attend(attention, p).swapaxes(0, 1).reshape(tokens, -1)
        merged = narrowed_rows(merged)[0] if p.token_exponents else merged
        blocks.append(real_linear(p, "o_proj", merged, min(heads, 3)))
    await bench.run(blocks)


@cocotb.test()
async def feed_forward(dut: Any) -> None:
    """Run a linear layer with the longest rows that the unit accepts, such as `down_proj`."""
    bench = TileBench(dut, "feed_forward")
    p = bench.p
    inputs = open_trace(text="prose", tokens=TOKENS, layers=LAYERS).linear(14, "down_proj").inputs
    tokens = min(p.tokens, most_tokens(p, p.width), 30)
    states, _step = quantised(inputs[:tokens][:, np.arange(p.width) % inputs.shape[1]])
    block = real_linear(p, "down_proj", states, min(p.heads, 3))
    cycles = await bench.run([block])
    groups = -(-tokens // p.lanes)
    least = len(block.weights) * groups * p.gemm_steps
    assert cycles >= least, (cycles, least)


@cocotb.test()
async def stages(dut: Any) -> None:
    """Run attention of SmolLM2 stage by stage, back to back, then in the pipeline."""
    bench = TileBench(dut, "stages")
    p = bench.p
    heads, shared = heads_of(p)
    tokens = min(p.tokens, 2 * p.lanes + 1, most_tokens(p, width(p)))
    sizes = {"tokens": tokens, "context": min(p.slots, 65), "heads": heads, "shared": shared}
    block = real_block(p, 14, **sizes)
    await bench.run([*stages_of(block, p, wide=True), block])


def stages_of(block: AttentionBlock, p: TileParameters, *, wide: bool) -> list[Block]:
    """Return a block stage by stage; probabilities of more than one byte are wide."""
    wide = wide or p.probability_bits > 8
    alone = (BlockMode.SCORES, BlockMode.SOFTMAX, BlockMode.OUTPUTS)
    return [StageBlock(block=block, mode=mode, wide=wide) for mode in alone]


@cocotb.test()
@only_if(
    lambda run: run.parameters.slots <= 32 and not run.four_states,
    "long for large layers or in four states",
)
async def any_factors(dut: Any) -> None:
    """Run linear layers with factors of all magnitudes."""
    bench = TileBench(dut, "any_factors")
    await bench.run([any_factor(bench.p, bench.bench.numpy_rng) for _ in range(250)])


def random_blocks(bench: TileBench) -> list[Block]:
    """Return random blocks of all modes in random order."""
    p, rng = bench.p, bench.bench.numpy_rng
    blocks: list[Block] = [random_linear(p, rng), random_block(p, rng)]
    blocks += stages_of(random_block(p, rng), p, wide=bool(rng.random() < 0.5))
    return [blocks[index] for index in rng.permutation(len(blocks))]


def pipeline_then_stages(bench: TileBench) -> list[Block]:
    """Return a random block in the pipeline, then stage by stage."""
    block = random_block(bench.p, bench.bench.numpy_rng)
    return [block, *stages_of(block, bench.p, wide=False)]


def most_cycles(bench: TileBench) -> int:
    """Return more cycles than a random block takes, within the bench's timeout.

    After the end of the block no transfer occurs.
    """
    cycles = 3 * slot_cycles(random_block(bench.p, bench.bench.numpy_rng), bench.p) + 300
    return min(cycles, bench.bench.timeout - 1)


random_stalls = stall_test(
    TileBench, random_blocks, pairs=[("random", "random")], runs=2, name="random_stalls"
)
stalls = stall_test(
    TileBench,
    random_blocks,
    pairs=list(product(["none", "random", "bursty"], PAUSES)),
    runs=2,
    condition=only_if(
        lambda run: run.full or run.parameters.slots <= 32, "every pair of pauses takes long"
    ),
)
resets = reset_test(
    TileBench,
    pipeline_then_stages,
    begun=lambda bench: random_blocks(bench)[:1],
    longest=most_cycles,
    times=5,
    pauses=("random", "random"),
)

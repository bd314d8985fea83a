"""The accelerator: parameter rules, the model compared with float64, and banks that lose bits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.arith.int_symmetric import quantise
from golden.kelle.decoder_layer import (
    DecoderLayer,
    ExactLayer,
    exact_attention,
    exact_heads,
    exact_layer,
    quantised_layer,
    real_layer,
)
from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import KelleModel
from golden.kelle.low_bits import quantised_weights, turned, turned_matrices
from golden.llm import Trace, open_trace
from hdl.catalog import entry_named
from hdl.emit import Emission, write_verilog
from hdl.kelle.instructions import Operation
from hdl.kelle.kelle import Kelle
from hdl.kelle.parameters import KelleParameters
from hdl.nonlinear.activation_functions import Activation
from hdl.paths import BUILD
from hdl.target import Target
from testbenches.kelle.edram.retention import with_fading_banks
from testbenches.kelle.tb_kelle_retention import WALKS, retention
from testbenches.kelle.text_layers import open_layers
from testbenches.quick_form import quick_form
from testbenches.runner import Request, prepare, run_testbench, simulate

pytestmark = pytest.mark.depends("kelle")

ENTRY = entry_named("kelle")
TINY: KelleParameters = ENTRY.parameters("tiny")
SMOLLM2: KelleParameters = ENTRY.parameters("smollm2")
LAYER = 14


@pytest.fixture(scope="module")
def trace() -> Trace:
    return open_trace(text="prose", tokens=640, layers=(LAYER,))


@pytest.fixture(scope="module")
def layer(trace: Trace) -> DecoderLayer:
    return real_layer(trace, LAYER, SMOLLM2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 120}, "slots must be at least sinks + window + 1 = 131, not 128"),
        ({"head_size": 96}, "head_size must be a multiple of banks * word_bytes = 64, not 96"),
        ({"head_size": 48}, "head_size must be a multiple of rows = 32, not 48"),
        ({"kv_heads": 0}, "kv_heads must be an integer from 1 to 64, not 0"),
        ({"heads": 1}, "heads must be an integer from 2 to 1024, not 1"),
        ({"banks": 2, "words": 2048}, "rows must divide the 16 channels of an eDRAM row, not 32"),
        (
            {"banks": 4, "bands": 2, "head_size": 32, "heads": 3, "kv_heads": 1},
            "rows must divide half of the 96 elements of a hidden state, not 32",
        ),
        ({"bands": 32}, "bands must be at most rows * weight_bits / 16, here 16, not 32"),
        (
            {"weight_bits": 4, "bands": 16},
            "bands must be at most rows * weight_bits / 16, here 8, not 16",
        ),
        (
            {"activation": Activation.RELU},
            "activation must be silu or gelu if the feed-forward block is gated, not 'relu'",
        ),
        ({"biases": True, "vocabulary_size": 9}, "vocabulary_size must be 0 with biases, not 9"),
        ({"weight_bits": 2}, "weight_bits must be a power of two between 4 and 8, not 2"),
        ({"vectors": 0}, "vectors must be an integer from 1 to 32, not 0"),
        ({"batch": 2, "block": 1}, "block must be an integer from 2 to 64, not 1"),
        ({"words": 256}, "entry_words = 424, not 256"),
        ({"overflow": True}, "overflow must be false if all 3 heads fit, not True"),
        (
            {"overflow": True, "words": 100},
            "words must have room for the input vectors and one head, which take 168, not 100",
        ),
        ({"slots": 100}, "slots must be a multiple of rows, not 100"),
        (
            {"context_length": 8},
            "context_length must be a power of two between 16 and 1048576, not 8",
        ),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        replace(SMOLLM2, **change)
    assert message in str(error.value)


def test_published_dimensions() -> None:
    p = ENTRY.parameters("paper")
    edram = p.memory.edram
    assert (p.rows, 4 * edram.banks) == (32, 32)
    assert 4 * edram.banks * edram.words * edram.word_bytes == 4 << 20
    # All layers of SmolLM2 at one published budget, ten at another.
    for layers, slots in ((30, 128), (10, 512)):
        replace(p, layers=layers, slots=slots, window=slots // 2)
    with pytest.raises(ValueError, match="entry_words = 17336, not 16384"):
        replace(p, layers=11)


def test_published_machine_is_legal() -> None:
    """Batches, layers and slots of which the eDRAM holds a part are legal with overflow."""
    p = ENTRY.parameters("published")
    assert (p.batch, p.layers, p.slots, p.rows) == (16, 32, 512, 32)
    assert (p.resident_heads, p.eviction.cached_heads) == (22, 1536)
    # The address map ends with the last word that the input vectors need.
    assert p.memory.edram.entries == p.words
    attention = ENTRY.parameters("llama2_attention")
    for change in ({"batch": 2}, {"layers": 3}, {"slots": 512}, {"layers": 32, "slots": 512}):
        wide = replace(attention, overflow=True, **change)
        assert 0 < wide.resident_heads < wide.eviction.cached_heads


def test_the_truth_is_the_model(trace: Trace, layer: DecoderLayer) -> None:
    """With attention to all tokens, the float64 reference equals SmolLM2's own results."""
    heads = exact_heads(layer, SMOLLM2)
    for now in (0, 1, 17, 200, 639):
        everything = [np.arange(now + 1)] * SMOLLM2.kv_heads
        output = exact_attention(layer, SMOLLM2, heads, now, everything)
        assert np.abs(output - trace.attention_output(LAYER)[now]).max() < 1e-4
        state = exact_layer(layer, SMOLLM2, heads, now, everything)
        wanted = trace.hidden(LAYER)[1][now]
        assert np.abs(state - wanted).max() < 1e-6 * np.abs(wanted).max()


def decode_error(layer: DecoderLayer, steps: int, p: KelleParameters = SMOLLM2) -> float:
    """Return the error of decoded states, relative to the layer's update of the state."""
    model, heads = KelleModel(p, layer), exact_heads(layer, p)
    first = 160
    prefill(model, first)
    unit, inputs = layer.steps[Operation.DOWN], layer.quantised.copy()
    error = size = 0.0
    for now in range(first, first + steps):
        step = model.step(now, layer.quantised_states[now])
        inputs[now] = step.normalised
        if step.store:
            model.inputs[step.store[1]] = inputs[step.store[0]]
        truth = exact_layer(layer, p, heads, now, step.attended)
        error += float(np.square(step.output * unit - truth).sum())
        size += float(np.square(truth - layer.states[now]).sum())
    return float(np.sqrt(error / size))


def test_outputs_are_near_the_truth(layer: DecoderLayer) -> None:
    """Eight-bit weights cause most of the error: with 16 bits it falls below a quarter."""
    error = decode_error(layer, 48)
    assert error < 0.05
    finer = dict(layer.projections)
    for which, projection in layer.projections.items():
        # 16-bit weights with the same scales, which only the model supports.
        steps = np.abs(projection.exact).max(axis=0) / 127
        weights = np.rint(projection.exact / steps * 256).astype(np.int64)
        finer[which] = replace(projection, weights=weights, shift=projection.shift + 8)
    better = decode_error(replace(layer, projections=finer), 48)
    assert better < error / 4


def test_another_basis_is_the_same_layer(layer: DecoderLayer) -> None:
    """In float64 a layer in the basis equals the layer, applied to a state in the basis."""
    low = replace(SMOLLM2, weight_bits=4)
    exact = ExactLayer(turned_matrices(layer.matrices, low))
    other = quantised_layer(exact, turned(layer.states, low), low)
    for now in (1, 200):
        everything = [np.arange(now + 1)] * SMOLLM2.kv_heads
        wanted, found = (
            exact_layer(own, p, exact_heads(own, p), now, everything)
            for own, p in ((layer, SMOLLM2), (other, low))
        )
        assert np.abs(found - turned(wanted, low)).max() < 1e-9 * np.abs(wanted).max()
        # The basis does change the state.
        assert np.abs(found - wanted).max() > 0.1 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("weight_bits", "activation_bits", "most"), [(8, 8, 0.2), (4, 16, 0.5), (4, 8, 0.5)]
)
def test_fewer_bits_are_as_near_as_they_can(
    trace: Trace, weight_bits: int, activation_bits: int, most: float
) -> None:
    """The error has the size stated on the page; without the basis, that of W8A8 doubles."""
    p = replace(SMOLLM2, weight_bits=weight_bits, activation_bits=activation_bits)
    error = decode_error(real_layer(trace, LAYER, p), 48, p)
    assert most / 2 < error < most
    if weight_bits == 8:
        layer = real_layer(trace, LAYER, SMOLLM2)
        plain = quantised_layer(layer.exact, layer.states, p)
        assert decode_error(plain, 48, p) > 1.8 * error


def test_steps_of_four_bits_are_the_best_of_many(layer: DecoderLayer) -> None:
    """No output's squared error is above that of plain rounding, and their sum is well below."""
    p = replace(SMOLLM2, weight_bits=4)
    matrix = turned_matrices(layer.matrices, p)[Operation.UP]
    weights, steps = quantised_weights(matrix, p)
    plain, plain_steps = quantise(matrix, bits=4, axis=0)
    assert np.abs(weights).max() == 7
    found, rounded = (
        np.square(integers * unit - matrix).sum(axis=0)
        for integers, unit in ((weights, steps), (plain, plain_steps))
    )
    assert np.all(found < rounded * (1 + 1e-6))
    assert found.sum() < 0.7 * rounded.sum()


def test_a_recomputed_token_is_what_it_was(layer: DecoderLayer) -> None:
    """Keys and values that are recomputed with other tokens are bit-identical."""
    model = KelleModel(SMOLLM2, layer)
    positions = np.array([40, 3, 17])
    together = model.keys_values(layer.quantised[positions], positions)
    for number in range(len(positions)):
        one = positions[number : number + 1]
        alone = model.keys_values(layer.quantised[one], one)
        for a, b in zip(together, alone, strict=True):
            assert np.array_equal(a[number], b[0])


@pytest.mark.parametrize("prefilled", [0, 9])
@pytest.mark.parametrize("vectors", [1, 2, 4])
def test_blocks_equal_steps_of_one_token(prefilled: int, vectors: int) -> None:
    """Random blocks, of which the longest have more tokens than window and slots.

    A token that becomes popular in a block is read until the block ends, and recomputed by the
    steps of one token. The bits of all results, slots, importances and medians are the same.
    """
    p = replace(TINY, layers=1, vectors=vectors, slots=8, context_length=256)
    (layer,) = open_layers(p)
    rng = np.random.default_rng(vectors)
    blocks, single = KelleModel(p, layer), KelleModel(p, layer)
    if prefilled:
        prefill(blocks, prefilled)
        prefill(single, prefilled)
    inputs = layer.quantised.copy()
    now, reused, kept, evicted = prefilled, 0, 0, 0
    while now < 200:
        count = int(rng.integers(1, 13))
        listed = {v for v, owner in enumerate(blocks.eviction.vectors) if owner}
        popular: set[int] = set()
        found = blocks.block(now, layer.quantised_states[now : now + count])
        for step in found:
            expected = single.step(now, layer.quantised_states[now])
            inputs[now] = expected.normalised
            assert np.array_equal(step.output, expected.output), now
            assert np.array_equal(step.normalised, expected.normalised), now
            assert step.placements == expected.placements and step.store == expected.store, now
            assert step.score_updates == expected.score_updates, now
            evicted += any(place.evicted in popular for place in step.placements)
            kept += any(position in popular for own in step.attended for position in own)
            if step.store:
                single.inputs[step.store[1]] = inputs[step.store[0]]
                popular.add(step.store[0])
                reused += step.store[1] in listed
            now += 1
        blocks.inputs |= single.inputs
        assert np.array_equal(blocks.keys, single.keys)
        assert np.array_equal(blocks.values, single.values)
        assert blocks.eviction.vectors == single.eviction.vectors
        for one, other in zip(blocks.eviction.heads, single.eviction.heads, strict=True):
            assert np.array_equal(one.positions, other.positions)
            assert np.array_equal(one.importance, other.importance)
            assert np.array_equal(one.recomputed, other.recomputed)
            assert vars(one.scores) == vars(other.scores)
    # In some blocks a later token attends to a new popular one, which may be evicted at once, or
    # may have the vector of another one.
    assert kept > 3 and evicted + reused > 0


def test_prefill_keeps_sinks_window_and_the_best(layer: DecoderLayer) -> None:
    model = KelleModel(SMOLLM2, layer)
    kept = prefill(model, 200).kept
    for head in range(SMOLLM2.kv_heads):
        mine = {token.position: token for token in kept if token.head == head}
        assert len(mine) == SMOLLM2.slots
        assert set(range(10)) <= set(mine) and set(range(136, 200)) <= set(mine)
        assert max(mine) == 199


@pytest.mark.parametrize("preset", ["tiny", pytest.param("smollm2", marks=pytest.mark.full)])
def test_fading_banks(preset: str) -> None:
    """Use a behavioural eDRAM in the swap point; the rest of the design is as emitted.

    The cycles of a step hardly depend on the number of sweeps during the step.
    """
    # A sweep over the entries of more layers would take longer than a step.
    parameters = replace(ENTRY.parameters(preset), layers=1)
    prepare(ENTRY, parameters)
    home = BUILD / "kelle" / f"{preset}_retention"
    form = quick_form("kelle", preset)
    emission = Emission(top=Kelle(parameters=parameters), name="kelle", target=form)
    files = write_verilog(emission, home / "rtl")
    edram = parameters.memory.edram
    verilog = with_fading_banks(
        files,
        home / "fading",
        depth=edram.words,
        width=8 * edram.word_bytes,
        retention=retention(parameters),
    )
    result = run_testbench(
        top="kelle",
        preset=preset,
        parameters=parameters,
        testbench="testbenches.kelle.tb_kelle_retention",
        ports=emission.modules[-1].ports,
        verilog=verilog,
        home=home,
        request=Request(seed=1),
    )
    assert result.passed, result.first_failure
    assert result.values_checked > 0
    cycles = result.facts["cycles_by_walks_between_sweeps"]
    print(cycles)
    assert cycles[str(WALKS[-1])] <= 1.02 * cycles["none"]


@pytest.mark.full
def test_decode_of_128_tokens_with_a_full_cache() -> None:
    """Outputs, victims, slot table and refreshed words of a whole SmolLM2 layer."""
    result = simulate(ENTRY, "smollm2", Request(seed=1, full=True, target=Target.FPGA))
    assert result.passed, result.first_failure
    assert result.facts["evictions"] == 128 * SMOLLM2.kv_heads
    assert result.facts["recomputed_victims"] > 0

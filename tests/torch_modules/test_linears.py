"""The linear modules equal the numpy models bit for bit, and their state is saved and loaded."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.kelle.decoder_layer import ExactLayer, quantised_layer
from golden.kelle.kelle import KelleModel
from golden.llm import Trace, open_trace
from golden.meadow.packing.model_file import quantised
from golden.meadow.packing.weight_packer import Level
from golden.meadow.tile.parallel_processing_element import dot_products
from golden.p3llm.p3llm import Matrix
from golden.policies.agreement import LAYERS, TOKENS
from golden.torch_modules.linears import BitmodLinear, ExactLinear, KelleLinear, PackedLinear
from hdl.catalog import entry_named
from hdl.kelle.instructions import PROJECTIONS, Operation

LAYER = LAYERS[1]


def linear_of(matrix: NDArray[Any]) -> torch.nn.Linear:
    rows, columns = matrix.shape
    linear = torch.nn.Linear(columns, rows, bias=False)
    linear.weight.data = torch.tensor(matrix)
    return linear


def random_case(seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return weights, with many equal chunks, and inputs."""
    rng = np.random.default_rng(seed)
    weights = np.rint(rng.normal(0, 2, (24, 32))) / 50
    return weights.astype(np.float32), rng.normal(0, 1, (2, 5, 32)).astype(np.float32)


@pytest.fixture(params=[1, 2, 3, "real"], scope="module")
def case(request: pytest.FixtureRequest) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return weights [outputs, inputs] and inputs [batch, tokens, inputs]."""
    if request.param != "real":
        return random_case(request.param)
    trace: Trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    own = trace.linear(LAYER, "v_proj")
    return own.weight, own.inputs[np.newaxis, :12]


@pytest.mark.parametrize("scale", ["tensor", "channel"])
@pytest.mark.parametrize("level", Level)
def test_packed_equals_the_unpacked_integers(
    case: tuple[NDArray[Any], NDArray[Any]], level: Level, scale: str
) -> None:
    weights, inputs = case
    largest = float(np.abs(inputs).max()) * 0.9
    module = PackedLinear.from_linear(
        linear_of(weights), largest_input=largest, scale=scale, level=level
    )
    integers, scales = quantised(weights, scale)
    np.testing.assert_array_equal(module.weight.numpy(), integers)
    step = largest / 127
    rows = np.clip(np.rint(inputs.astype(np.float64) / step), -127, 127).astype(np.int64)
    assert np.abs(rows).max() == 127
    sums = dot_products(
        rows.reshape(-1, rows.shape[-1]), integers.astype(np.int64), scale=1, shift=0, wide=True
    ).reshape(*rows.shape[:-1], -1)
    found = module.sums(torch.from_numpy(rows.astype(np.int8)))
    np.testing.assert_array_equal(found.numpy(), sums)
    wanted = (sums * (step * scales.astype(np.float64))).astype(np.float32)
    np.testing.assert_array_equal(module(torch.tensor(inputs)).numpy(), wanted)


def test_packed_keeps_the_level_and_the_bytes_of_its_matrix() -> None:
    weights, _inputs = random_case(1)
    module = PackedLinear.from_linear(linear_of(weights), largest_input=1.0)
    assert module.packed().level is Level.CLASSES
    assert module.packed().bytes < weights.size


def test_bitmod_equals_the_stored_matrix(case: tuple[NDArray[Any], NDArray[Any]]) -> None:
    weights, inputs = case
    module = BitmodLinear.from_linear(linear_of(weights), group_size=32)
    matrix = Matrix.quantised(weights, 32)
    rows = codes(inputs.reshape(-1, inputs.shape[-1]))
    wanted = np.stack([matrix.product(row) for row in rows])
    found = module(torch.tensor(inputs))
    np.testing.assert_array_equal(found.reshape(len(rows), -1).numpy(), wanted)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kelle_equals_the_projections_of_a_layer(seed: int) -> None:
    p = entry_named("kelle").presets["tiny"]
    rng = np.random.default_rng(seed)
    inner = {Operation.DOWN: (p.intermediate_size, p.hidden_size)}
    kv = (p.hidden_size, p.kv_heads * p.head_size)
    inner |= {Operation.KEY: kv, Operation.VALUE: kv}
    inner |= dict.fromkeys((Operation.UP, Operation.GATE), (p.hidden_size, p.intermediate_size))
    square = (p.hidden_size, p.hidden_size)
    matrices = {which: rng.normal(0, 0.3, inner.get(which, square)) for which in PROJECTIONS}
    layer = quantised_layer(ExactLayer(matrices), rng.normal(0, 2, (9, p.hidden_size)), p)
    model = KelleModel(p, layer)
    for which in (Operation.QUERY, Operation.VALUE, Operation.UP):
        step = layer.steps[which]
        module = KelleLinear(matrices[which].T, input_step=2.0**-10, output_step=step)
        rows = layer.quantised
        wanted = model.project(which, rows).reshape(len(rows), -1)
        inputs = torch.from_numpy((rows * 2.0**-10).astype(np.float32))
        np.testing.assert_array_equal(module(inputs).numpy(), (wanted * step).astype(np.float32))


def packed(weights: NDArray[Any], **options: Any) -> PackedLinear:
    return PackedLinear.from_linear(linear_of(weights), largest_input=3.0, **options)


def bitmod(weights: NDArray[Any]) -> BitmodLinear:
    return BitmodLinear.from_linear(linear_of(weights), group_size=16)


def kelle(weights: NDArray[Any]) -> KelleLinear:
    return KelleLinear.from_linear(linear_of(weights), largest_input=3.0, largest_output=2.0)


MAKERS = [packed, bitmod, kelle]


@pytest.mark.parametrize("make", MAKERS)
def test_state_is_saved_and_loaded(make: Callable[[Any], ExactLinear], tmp_path: Any) -> None:
    weights, inputs = random_case(1)
    module, other = make(weights), make(random_case(2)[0])
    given = torch.tensor(inputs)
    assert not torch.equal(other(given), module(given))
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(given), module(given))


def test_a_packed_module_takes_the_state_of_another_matrix() -> None:
    weights, inputs = random_case(1)
    module = packed(weights, level=Level.REINDEXED, scale="channel")
    other = packed(np.ones((3, 5), np.float32))
    other.load_state_dict(module.state_dict())
    assert (other.in_features, other.out_features) == (32, 24)
    assert other.packed().level is Level.REINDEXED
    assert torch.equal(other(torch.tensor(inputs)), module(torch.tensor(inputs)))


def test_a_corrupted_state_of_packets_is_refused() -> None:
    weights, _inputs = random_case(1)
    state = packed(weights).state_dict()
    with pytest.raises(ValueError, match=r"an ID must be below 1, not \d+"):
        packed(weights).load_state_dict(state | {"unique": state["unique"][:1]})
    with pytest.raises(ValueError, match=r"input_step must be above 0 and finite, not 0\.0"):
        packed(weights).load_state_dict(state | {"input_step": torch.tensor(0.0)})


@pytest.mark.parametrize("make", MAKERS)
def test_wrong_tensors_are_refused(make: Callable[[Any], ExactLinear]) -> None:
    weights, inputs = random_case(1)
    module, given = make(weights), torch.tensor(inputs)
    name = type(module).__name__
    for wrong, words in (
        (given.double(), f"inputs of {name} must have one of the types"),
        (given[..., :5], f"inputs of {name} must have 32 features, not 5"),
        (given * torch.inf, f"inputs of {name} must be finite"),
        (given.to("meta"), f"inputs of {name} must be on the device cpu"),
        (given.clone().requires_grad_(), f"inputs of {name} must not require a gradient"),
    ):
        with pytest.raises(ValueError, match=words):
            module(wrong)
    assert module(given.half()).dtype is torch.float16
    assert module(given[0, 0]).shape == (24,)
    with pytest.raises(ValueError, match="the linear layer must have no bias"):
        type(module).from_linear(  # type: ignore[attr-defined]
            torch.nn.Linear(4, 4),
            **({} if make is bitmod else {"largest_input": 1.0}),
            **({"largest_output": 1.0} if make is kelle else {}),
        )


def test_integer_inputs_of_another_type_are_refused() -> None:
    weights, _inputs = random_case(1)
    with pytest.raises(ValueError, match=r"types torch\.int8, not torch\.int16"):
        packed(weights).sums(torch.ones(2, 32, dtype=torch.int16))
    with pytest.raises(ValueError, match="must have 32 features, not 31"):
        packed(weights).sums(torch.ones(2, 31, dtype=torch.int8))

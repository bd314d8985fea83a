"""The quantiser modules equal the numpy models bit for bit, and refuse what they cannot take."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golden.arith import bitmod_fp4, fp8_e4m3, fp8_s0e4m4, int_symmetric
from golden.arith.float_values import codes, values
from golden.llm import Trace, open_trace
from golden.p3llm.p3llm import Matrix
from golden.p3llm.quantisers.e4m3_quantiser import e4m3_quantiser
from golden.p3llm.quantisers.int4_quantiser import int4_quantiser
from golden.policies.agreement import LAYERS, TOKENS
from golden.torch_modules.quantisers import (
    BitmodQuantiser,
    E4M3Quantiser,
    Int4Quantiser,
    S0E4M4Quantiser,
    SymmetricQuantiser,
)
from hdl.arith.fp8_s0e4m4 import Round

LAYER = LAYERS[1]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


@pytest.fixture(params=[1, 2, 3, "keys"])
def vectors(request: pytest.FixtureRequest, trace: Trace) -> Tensor:
    """Return random vectors of several magnitudes, or the keys of a head of SmolLM2."""
    if request.param == "keys":
        return torch.tensor(trace.attention_trace(LAYER, 0).k[:50])
    rng = np.random.default_rng(request.param)
    rows = rng.normal(0, 1, (3, 5, 64)) * 10.0 ** rng.integers(-6, 4, (3, 5, 1))
    rows[0, 0] = 0
    return torch.from_numpy(rows.astype(np.float32))


@pytest.fixture(params=[1, 2, "q_proj"])
def weights(request: pytest.FixtureRequest, trace: Trace) -> Tensor:
    """Return a random matrix, or rows of a matrix of SmolLM2."""
    if request.param == "q_proj":
        return torch.tensor(trace.linear(LAYER, "q_proj").weight[:40])
    rng = np.random.default_rng(request.param)
    return torch.from_numpy(rng.normal(0, 0.1, (24, 128)).astype(np.float32))


def test_s0e4m4_equals_its_model_for_every_fp16_number() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    for rule in Round:
        module = S0E4M4Quantiser(rule)
        wanted = fp8_s0e4m4.encode(every.view(np.uint16), rule)
        np.testing.assert_array_equal(module.codes(torch.from_numpy(every)).numpy(), wanted)
        found = module(torch.from_numpy(every))
        assert found.dtype is torch.float16
        decoded = values(fp8_s0e4m4.decode(wanted))
        np.testing.assert_array_equal(found.double().numpy(), decoded)
    # The step of S0E4M4 is 2**-10 here.
    for rule, wanted in ((Round.TRUNC, 20), (Round.HALF_UP, 21)):
        assert S0E4M4Quantiser(rule)(torch.tensor([0.0205])).item() == wanted / 1024


def test_s0e4m4_equals_its_model_on_probabilities(trace: Trace) -> None:
    shares = trace.attention_trace(LAYER, 4).probabilities
    wanted = values(fp8_s0e4m4.decode(fp8_s0e4m4.encode(codes(shares))))
    found = S0E4M4Quantiser()(torch.tensor(shares))
    assert found.dtype is torch.float32
    np.testing.assert_array_equal(found.numpy(), wanted.astype(np.float32))


def test_e4m3_equals_its_model(vectors: Tensor) -> None:
    wanted, scales = e4m3_quantiser(codes(vectors.numpy()))
    found, own_scales = E4M3Quantiser().codes(vectors)
    np.testing.assert_array_equal(found.numpy(), wanted)
    np.testing.assert_array_equal(own_scales.numpy().view(np.uint16), scales)
    decoded = values(fp8_e4m3.decode(wanted)) * values(scales)
    np.testing.assert_array_equal(E4M3Quantiser()(vectors).double().numpy(), decoded)


def test_int4_equals_its_model(vectors: Tensor) -> None:
    wanted, zero_points, scales = int4_quantiser(codes(vectors.numpy()))
    found, own_zeros, own_scales = Int4Quantiser().codes(vectors)
    np.testing.assert_array_equal(found.numpy(), wanted)
    np.testing.assert_array_equal(own_zeros.numpy(), zero_points)
    np.testing.assert_array_equal(own_scales.numpy().view(np.uint16), scales)
    decoded = (wanted.astype(np.float64) - zero_points) * values(scales)
    np.testing.assert_array_equal(Int4Quantiser()(vectors).double().numpy(), decoded)


@pytest.mark.parametrize("group", [32, 64])
def test_bitmod_equals_its_model(weights: Tensor, group: int) -> None:
    matrix = weights.numpy()
    groups = bitmod_fp4.quantise(matrix, group_size=group)
    found, selects, steps, rows = BitmodQuantiser(group).codes(weights)
    np.testing.assert_array_equal(found.numpy(), groups.codes)
    np.testing.assert_array_equal(selects.numpy(), groups.selects)
    # Scales as in the matrix that the system stores.
    stored = Matrix.quantised(matrix, group)
    np.testing.assert_array_equal(steps.numpy(), stored.steps)
    np.testing.assert_array_equal(rows.numpy().view(np.uint16), stored.scales)
    halves = bitmod_fp4.decode(groups.codes, groups.selects[..., np.newaxis]) / 2
    scales = stored.steps * values(stored.scales)[:, np.newaxis]
    decoded = (halves * scales[..., np.newaxis]).reshape(matrix.shape)
    np.testing.assert_array_equal(BitmodQuantiser(group)(weights).double().numpy(), decoded)


@pytest.mark.parametrize(("bits", "axis"), [(8, -1), (4, -1), (16, 0), (8, None)])
def test_symmetric_integers_equal_their_model(weights: Tensor, bits: int, axis: Any) -> None:
    wanted, scales = int_symmetric.quantise(weights.numpy(), bits=bits, axis=axis)
    module = SymmetricQuantiser(bits, axis)
    found, own_scales = module.codes(weights)
    assert found.dtype is (torch.int16 if bits > 8 else torch.int8)
    np.testing.assert_array_equal(found.numpy(), wanted)
    np.testing.assert_array_equal(own_scales.numpy(), scales)
    np.testing.assert_array_equal(module(weights).numpy(), wanted.astype(np.float32) * scales)


MODULES = [
    S0E4M4Quantiser(),
    E4M3Quantiser(),
    Int4Quantiser(),
    BitmodQuantiser(4),
    SymmetricQuantiser(),
]


@pytest.mark.parametrize("module", MODULES, ids=lambda own: type(own).__name__)
def test_wrong_tensors_are_refused(module: torch.nn.Module) -> None:
    given = torch.ones(3, 8)
    name = type(module).__name__
    for wrong, words in (
        (given.double(), f"of {name} must have one of the types"),
        (given.to("meta"), f"of {name} must be on the device cpu, not device"),
        (given * torch.nan, f"of {name} must be finite, not"),
        (given.numpy(), f"of {name} must be a tensor, not 'ndarray'"),
        (given.clone().requires_grad_(), f"which {name} does not have: call it within"),
    ):
        with pytest.raises(ValueError, match=words):
            module(wrong)
    with pytest.raises(ValueError, match=f"the device of {name} must be cpu"):
        module.to("meta")


def test_illegal_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="bits must be an integer from 2 to 16, not 17"):
        SymmetricQuantiser(17)
    with pytest.raises(ValueError, match="axis must be an integer or None, not 'rows'"):
        SymmetricQuantiser(axis="rows")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="group_size must be an integer"):
        BitmodQuantiser(0)
    with pytest.raises(ValueError, match="group_size must divide 8 inputs, not 3"):
        BitmodQuantiser(3)(torch.ones(2, 8))
    with pytest.raises(ValueError, match="round must be one of"):
        S0E4M4Quantiser("up")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="vectors of Int4Quantiser must fit FP16, up to 65504"):
        Int4Quantiser()(torch.full((1, 4), 7e4))

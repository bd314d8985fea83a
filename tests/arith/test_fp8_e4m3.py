"""FP8 E4M3: every code and every FP16 input, against ml_dtypes and the specification."""

import ml_dtypes
import numpy as np
import pytest

from golden.arith import fp8_e4m3
from hdl.arith.float_format import FP8_E4M3FN
from hdl.arith.fp8_e4m3 import E4m3Decoder, E4m3Encoder, E4m3Operand, Overflow
from testbenches.arith.bank import run_bank

FP16 = np.arange(1 << 16, dtype=np.uint16)
CODES = np.arange(1 << 8, dtype=np.uint8)


def library_encode(bits: np.ndarray) -> np.ndarray:
    """Encode with ml_dtypes, whose overflow is NaN."""
    with np.errstate(all="ignore"):
        return bits.view(np.float16).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def test_encoder_model_equals_ml_dtypes_if_overflow_is_nan() -> None:
    """Test all FP16 inputs, including signs of zeros and NaNs."""
    assert np.array_equal(fp8_e4m3.encode(FP16, Overflow.NAN), library_encode(FP16))


def test_saturation_changes_overflow_only() -> None:
    """Infinities and numbers beyond 464 become 448; NaNs remain NaNs."""
    values = FP16.view(np.float16).astype(np.float64)
    beyond = np.abs(values) > 464
    saturated = fp8_e4m3.encode(FP16, Overflow.SATURATE)
    assert np.array_equal(saturated[~beyond], library_encode(FP16)[~beyond])
    assert set(saturated[beyond & (values > 0)]) == {0x7E}
    assert set(saturated[beyond & (values < 0)]) == {0xFE}


def test_decoder_model_equals_ml_dtypes() -> None:
    """Test all codes; NaN has its own rule."""
    decoded = fp8_e4m3.decode(CODES)
    number = CODES & 0x7F != 0x7F
    library = CODES.view(ml_dtypes.float8_e4m3fn).astype(np.float16).view(np.uint16)
    assert np.array_equal(decoded[number], library[number])
    assert list(decoded[~number]) == [0x7E00, 0xFE00]


def test_operand_equals_the_formula() -> None:
    """Test ``value = +-sig * 2**(max(E, 1) - 10)`` for all 254 finite codes."""
    significand, shift, nan = fp8_e4m3.operand(CODES)
    assert list(CODES[nan]) == [0x7F, 0xFF] and not significand[nan].any()
    values = significand * 2.0 ** (shift - 9)
    assert np.array_equal(values[~nan], FP8_E4M3FN.decode(CODES)[~nan])
    assert significand.min() == -15 and significand.max() == 15
    assert shift.min() == 0 and shift.max() == 14


def test_rtl_equals_model_on_all_inputs() -> None:
    """Test encoders, decoder and operand decoder, with and without registers."""
    encoders = {
        f"encode_{overflow.value}_{stages}": E4m3Encoder(overflow=overflow, stages=stages)
        for overflow in Overflow
        for stages in (0, 2)
    }
    others = {
        "decode": E4m3Decoder(stages=1),
        "operand": E4m3Operand(),
        "late": E4m3Operand(stages=1),
    }
    operands = {name: {"a": FP16} for name in encoders} | {name: {"a": CODES} for name in others}
    results = run_bank(encoders | others, operands)
    for name, encoder in encoders.items():
        assert np.array_equal(results[name]["result"], fp8_e4m3.encode(FP16, encoder.overflow)), (
            name
        )
    assert np.array_equal(results["decode"]["result"], fp8_e4m3.decode(CODES))
    significand, shift, nan = fp8_e4m3.operand(CODES)
    for name in ("operand", "late"):
        assert np.array_equal(results[name]["significand"], significand & 63)
        assert np.array_equal(results[name]["shift"], shift)
        assert np.array_equal(results[name]["nan"], nan)


def test_nearest_code_agrees_with_the_encoder() -> None:
    """The float quantiser equals the bit-level encoder for all finite FP16 numbers."""
    finite = FP16[np.isfinite(FP16.view(np.float16))]
    nearest = fp8_e4m3.nearest_code(finite.view(np.float16))
    assert np.array_equal(nearest, fp8_e4m3.encode(finite))


def test_quantiser_scales_each_vector_to_448() -> None:
    """The largest magnitude becomes 448; a vector of zeros has the minimum scale."""
    random = np.random.default_rng(3)
    values = random.normal(size=(64, 128)).astype(np.float32)
    values[7] = 0
    codes, scales = fp8_e4m3.quantise(values)
    restored = FP8_E4M3FN.decode(codes) * scales
    largest = np.abs(values).max(axis=-1, keepdims=True)
    assert scales[7, 0] == np.float32(1e-6) and not codes[7].any()
    assert np.array_equal(np.delete((codes & 0x7F).max(axis=-1), 7), np.full(63, 0x7E))
    # Half a step is 2**-4 of the number, or of the smallest normal number.
    bound = np.maximum(np.abs(values) * 2**-4, scales * 2**-10) * (1 + 1e-6)
    assert (np.abs(restored - values) <= bound).all()
    assert np.allclose(scales[largest > 0], (largest / 448)[largest > 0], rtol=1e-6)


def test_rejects_an_overflow_that_is_no_enum() -> None:
    """The constructor accepts only members of `Overflow`."""
    with pytest.raises(ValueError, match=r"overflow must be one of .* not 'saturate'"):
        E4m3Encoder(overflow="saturate")  # pyright: ignore[reportArgumentType]

"""The models' tables, computed from their definitions, equal those of the hardware."""

from typing import Any

import pytest

from golden.arith import bitmod_fp4, reciprocal
from golden.nonlinear import activation_functions, layer_norm, rms_norm, rotary_embedding, softmax
from hdl.arith.bitmod_fp4 import MAGNITUDES, SPECIAL_CODE
from hdl.arith.bitmod_fp4 import SPECIALS as SPECIAL_HALVES
from hdl.arith.reciprocal import SEEDS
from hdl.catalog import entry_named
from hdl.nonlinear.activation_functions import dip_breakpoints
from hdl.nonlinear.layer_norm import LayerNormParameters
from hdl.nonlinear.rms_norm import RmsNormParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters, circle_breakpoints
from hdl.nonlinear.softmax import SLOPES, STARTS


def presets(top: str) -> list[Any]:
    return list(entry_named(top).presets.values())


def test_reciprocal_seeds() -> None:
    assert tuple(reciprocal.seeds()) == SEEDS


def test_bitmod_codes() -> None:
    for select, special in enumerate(SPECIAL_HALVES):
        table = [*MAGNITUDES, *(-magnitude for magnitude in MAGNITUDES)]
        table[SPECIAL_CODE] = special
        assert bitmod_fp4.code_table(select).tolist() == table


def test_softmax_lines() -> None:
    slopes, starts = softmax.power_lines()
    assert (tuple(slopes), tuple(starts)) == (SLOPES, STARTS)


@pytest.mark.parametrize("pieces", [16 << n for n in range(7)])
def test_activation_dips(pieces: int) -> None:
    assert tuple(activation_functions.dips(pieces)) == dip_breakpoints(pieces)


@pytest.mark.parametrize(
    "p",
    [*presets("rms_norm"), *(RmsNormParameters(lanes=1, width=width) for width in (3, 999, 8191))],
)
def test_reciprocal_roots(p: RmsNormParameters) -> None:
    assert tuple(rms_norm.roots(p)) == p.root_breakpoints


@pytest.mark.parametrize("p", presets("layer_norm"))
def test_reciprocal_deviations(p: LayerNormParameters) -> None:
    assert tuple(layer_norm.roots(p)) == p.root_breakpoints


@pytest.mark.parametrize(
    "p",
    [
        *presets("rotary_embedding"),
        RotaryEmbeddingParameters(lanes=2, head_size=254, base=10_000_000, position_bits=20),
        RotaryEmbeddingParameters(lanes=2, head_size=2, base=2, position_bits=1),
    ],
)
def test_rotary_turns(p: RotaryEmbeddingParameters) -> None:
    assert tuple(rotary_embedding.turns(p)) == p.turns


def test_circle() -> None:
    cosine, sine = rotary_embedding.circle_tables()
    assert (tuple(cosine), tuple(sine)) == (circle_breakpoints("cos"), circle_breakpoints("sin"))

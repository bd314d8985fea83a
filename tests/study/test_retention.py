"""Bits are wrong as often as they should be, where they should be."""

import pytest
import torch

from golden.study.retention import (
    FlipRates,
    Retention,
    WordFormat,
    flip_fp16,
    flip_int16,
    flipped,
    refreshed,
    uniform,
)
from hdl.kelle.edram.refresh_intervals import RefreshIntervals


def test_a_flipped_bit_changes_an_integer_by_its_weight() -> None:
    values = torch.tensor([[[32767.0, 1.0, -2.0]]], dtype=torch.float64)
    mask = torch.tensor([[[1, 256, -32768]]], dtype=torch.int16)
    assert flip_int16(values, mask)[0, 0].tolist() == [32766.0, 257.0, 32766.0]


def test_scales_over_a_layer_a_head_and_a_channel() -> None:
    """The lowest bit is worth the largest number of what shares its scale."""
    values = torch.tensor([[[8.0, 1.0], [2.0, 0.5]], [[4.0, 2.0], [1.0, 1.0]]])
    mask = torch.ones(values.shape, dtype=torch.int16)
    for word, largest in (
        (WordFormat.INT16_LAYER, [[[8, 8], [8, 8]], [[8, 8], [8, 8]]]),
        (WordFormat.INT16, [[[8, 8], [8, 8]], [[4, 4], [4, 4]]]),
        (WordFormat.INT16_CHANNEL, [[[8, 1], [8, 1]], [[4, 2], [4, 2]]]),
    ):
        step = torch.tensor(largest) / 32767
        error = (flipped(values, mask, word) - values).abs()
        # A flipped bit and half a step of rounding at most.
        assert bool(((error - step).abs() <= 0.51 * step).all())


def test_a_flipped_exponent_changes_an_fp16_number_by_powers() -> None:
    values = torch.tensor([[[1.0, 1.0, 1.0]]])
    mask = torch.tensor([[[1 << 10, 1 << 14, -32768]]], dtype=torch.int16)
    # 1.0 with the highest exponent bit set is infinite, and infinity is read as zero.
    assert flip_fp16(values, mask)[0, 0].tolist() == [0.5, 0.0, -1.0]


@pytest.mark.parametrize(
    "rates", [uniform(0.02), FlipRates(hst_msb=0.02), refreshed(RefreshIntervals(lst_lsb=99_000))]
)
def test_the_share_of_wrong_bits_is_the_rate(rates: FlipRates) -> None:
    values = torch.linspace(-1, 1, 64 * 256, dtype=torch.float64).view(1, 1, 256, 64)
    high, low = (key for key, _ in Retention([rates]).read(0, values, values))
    words = (values * 32767).round().to(torch.int32)
    for read, msb, lsb in (
        (high, rates.hst_msb, rates.hst_lsb),
        (low, rates.lst_msb, rates.lst_lsb),
    ):
        wrong = ((read * 32767).round().to(torch.int32) ^ words) & 0xFFFF
        for shift, rate in ((8, msb), (0, lsb)):
            share = sum(((wrong >> shift + bit) & 1).double().mean() for bit in range(8)) / 8
            # Four standard deviations of this number of samples.
            assert abs(float(share) - rate) <= 4 * (rate / 8 / values.numel()) ** 0.5


def test_rates_of_the_papers_intervals_have_the_papers_mean() -> None:
    rates = refreshed(RefreshIntervals())
    assert rates.mean == pytest.approx(2e-3)
    assert rates.hst_msb < rates.lst_msb < rates.hst_lsb < rates.lst_lsb


def test_errors_repeat() -> None:
    values = torch.randn(1, 2, 32, 16, generator=torch.Generator().manual_seed(1))
    first, again = (Retention([uniform(0.1)], seed=7).read(3, values, values) for _ in range(2))
    other = Retention([uniform(0.1)], seed=7).read(4, values, values)
    assert torch.equal(first[0][0], again[0][0])
    assert not torch.equal(first[0][0], other[0][0])


def test_a_rate_is_a_probability() -> None:
    with pytest.raises(ValueError, match=r"hst_msb must be between 0 and 1, not 1\.5"):
        FlipRates(hst_msb=1.5)

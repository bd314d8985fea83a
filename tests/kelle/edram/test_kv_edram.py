"""KV eDRAM: parameter rules, the byte map, and the swap point with banks that lose bits."""

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.sim import Simulator

from golden.kelle.edram.kv_edram import Retention, rows_of, values_of, vector_rows
from hdl.catalog import entry_named
from hdl.emit import Emission, write_verilog
from hdl.kelle.edram.kv_edram import KvEdramParameters, channels_of, row_of
from hdl.paths import BUILD
from testbenches.kelle.edram.retention import with_fading_banks
from testbenches.kelle.edram.tb_kv_edram_retention import RETENTION
from testbenches.runner import Request, prepare, run_testbench

TINY = entry_named("kv_edram").parameters("tiny")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_size": 96}, "head_size must be a multiple of banks * word_bytes = 64, not 96"),
        ({"banks": 6}, "banks must be a power of two between 2 and 64, not 6"),
        ({"vector_size": 4095}, "vector_size must be even, not 4095"),
        ({"kv_heads": 64}, "entry_words = 16896, not 16384"),
        ({"words": 2}, "words must be an integer from 4 to 65536, not 2"),
        ({"access_ps": 5000}, "access_ps must be at most 4000, 4 cycles at 1000 MHz, not 5000"),
        ({"clock_mhz": 2200}, "access_ps must be at most 1818, 4 cycles at 2200 MHz, not 1900"),
    ],
)
def test_bad_dimensions(change: dict[str, Any], message: str) -> None:
    """Head sizes that are no multiple of a row, and address maps that do not fit."""
    with pytest.raises(ValueError) as error:
        KvEdramParameters(**change)
    assert message in str(error.value)


def test_published_size_is_four_megabytes() -> None:
    """Four groups of 8 banks of 16384 words of 8 bytes."""
    p = KvEdramParameters()
    assert 4 * p.banks * p.words * p.word_bytes == 4 << 20
    assert p.address_bits == 14
    assert p.entry_words == 2


@pytest.mark.parametrize(
    ("clock_mhz", "cycles"), [(100, 1), (526, 1), (527, 2), (1000, 2), (2000, 4)]
)
def test_cycles_of_a_read_follow_the_clock(clock_mhz: int, cycles: int) -> None:
    """Table 1's access of 1.9 ns takes whole cycles."""
    assert KvEdramParameters(clock_mhz=clock_mhz).read_cycles == cycles


@pytest.mark.parametrize("head_size", [64, 128])
def test_channels_are_stored_according_to_the_map(head_size: int) -> None:
    """Channel c is in bank c mod 8, byte (c div 8) mod 8 of word c div 64, split by bytes."""
    p = KvEdramParameters(head_size=head_size, slots=4, kv_heads=1)
    for c in range(head_size):
        values = np.zeros((1, head_size), np.int64)
        values[0, c] = 0x12AB
        rows = rows_of(values, p)
        for half, byte_value in enumerate((0x12, 0xAB)):
            assert rows[0, c // 64, half, c % 8] == byte_value << 8 * (c // 8 % 8)
        assert np.count_nonzero(rows) == 2


def test_the_map_is_invertible() -> None:
    """Words are converted back to values, signs included, and both halves of an input vector."""
    p = KvEdramParameters()
    rng = np.random.default_rng(3)
    values = rng.integers(-(1 << 15), 1 << 15, (5, 128))
    assert np.array_equal(values_of(rows_of(values, p), p), values)
    x = rng.integers(-(1 << 15), 1 << 15, p.vector_size)
    keys, others = vector_rows(x, p)
    assert len(keys) == p.vector_entries * p.entry_words
    assert np.array_equal(values_of(keys[np.newaxis], p)[0], x[: len(x) // 2])
    assert np.array_equal(values_of(others[np.newaxis], p)[0], x[len(x) // 2 :])


def test_wiring_agrees_with_the_map() -> None:
    """The wires between channels and banks equal the model, in both directions."""
    p = TINY
    channels = [Signal(16, name=f"channel_{c}") for c in range(p.row_channels)]
    row: Any = Signal(p.row_layout)
    back = [Signal(16, name=f"back_{c}") for c in range(p.row_channels)]
    m = Module()
    m.d.comb += row.eq(row_of(p, channels))
    m.d.comb += [b.eq(c) for b, c in zip(back, channels_of(p, row), strict=True)]
    values = np.random.default_rng(4).integers(-(1 << 15), 1 << 15, (8, p.row_channels))

    async def check(context) -> None:
        for item in values:
            for channel, value in zip(channels, item, strict=True):
                context.set(channel, int(value) & 0xFFFF)
            words = rows_of(item[np.newaxis], p)[0, 0].reshape(-1)
            width = 8 * p.word_bytes
            expected = sum(int(word) << width * i for i, word in enumerate(words))
            assert context.get(data.View.as_value(row)) == expected
            assert [context.get(b) for b in back] == [int(v) & 0xFFFF for v in item]

    simulator = Simulator(m)
    simulator.add_testbench(check)
    simulator.run()


@pytest.mark.parametrize("change", [{"rate": 1.5}, {"cycles": 0}, {"seed": -1}])
def test_bad_retention(change: dict[str, Any]) -> None:
    """A rate is a probability, and an age is at least one cycle."""
    with pytest.raises(ValueError, match="must be"):
        Retention(**({"cycles": 10, "rate": 0.1} | change))


def test_macro_in_the_swap_point_fades_and_is_refreshed() -> None:
    """Replace the emitted memory by a behavioural eDRAM; the rest of the design is as emitted."""
    entry = entry_named("kv_edram")
    prepare(entry, TINY)
    home = BUILD / "kv_edram" / "tiny_retention"
    emission = Emission(top=entry.build("tiny"), name="kv_edram")
    files = write_verilog(emission, home / "rtl")
    verilog = with_fading_banks(
        files,
        home / "fading",
        depth=TINY.words,
        width=8 * TINY.word_bytes,
        retention=RETENTION,
    )
    result = run_testbench(
        top="kv_edram",
        preset="tiny",
        parameters=TINY,
        testbench="testbenches.kelle.edram.tb_kv_edram_retention",
        ports=emission.modules[-1].ports,
        verilog=verilog,
        home=home,
        request=Request(seed=1),
    )
    assert result.passed, result.first_failure
    assert result.values_checked > 0

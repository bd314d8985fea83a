"""Key reader: tokens from columns in the banks' layout, and their dequantised values."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arith.float_values import codes, values
from golden.p3llm.dram_image import key_image
from golden.p3llm.npu.key_reader import dequantised
from hdl.p3llm.npu.key_reader import KeyReader
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.p3llm.places import Places
from testbenches.p3llm.system_models import drawn_cache
from tests.p3llm.test_small_layer import smallest


def parameters(lanes: int, elements: int = 4, channels: int = 1) -> P3llmParameters:
    """Return two units of some elements, and heads of four slices or more."""
    p = smallest(2, 2, channels=channels)
    unit = replace(p.channel.unit, elements=elements, steps=4 * elements)
    channel = replace(p.channel, unit=unit)
    size = 2 * elements
    return replace(
        p,
        channel=channel,
        lanes=lanes,
        hidden_size=4 * size,
        intermediate_size=4 * size,
        head_size=size,
        pre_rope=True,
        group_weights=size,
        slots=64 * elements // 4,
    )


def filled(p: P3llmParameters, image: np.ndarray, turn: int) -> list[tuple[str, int, int]]:
    """Return the writes of a head's positions, unit by unit: memory, place, and columns.

    Scales, which are stored between both, have another destination.
    """
    places, found = Places(p), []
    counts = {"zeros": places.zeros(turn), "keys": places.keys(turn)}
    units = image.reshape(len(image), p.pseudo_channels, p.units, -1)
    for position, columns in enumerate(units):
        within = position % p.key_set
        if 1 <= within <= 2 * KEY_SET:
            continue
        name = "keys" if within else "zeros"
        for unit in range(p.units):
            joined = b"".join(columns[channel, unit].tobytes() for channel in range(len(columns)))
            found.append((name, counts[name] + unit, int.from_bytes(joined, "little")))
        counts[name] += p.units
    return found


@pytest.mark.parametrize(
    ("lanes", "elements", "channels"),
    [(2, 4, 1), (4, 4, 1), (4, 4, 2), (4, 8, 1), (8, 8, 2), (16, 16, 1)],
)
def test_tokens_are_output_in_slices(lanes: int, elements: int, channels: int) -> None:
    """Both turns, with stalls; any number of slices of tokens."""
    p, rng = parameters(lanes, elements, channels), np.random.default_rng(lanes)
    unit, places = KeyReader(parameters=p), Places(p)
    caches = [drawn_cache(p, p.slots, rng) for _turn in range(2)]
    pauses = iter(rng.integers(0, 2, 1 << 20).tolist())
    found: list[tuple[list[int], int, int, int]] = []

    async def bench(ctx) -> None:
        for turn, cache in enumerate(caches):
            heads = [key_image(p, cache, min(head, 1)) for head in range(channels)]
            for name, place, columns in filled(p, np.concatenate(heads, axis=1), turn):
                ctx.set(unit.keys_write, name == "keys")
                ctx.set(unit.zeros_write, name == "zeros")
                ctx.set(unit.address, place)
                ctx.set(unit.columns, columns)
                await ctx.tick()
        ctx.set(unit.keys_write, 0)
        ctx.set(unit.zeros_write, 0)
        for turn, channel, count in cases:
            ctx.set(unit.keys, places.keys(turn))
            ctx.set(unit.zeros, places.zeros(turn))
            if channels > 1:
                ctx.set(unit.channel, channel)
            ctx.set(unit.count, count)
            ctx.set(unit.start, 1)
            await ctx.tick()
            ctx.set(unit.start, 0)
            final = 0
            while not final:
                ready = next(pauses)
                ctx.set(unit.slices.ready, ready)
                if ready and ctx.get(unit.slices.valid):
                    given = unit.slices.payload
                    numbers = [ctx.get(given["values"][i]) for i in range(lanes)]
                    final = ctx.get(given.final)
                    found.append((numbers, ctx.get(given.token), ctx.get(given["last"]), final))
                await ctx.tick()
            assert not ctx.get(unit.slices.valid)

    slices, size = p.slots // lanes, p.head_size // lanes
    cases = [(0, 0, slices), (1, channels - 1, 3), (1, 0, slices), (0, channels - 1, 1)]
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    expected = []
    for turn, channel, count in cases:
        cache = caches[turn]
        for token in range(count * lanes):
            zero = int(cache.key_zeros[channel, token])
            integers = cache.keys[channel, token].astype(int) - zero
            for index in range(size):
                last = index == size - 1
                final = last and token == count * lanes - 1
                part = integers[index * lanes : (index + 1) * lanes].tolist()
                expected.append((part, token % lanes, int(last), int(final)))
    assert found == expected


def test_a_key_is_near_the_exact_one() -> None:
    """Compared with fractions: one rounding of (code - zero point) times scale times factor."""
    rng = np.random.default_rng(1)
    stored, zeros = rng.integers(0, 16, (20, 8), np.uint8), rng.integers(0, 16, 20, np.uint8)
    scales, factors = codes(rng.random(20)), codes(rng.random((1, 8)) * 8)
    found = dequantised(stored, zeros, scales, factors)
    assert found.dtype == np.float32
    for token, channel in np.ndindex(found.shape):
        factor = Fraction(float(values(scales[token]))) * Fraction(
            float(values(factors[0, channel]))
        )
        exact = (int(stored[token, channel]) - int(zeros[token])) * factor
        error = abs(Fraction(float(found[token, channel])) - exact)
        assert error <= abs(exact) / (1 << 24)


def test_places_of_a_head_are_whole_words() -> None:
    for lanes, elements in ((2, 4), (4, 4), (8, 16), (16, 16)):
        p = parameters(lanes, elements)
        assert Places(p).keys(1) % (p.units * max(1, lanes // PE_LANES)) == 0
        assert 2 * Places(p).keys(1) == Places(p).keys(2)

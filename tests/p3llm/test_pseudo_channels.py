"""Several pseudo-channels of P3-LLM's system: bytes read independently, and places."""

from dataclasses import replace

import numpy as np
import pytest

from golden.p3llm.dram_image import layer_image
from hdl.catalog import entry_named
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.places import Places
from testbenches.p3llm.system_models import drawn_cache, drawn_weights

PRESETS = entry_named("p3llm").presets


def channels(p: P3llmParameters, *, seed: int = 1) -> tuple:
    """Return a random layer, its cache, and the bytes of each pseudo-channel."""
    rng = np.random.default_rng(seed)
    weights, cache = drawn_weights(p, rng), drawn_cache(p, 45, rng)
    image = layer_image(p, weights, cache)
    assert image.shape == (p.layer_positions, p.pseudo_channels * p.units, 2 * p.elements)
    return weights, cache, np.split(image, p.pseudo_channels, axis=1)


@pytest.mark.parametrize("count", [2, 4])
def test_rows_of_a_matrix_are_distributed_round_robin(count: int) -> None:
    """Rows of `down_proj`, from single nibbles: four outputs per tile, four units."""
    p = replace(PRESETS["tiny"], pseudo_channels=count)
    weights, _cache, banks = channels(p)
    place, matrix = p.matrices["down"], weights.down
    # 64 outputs are 16 tiles; a round has four units of each pseudo-channel.
    assert place.rounds == 4 // count
    groups = matrix.selects.shape[1]
    # Special values precede eight groups, scales precede two; a group has four columns.
    length = -(-groups // 8) + -(-groups // 2) + 4 * groups
    for output, group in ((0, 0), (5, 1), (37, 2), (63, 4)):
        tile, element = divmod(output, 4)
        channel, unit, round_ = tile % count, tile // count % 4, tile // count // 4
        image = banks[channel]
        eight, pair = divmod(group // 2, 4)
        special = place.base + place.rounds + round_ * length + eight * (1 + 4 * 9)
        select = image[special, unit, group % 8].astype(int) >> 2 * element & 3
        assert select == matrix.selects[output, group]
        scales = special + 1 + 9 * pair
        scale = image[scales, unit, 4 * (group % 2) + element]
        assert scale == matrix.steps[output, group]
        assert image[place.base + round_, unit].view("<u2")[element] == matrix.scales[output]
        column = image[scales + 1 + 4 * (group % 2) + 3, unit]
        assert column.tolist() == matrix.columns[tile, group * 4 + 3].tolist()


@pytest.mark.parametrize(("count", "heads"), [(2, 2), (2, 3), (4, 3)])
def test_heads_are_distributed_round_robin(count: int, heads: int) -> None:
    """Pseudo-channels without a head have the last head's bytes."""
    tiny = PRESETS["tiny"]
    p = replace(tiny, pseudo_channels=count, heads=heads, kv_heads=heads)
    _weights, cache, banks = channels(p)
    for number in range(count * -(-heads // count)):
        head, image = min(number, heads - 1), banks[number % count]
        keys = p.key_base(number // count * count)
        values = p.value_base(number // count * count)
        for token, channel in ((0, 0), (17, 6), (44, 15)):
            place = keys + 9 + 4 * (token // 16) + channel // 4
            byte_value = image[place, token // 4 % 4, 2 * (token % 4) + channel % 4 // 2]
            assert byte_value >> 4 * (channel % 2) & 15 == cache.keys[head, token, channel]
            place = values + token // 16 * 5 + 1 + token // 4 % 4
            byte_value = image[place, channel // 4, 2 * (channel % 4) + token % 4 // 2]
            assert byte_value >> 4 * (token % 2) & 15 == cache.values[head, token, channel]


def test_each_pseudo_channel_has_its_share() -> None:
    """Of SmolLM2's rows and heads, a half or a quarter and what does not divide; and of places."""
    p = PRESETS["smollm2"]
    one = Places(p)
    for count, rounds, heads in ((2, (4, 3, 12, 3), 2), (4, (2, 2, 6, 2), 1)):
        several = replace(p, pseudo_channels=count)
        assert tuple(matrix.rounds for matrix in several.matrices.values()) == rounds
        assert several.head_rounds == heads
        assert several.layer_positions < p.layer_positions
        places = Places(several)
        # What a linear layer gives is shared out; a head's scores and scales are not.
        assert places.linear_end == one.linear_end // count
        assert places.scores(1, 1) - places.linear_end == one.scores(1, 1) - one.linear_end
        assert places.inputs_depth == one.inputs_depth
        assert places.numbers_depth == one.numbers_depth

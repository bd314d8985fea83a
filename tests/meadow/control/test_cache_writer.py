"""Results of one and two bytes in words of external memory: every byte at its place, in order."""

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.catalog import entry_named
from hdl.meadow.control.cache_writer import CacheWriter
from hdl.meadow.parameters import MeadowParameters
from hdl.stream.connect import connect_streams
from hdl.unit import Unit
from testbenches.packing import pack, to_integers
from testbenches.stream_trial import check_streams

P: MeadowParameters = entry_named("meadow").parameters("tiny")
PORT = P.writes(P.element.word_layout)


class Writer(Unit):
    """A cache writer whose port is two streams."""

    def __init__(self) -> None:
        super().__init__(
            {
                "blocks": In(stream.Signature(P.blocks_layout)),
                "wide": In(1),
                "results": In(stream.Signature(P.tile.result_layout)),
                "requests": Out(stream.Signature(PORT.request_layout)),
                "words": Out(stream.Signature(PORT.word_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.writer = writer = CacheWriter(parameters=P)
        m.d.comb += writer.wide.eq(self.wide)
        connect_streams(m, self.blocks, writer.blocks)
        connect_streams(m, self.results, writer.results)
        connect_streams(m, writer.cache_writes.requests, self.requests)
        connect_streams(m, writer.cache_writes.words, self.words)
        return m


@pytest.mark.parametrize("wide", [0, 1])
def test_words_have_the_bytes_of_the_results(wide: int) -> None:
    rng = np.random.default_rng(wide)
    bursts, rows, size = 3, 4, P.element.multipliers
    block = {"address": 100, "spacing": 40, "length": rows * (1 + wide), "count": bursts}
    # INT8 results have equal upper bits.
    bits = 8 * (1 + wide)
    results = rng.integers(-(1 << bits - 1), 1 << bits - 1, (bursts * rows, size))
    # The memory of a row is its bytes: the lower ones of all elements, then the upper ones.
    stored = results.astype("<i2").view(np.int8).reshape(-1, size, 2).swapaxes(1, 2)
    words = stored[:, : 1 + wide].reshape(-1, size).astype(np.int64)
    ends = (np.arange(len(words)) + 1) % block["length"] == 0
    last = np.arange(len(results)) == len(results) - 1
    unit = Writer()

    def cycle(ctx: Any, _received: Any) -> None:
        ctx.set(unit.wide, wide)

    requests = [{"address": 100 + 40 * n, "length": block["length"]} for n in range(bursts)]
    check_streams(
        unit,
        {
            "blocks": [_packed(P.blocks_layout, block)],
            "results": _all_packed(P.tile.result_layout, {"word": results, "last": last}),
        },
        {
            "requests": [_packed(PORT.request_layout, request) for request in requests],
            "words": _all_packed(PORT.word_layout, {"word": words, "last": ends}),
        },
        cycle=cycle,
    )


def _all_packed(layout: Any, values: dict[str, Any]) -> list[int]:
    """Return a packed payload per item."""
    return to_integers(pack(layout, values))


def _packed(layout: Any, value: dict[str, int]) -> int:
    """Return one packed payload."""
    return _all_packed(layout, {name: np.array([number]) for name, number in value.items()})[0]

"""Testbench of the prefill selector: SmolLM2's scores of whole texts, ties, extremes, resets."""

from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np

from golden.kelle.eviction.eviction_controller import KEPT
from golden.kelle.eviction.prefill_selector import importances, select
from golden.kelle.eviction.systolic_evictor import quantise_scores
from golden.llm import open_trace
from hdl.kelle.eviction.eviction_parameters import prefill_layout
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import Bench, catalog_parameters
from testbenches.kelle.eviction.prefill_slices import ORDERS, Integers, pack_slices
from testbenches.packing import from_integers, unpack
from testbenches.shared_tests import reset_test

LAYER = 14
QUERIES = 3
"""Query heads that share a key/value head in SmolLM2."""


def prepare(p: PrefillSelectorParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=640, layers=(LAYER,))


def real_scores(p: PrefillSelectorParameters, tokens: int) -> list[Integers]:
    """Return SmolLM2's quantised scores [query heads, queries, tokens] for each head."""
    trace = open_trace(text="prose", tokens=640, layers=(LAYER,))
    heads = []
    for head in range(p.eviction.kv_heads):
        names = [(head * QUERIES + q) % trace.heads for q in range(QUERIES)]
        scores = [trace.attention_trace(LAYER, q).scores[:tokens, :tokens] for q in names]
        heads.append(quantise_scores(np.tril(np.stack(scores)), p.eviction.evictor))
    return heads


def small(run: Run) -> bool:
    """Return whether a text has few scores."""
    return run.parameters.rows <= 8


@dataclass(frozen=True)
class Text:
    """Scores [query heads, queries, tokens] of each head, and the order in which they arrive."""

    heads: list[Integers]
    order: str


class SelectorBench:
    """The streams of the unit, with the golden model."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: PrefillSelectorParameters = catalog_parameters()
        self.bench = Bench(dut, f"{salt} {source} {sink}", timeout=20_000)
        self.rng = self.bench.numpy_rng
        self.scores = self.bench.source("scores", source)
        self.prefill = self.bench.sink("prefill", sink)

    def offer(self, text: Text) -> int:
        """Offer the scores of all heads; return the number of slices."""
        slices = [pack_slices(self.p, head, text.order, self.rng) for head in text.heads]
        for head in slices:
            self.scores.send(head)
        return sum(map(len, slices))

    async def run(self, text: Text) -> int:
        """Reset, select from a layer's scores, and compare; return the cycles."""
        await self.bench.reset()
        _slices, cycles = await self.follow(text)
        return cycles

    async def follow(self, text: Text) -> tuple[int, int]:
        """Select from a further layer's scores and compare; return slices and cycles."""
        p, bench = self.p, self.bench
        wanted = select([importances(head, p.eviction.evictor) for head in text.heads], p.eviction)
        done = len(self.prefill.received)
        slices = self.offer(text)
        cycles = await bench.run(until=lambda: len(self.prefill.received) >= done + len(wanted))
        # Any further token would be one too many.
        for _ in range(4):
            await bench.step()
        self.compare(wanted, self.prefill.received[done:])
        return slices, cycles

    def compare(self, wanted: list[Any], received: list[tuple[int, int]]) -> None:
        """Compare heads, positions, importances and vectors."""
        layout = prefill_layout(self.p.eviction)
        got = unpack(layout, from_integers([payload for _c, payload in received], layout.size))
        vectors = np.where(got["token"]["recomputed"] == 1, got["token"]["vector"], KEPT)
        self.bench.compare(
            "kept tokens",
            np.array([(k.head, k.position, k.importance, k.vector) for k in wanted]),
            np.stack([got["head"], got["token"]["position"], got["importance"], vectors], axis=-1),
            cycles=[cycle for cycle, _payload in received],
        )

    def random_text(self, order: str) -> Text:
        """Return scores of a text of random length: few values, extremes, noise, or all equal."""
        p, rng = self.p, self.rng
        slots = p.eviction.evictor.slots
        most = min(p.prefill_tokens, 4 * slots)
        lengths = [1, slots - 1, slots, slots + 1, most, int(rng.integers(1, most + 1))]
        tokens = min(int(rng.choice(lengths)), most)
        shape = p.eviction.evictor.input_shape
        low, high = (-(1 << shape.width - 1), (1 << shape.width - 1) - 1)
        if not shape.signed:
            low, high = 0, (1 << shape.width) - 1
        heads = []
        for _ in range(p.eviction.kv_heads):
            size = (int(rng.integers(1, 3)), tokens, tokens)
            unit = 1 << p.eviction.evictor.shift
            style = rng.integers(4)
            if style == 0:
                scores = rng.integers(low, high + 1, size)
            elif style == 1:
                scores = rng.choice([low, 0, high], size)
            elif style == 2:
                # Only a token's own score is not 0: few sums, many ties, on both sides of 0.
                few = np.clip([0, unit, 2 * unit, -unit], low, high)
                own = rng.choice(few, size[1])
                scores = np.broadcast_to(np.diag(own), size).copy()
            else:
                scores = np.zeros(size, np.int64)
            heads.append(scores)
        return Text(heads, order)


@cocotb.test()
async def real_prefill(dut: Any) -> None:
    """Select from SmolLM2's scores at full rate, in the documented cycles."""
    unit = SelectorBench(dut, "real")
    p, bench = unit.p, unit.bench
    eviction = p.eviction
    slots, width, heads = eviction.evictor.slots, eviction.evictor.score_width, eviction.kv_heads
    tokens = min(p.prefill_tokens, 640 if bench.context["full"] else 2 * slots)
    await bench.reset()
    slices, cycles = await unit.follow(Text(real_scores(p, tokens), "tiles"))
    # A text within the budget is kept as a whole, without a search.
    kept = min(tokens, slots)
    passes, tiles = (width if tokens > slots else 0), -(-tokens // p.rows)
    wanted = slices + heads * (1 + passes * (tiles + 3) + tokens + 3) + 2 + heads * kept
    assert cycles == wanted, f"cycles must be {wanted}, not {cycles}"
    bench.record(
        cycles=cycles,
        ideal_cycles=slices + heads * (passes * tiles + tokens + kept),
        selection_cycles=cycles - slices,
        tensors=f"SmolLM2 layer {LAYER}: {heads} heads, {tokens} tokens",
    )


@cocotb.test()
@cocotb.parametrize(source=["none", "random"], sink=["none", "random", "adversarial"])
@only_if(small, "wide tiles make texts of millions of scores")
async def random_texts(dut: Any, source: str, sink: str) -> None:
    """Select from texts of all lengths in all orders, back to back: ties, saturation, stalls."""
    unit = SelectorBench(dut, "random texts", source, sink)
    await unit.bench.reset()
    for number in range(3 * len(ORDERS)):
        await unit.follow(unit.random_text(ORDERS[number % len(ORDERS)]))


# While scores arrive, during search and selection, and while tokens are output.
resets = reset_test(
    SelectorBench,
    lambda unit: unit.random_text("chunks"),
    begun=lambda unit: unit.random_text(unit.bench.rng.choice(ORDERS)),
    longest=1500,
    rounds=8,
    pauses=("none", "random"),
    condition=only_if(small, "wide tiles make texts of millions of scores"),
)

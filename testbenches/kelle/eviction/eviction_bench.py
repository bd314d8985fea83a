"""Bench of the eviction controller that acts as its scheduler, with the golden model."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from amaranth.lib import data

from golden.kelle.eviction.aerp import EMPTY
from golden.kelle.eviction.eviction_controller import KEPT, EvictionModel, ScoreUpdate
from golden.kelle.eviction.prefill_selector import Kept
from hdl.kelle.eviction.eviction_parameters import (
    EvictionParameters,
    placement_layout,
    prefill_layout,
    value_layout,
    vector_layout,
    wavefront_layout,
)
from testbenches.bench import Bench, catalog_parameters
from testbenches.kelle.script import Script, ScriptBench, Steps
from testbenches.packing import from_integers, pack, to_integer, unpack


def pack_one(layout: Any, **values: Any) -> int:
    """Pack one value of a layout."""

    def arrays(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: arrays(item) for name, item in value.items()}
        return np.array(value)

    return to_integer(pack(layout, arrays(values)))


class Lanes:
    """Drive lane i of a wavefront's scores i cycles after its start; other lanes have noise."""

    def __init__(self, bench: Bench, p: EvictionParameters) -> None:
        self.bench, self.p = bench, p
        self.started, self.port = bench.dut.started, bench.dut.scores_in
        self.noise = bench.numpy_rng.integers(
            0, 2, (32, p.evictor.rows, p.evictor.input_width), dtype=np.uint8
        )
        self.queue: list[np.ndarray] = []
        self.flying: list[np.ndarray | None] = [None] * self.p.evictor.rows
        self.clear()

    def clear(self) -> None:
        """Discard all wavefronts."""
        self.queue = []
        self.flying = [None] * self.p.evictor.rows

    def drive(self) -> None:
        """Drive the lanes of all wavefronts in flight; the next wavefront waits on lane 0."""
        rows = self.noise[self.bench.cycle % len(self.noise)].copy()
        flying = [self.queue[0] if self.queue else None, *self.flying[:-1]]
        for i, bits in enumerate(flying):
            if bits is not None:
                rows[i] = bits[i]
        self.flying = flying
        self.port.value = to_integer(rows.reshape(-1))

    def sample(self) -> None:
        """Remove the first wavefront of the queue if it has started."""
        if int(self.started.value):
            self.queue.pop(0)
        else:
            self.flying[0] = None


class Lookups:
    """Request lookups of slots at any time, which must affect nothing else."""

    def __init__(self, bench: Bench, source: Any, addresses: int) -> None:
        self.source, self.rng, self.addresses = source, bench.rng, addresses
        self.active = False

    def clear(self) -> None:
        """Stop the requests."""
        self.active = False

    def drive(self) -> None:
        """Request a random tile."""
        if self.active and self.source.idle:
            self.source.send([self.rng.randrange(self.addresses)])

    def sample(self) -> None:
        """Record nothing."""


@dataclass
class Expected:
    """Expected outputs of the golden model, in order."""

    placements: list[tuple[int, ...]] = field(default_factory=list)
    values: list[tuple[int, int]] = field(default_factory=list)
    stores: list[tuple[int, int]] = field(default_factory=list)
    score_updates: list[ScoreUpdate] = field(default_factory=list)


class Decode(ScriptBench):
    """A bench that acts as the scheduler, with the golden model.

    Later inputs depend on the placements, so that work is a script.
    """

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: EvictionParameters = catalog_parameters()
        p = self.p
        self.bench = bench = Bench(dut, f"{salt} {source} {sink}")
        self.script = Script(bench)
        self.dut = dut
        # Begin with the last layer, so that logic that ignores the layer is detected.
        self.layer = p.layers - 1
        self.positions = 1 << p.position_bits
        dut.layer.value = self.layer
        self.wavefronts = bench.source("wavefronts", source)
        self.prefills = bench.source("prefill", source)
        self.clears = bench.source("clears", source)
        # A token may be offered long after the wavefronts of its step.
        self.tokens = bench.source("positions", "none" if source == "none" else "bursty")
        self.lookup_request = bench.source("lookup_request")
        self.vector_request = bench.source("vector_request")
        self.lookups = bench.add(Lookups(bench, self.lookup_request, p.kv_heads * p.tiles))
        self.lanes = bench.add(Lanes(bench, p))
        self.placements = bench.sink("placements", sink)
        self.values = bench.sink("values", sink)
        self.stores = bench.sink("vector_stores", sink)
        # The refresh controllers are always ready.
        self.scores = bench.sink("scores")
        self.forget()

    async def reset(self) -> None:
        """Reset everything."""
        await self.bench.reset()
        self.forget()

    def forget(self) -> None:
        """Begin with models whose slots are empty."""
        self.models = [EvictionModel(self.p, layer) for layer in range(self.p.layers)]
        self.expected = Expected()

    @property
    def model(self) -> EvictionModel:
        """Model of the current layer."""
        return self.models[self.layer]

    def choose(self, layer: int) -> Steps:
        """Change the layer, as soon as the controller accepts a token."""
        yield lambda: bool(self.dut.positions_ready.value)
        self.layer = layer
        self.dut.layer.value = layer

    def offer(self, work: Steps) -> None:
        """Start work after a reset."""
        self.forget()
        super().offer(work)

    async def prefill(self, kept: list[Kept]) -> None:
        """Load the tokens that a prefill keeps."""
        layout = prefill_layout(self.p)
        for token in kept:
            self.expected.score_updates += self.model.prefill(
                token.head, token.position, token.importance, token.vector
            )
            fields = {
                "position": token.position,
                "recomputed": int(token.vector != KEPT),
                "vector": max(token.vector, 0),
            }
            self.prefills.send(
                [pack_one(layout, head=token.head, token=fields, importance=token.importance)]
            )
        await self.bench.run(until=lambda: self.prefills.idle)

    def send_search(self, head: int, scores: np.ndarray, fresh: int | None = None) -> None:
        """Send the wavefronts of all tiles of a head, one per query head and tile."""
        p, rows = self.p, self.p.evictor.rows
        for tile in range(p.tiles):
            here = fresh is not None and fresh // rows == tile
            for query in range(len(scores)):
                last = query == len(scores) - 1
                self.send_wavefront(
                    scores[query, tile * rows : (tile + 1) * rows],
                    head=head,
                    tile=tile,
                    load=int(query == 0),
                    compare=int(last),
                    last=int(last and tile == p.tiles - 1),
                    fresh=int(here),
                    alone=0,
                    row=fresh % rows if here and fresh is not None else 0,
                )

    def send_wavefront(self, scores: np.ndarray, **header: int) -> None:
        """Send a wavefront, and queue its scores for the lanes."""
        self.wavefronts.send([pack_one(wavefront_layout(self.p), **header)])
        self.lanes.queue.append(pack(self.p.evictor.input_shape, scores))

    def send_own(self, head: int, slot: int, scores: np.ndarray) -> None:
        """Send the arriving token's own scores."""
        rows = self.p.evictor.rows
        for query, score in enumerate(scores):
            lanes = np.zeros(rows, np.int64)
            lanes[slot % rows] = score
            last = int(query == len(scores) - 1)
            self.send_wavefront(
                lanes,
                head=head,
                tile=slot // rows,
                load=int(query == 0),
                compare=last,
                last=0,
                fresh=1,
                alone=1,
                row=slot % rows,
            )

    async def step(self, now: int, plan: list[np.ndarray]) -> None:
        """Decode a token; `plan` has the scores [queries, positions] of each head."""
        await self.script.run(self.decode(now, plan))

    def decode(self, now: int, plan: list[np.ndarray], *, streamed: bool = False) -> Steps:
        """Return the steps that decode a token, with a plan as in `step`.

        With `streamed`, the search of a head does not wait for the placement of the previous head.
        """
        p, model, bench = self.p, self.model, self.bench
        self.tokens.send([now])
        placed = []
        # Number of heads that are searched before the first of them receives its own score.
        group = p.kv_heads if streamed or p.evict_before else 1
        for first in range(0, p.kv_heads, group):
            heads = range(first, first + group)
            for head in heads:
                if not p.evict_before:
                    self.search_cached(head, plan[head], now)
            placed += [self.expect_place(now, head) for head in heads]
            yield lambda: len(self.placements.received) >= len(self.expected.placements)
            for head in heads:
                if not p.evict_before:
                    slot, own = placed[head].slot, plan[head][:, now % plan[head].shape[1]]
                    self.send_own(head, slot, own)
                    self.expected.score_updates += model.own(head, slot, own)
        step = model.decide(now, placed)
        self.expected.score_updates += step.score_updates
        if step.store:
            self.expected.stores.append(step.store)
        if p.evict_before:
            for head in range(p.kv_heads):
                given = self.given(head, plan[head])
                self.send_search(head, given, fresh=placed[head].slot)
                self.expected.score_updates += model.search(head, given, now + 1, placed[head].slot)
        yield lambda: self.wavefronts.idle and self.tokens.idle
        end = bench.cycle + p.evictor.rows + 4
        yield lambda: bench.cycle >= end

    def end_text(self) -> Steps:
        """Return the steps that end the text: all slots and vectors become free."""
        # The last requested vector is reported first.
        yield lambda: len(self.stores.received) >= len(self.expected.stores)
        self.clears.send([self.layer])
        self.expected.score_updates += self.model.clear()
        yield lambda: self.clears.idle

    def search_cached(self, head: int, scores: np.ndarray, now: int) -> None:
        """Send a head's search by scores [queries, positions]."""
        given = self.given(head, scores)
        self.send_search(head, given)
        self.expected.score_updates += self.model.search(head, given, now)

    def given(self, head: int, scores: np.ndarray) -> np.ndarray:
        """Return the scores of a head's slots, from scores [queries, positions], cyclically."""
        cached = self.model.heads[head].positions
        return np.where(cached != EMPTY, scores[:, np.maximum(cached, 0) % scores.shape[1]], 0)

    def expect_place(self, now: int, head: int) -> Any:
        """Place the token in the golden model, and record the expected outputs."""
        place, score_updates = self.model.place(now, head)
        self.expected.score_updates += score_updates
        evicts = int(place.evicted != EMPTY)
        recomputed = int(place.vector != KEPT)
        shown = (max(place.evicted, 0), recomputed, max(place.vector, 0)) if evicts else (0, 0, 0)
        self.expected.placements.append((head, place.slot, evicts, *shown))
        self.expected.values.append((head, place.slot))
        return place

    async def check(self) -> None:
        """Wait for the values and stores, then read all slots back and compare everything."""
        p, bench = self.p, self.bench
        expected = self.expected
        self.lookups.active = False
        await bench.run(
            until=lambda: (
                len(self.values.received) >= len(expected.values)
                and len(self.stores.received) >= len(expected.stores)
            )
        )
        for _ in range(2 * p.vector_entries + 8):
            await bench.step()
        self.compare_stream("placements", placement_layout(p), self.placements, expected.placements)
        self.compare_stream("values", value_layout(p), self.values, expected.values)
        got = [payload for _cycle, payload in self.stores.received]
        stores = unpack(p.promoted_layout, from_integers(got, p.promoted_layout.size))
        bench.compare(
            "vector stores",
            np.array(expected.stores, np.int64).reshape(-1, 2),
            np.stack([stores["position"], stores["vector"]], axis=-1),
        )
        got = [payload for _cycle, payload in self.scores.received]
        score_updates = unpack(p.score_layout, from_integers(got, p.score_layout.size))
        found = np.stack(
            [score_updates["entry"], score_updates["score"], score_updates["valid"]], axis=-1
        )
        wanted = np.array(expected.score_updates, np.int64).reshape(-1, 3)
        # Updates of vectors use the gaps between those of slots; each kind has its own order.
        slots = p.stored_heads * p.evictor.slots
        for what, inside in (
            ("slots", lambda a: a[:, 0] < slots),
            ("vectors", lambda a: a[:, 0] >= slots),
        ):
            bench.compare(f"scores of {what}", wanted[inside(wanted)], found[inside(found)])
        no_victim = bool(self.dut.no_victim.value)
        missing = any(model.no_victim for model in self.models)
        bench.compare("no victim", np.array([missing]), np.array([no_victim]))
        for layer, model in enumerate(self.models):
            await self.compare_slots(layer, model)

    def compare_stream(self, what: str, layout: Any, sink: Any, wanted: list[Any]) -> None:
        """Compare the flattened structs of a stream with tuples."""
        got = unpack(layout, from_integers([x for _c, x in sink.received], layout.size))
        if "evicted" in got:
            evicts = got["evicts"]
            recomputed = got["evicted"]["recomputed"] * evicts
            columns = [
                got["head"],
                got["slot"],
                evicts,
                got["evicted"]["position"] * evicts,
                recomputed,
                got["evicted"]["vector"] * recomputed,
            ]
        else:
            columns = [got["head"], got["slot"]]
        self.bench.compare(what, np.array(wanted, np.int64), np.stack(columns, axis=-1))

    async def compare_slots(self, layer: int, model: EvictionModel) -> None:
        """Read every slot of a layer through the lookup port, and its table of vectors."""
        p, bench = self.p, self.bench
        rows = p.evictor.rows
        for head, h in enumerate(model.heads):
            for tile in range(p.tiles):
                self.lookup_request.send([(layer * p.kv_heads + head) * p.tiles + tile])
                await bench.run(until=lambda: self.lookup_request.idle)
                bits = from_integers(
                    [int(self.dut.lookup_response.value)], rows * p.token_layout.size
                )
                shown = {
                    name: values[0]
                    for name, values in unpack_rows(p.token_layout, bits, rows).items()
                }
                here = slice(tile * rows, (tile + 1) * rows)
                used = h.positions[here] != EMPTY
                vector = np.where(shown["recomputed"] == 1, shown["vector"], KEPT)
                bench.compare("positions", h.positions[here][used], shown["position"][used])
                bench.compare("vectors of slots", h.recomputed[here][used], vector[used])
        if p.vectors:
            layout = vector_layout(p)
            self.vector_request.send([layer])
            await bench.run(until=lambda: self.vector_request.idle)
            bits = from_integers([int(self.dut.vector_response.value)], p.vectors * layout.size)
            got = {name: values[0] for name, values in unpack_rows(layout, bits, p.vectors).items()}
            wanted = np.array([-1 if v is None else v[0] for v in model.vectors])
            bench.compare(
                "stored vectors", wanted, np.where(got["valid"] == 1, got["position"], -1)
            )


def unpack_rows(layout: Any, bits: np.ndarray, rows: int) -> dict[str, np.ndarray]:
    """Unpack an array of structs into one array per field, [items, rows]."""
    return unpack(data.ArrayLayout(layout, rows), bits)

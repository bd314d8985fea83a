"""Memory outside a tile: the data of all heads; it answers requests in order."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
from amaranth.hdl import Shape

from golden.lad.lad_tile import Head, Step
from golden.lad.lad_tiles import place
from golden.lad.traffic import CLASSES, traffic
from hdl.lad.parameters import LadTileParameters, LadTilesParameters
from testbenches.bench import Bench
from testbenches.lad.stored_heads import ROWS
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.streams import read

REQUESTS = (
    "group_requests",
    "key_requests",
    "active_requests",
    "counter_requests",
    "cache_requests",
)
WRITES = ("appends", "centres", "marks", "counters", "columns")

CARRIED = {
    "groups": {"G read": ("centres", "ratios", "modes", "counts")},
    "keys": {"K of C and M": ("key",), "G read": ("norm",)},
    "active": {"K, V of J": ("key", "value")},
    "tallies": {"CNT read": ("counters",)},
    "caches": {"A to F read": ("word",)},
    "appends": {"appends": ("key", "value")},
    "centres": {"G written": ("centre", "norm", "ratio")},
    "marks": {"G written": ("modes", "counts")},
    "counters": {"CNT written": ("counters",)},
    "columns": {"A to F written": ("word",)},
}
"""Words of each stream except for addresses, by purpose."""


class Outside:
    """The rows of all heads, connected to a tile's streams.

    A request is answered with the content of the memory at that time; writes of the same cycle are
    not visible. This is the least that a tile may rely on.

    Parameters
    ----------
    bench : Bench
        Bench that moves the streams.
    p : LadTileParameters
        Dimensions of the tile.
    source, sink : str
        Stall patterns of answers, and of requests and writes.
    shared : LadTilesParameters, optional
        Number of tiles, to which the heads are assigned round-robin.
    """

    def __init__(
        self,
        bench: Bench,
        p: LadTileParameters,
        source: str,
        sink: str,
        *,
        shared: LadTilesParameters | None = None,
    ) -> None:
        self.p, self.bench, self.shared = p, bench, shared
        self.tiles = shared.tiles if shared else 1
        self.sources = {
            name: bench.source(name, source)
            for name in ("groups", "keys", "active", "tallies", "caches")
        }
        self.sinks = {name: bench.sink(name, sink) for name in (*REQUESTS, *WRITES)}
        self.layouts = {
            "group_requests": p.group_request_layout,
            "key_requests": p.row_request_layout,
            "active_requests": p.row_request_layout,
            "counter_requests": p.row_request_layout,
            "cache_requests": p.head_layout,
            "appends": p.append_layout,
            "centres": p.centre_layout,
            "marks": p.marks_layout,
            "counters": p.counters_layout,
            "columns": p.column_layout,
            "groups": p.eas.group_layout,
            "keys": p.key_layout,
            "active": p.active_layout,
            "tallies": p.tally_layout,
            "caches": p.ac.cache_layout,
        }
        for name in (*REQUESTS, *WRITES):
            self.layouts[name] = self.named(self.layouts[name])
        self.heads: list[Head] = []
        self.seen = dict.fromkeys(self.sinks, 0)
        self.before = dict(self.seen)
        self.column = [0] * self.tiles
        self.bandwidth = self.credit = 0
        self.waiting: deque[tuple[str, int]] = deque()
        self.clear()
        bench.add(self)

    def limit(self, bits: int) -> None:
        """Transfer at most `bits` per cycle on average, reads and writes of all streams together.

        Rows follow each other in the order of their requests. Addresses do not count, and a
        transfer that exceeds a cycle's bits delays the next ones.
        """
        self.bandwidth = bits

    def _bits(self, name: str) -> int:
        """Return the bits of a stream's payload that count as words."""
        members = self.layouts[name].members
        fields = (field for part in CARRIED.get(name, {}).values() for field in part)
        return sum(Shape.cast(members[field]).width for field in fields)

    def clear(self) -> None:
        """Discard everything; rows that were never written are noise, except for the caches."""
        p, rng = self.p, self.bench.numpy_rng
        self.seen = {name: len(sink.received) for name, sink in self.sinks.items()}
        self.before = dict(self.seen)
        self.column = [0] * self.tiles
        self.credit = 0
        self.waiting.clear()
        self.heads = [Head.empty(p) for _ in range(p.stored_heads * self.tiles)]
        for head in self.heads:
            for name, high in (
                ("keys", 1 << 16),
                ("values", 1 << 16),
                ("centres", 1 << p.eas.position_bits),
                ("norms", 1 << 16),
                ("ratios", 1 << 16),
                ("modes", 16),
                ("counts", 4096),
                ("counters", 4096),
            ):
                array = getattr(head, name)
                array[:] = rng.integers(0, high, array.shape).astype(array.dtype)

    def named(self, layout: Any) -> Any:
        """Return a payload with the tile's number."""
        return self.shared.named(layout) if self.shared else layout

    def place(self, number: Any) -> dict[str, Any]:
        """Return the fields that identify heads."""
        return vars(place(self.shared, number)) if self.shared else {"head": number}

    def number(self, row: Any) -> Any:
        """Return the indices of the heads of rows."""
        return row["head"] * self.tiles + row["tile"] if self.shared else row["head"]

    def head(self, row: Any) -> Head:
        """Return the head of a row."""
        return self.heads[int(self.number(row)[0])]

    def load(self, heads: list[Head]) -> None:
        """Load the data of a model's heads."""
        for ours, theirs in zip(self.heads, heads, strict=True):
            n = ours.length = theirs.length
            for name in (*ROWS, "counters"):
                getattr(ours, name)[:n] = getattr(theirs, name)[:n]
            ours.caches[:] = theirs.caches

    @property
    def carried(self) -> Counter[str]:
        """Bits transferred since the last reset, by purpose."""
        bits = Counter[str]()
        for name, parts in CARRIED.items():
            if name in self.sources:
                payloads = self.sources[name].taken
            else:
                payloads = len(self.sinks[name].received) - self.before[name]
            for what, fields in parts.items():
                shapes = [self.layouts[name].members[field] for field in fields]
                bits[what] += payloads * sum(Shape.cast(shape).width for shape in shapes)
        return bits

    def check(self, heads: list[Head], steps: list[Step]) -> None:
        """Compare the data with that of a model's heads, and the traffic with that of its steps."""
        carried, expected = self.carried, traffic(self.p, steps)
        for what in CLASSES:
            self.bench.compare(what, np.array([expected[what]]), np.array([carried[what]]))
        self._check_hits(steps)
        for ours, theirs in zip(heads, self.heads, strict=True):
            n = ours.length
            for name in ROWS:
                self.bench.compare(name, getattr(ours, name)[:n], getattr(theirs, name)[:n])
            # The mode's own counter is stale outside; its value is the count next to the mode.
            own = np.arange(self.p.table.intervals) == ours.modes[:n, np.newaxis]
            for_all = [np.where(own, 0, head.counters[:n]) for head in (ours, theirs)]
            self.bench.compare("counters", *for_all)
            self.bench.compare("caches", ours.caches, theirs.caches, show=hex)

    def _check_hits(self, steps: list[Step]) -> None:
        """Compare the counters of requested positions that were on chip, and that were not."""
        if not self.p.prefetched:
            return
        hits = sum(step.hits for step in steps)
        expected = np.array([hits, sum(len(step.active) for step in steps) - hits])
        shown = np.array([read(getattr(self.bench.dut, name)) for name in ("hits", "misses")])
        self.bench.compare("hits and misses", expected, shown)

    def drive(self) -> None:
        """Do nothing: the streams drive themselves."""

    def sample(self) -> None:
        """Answer the requests, then store the writes."""
        steps: dict[str, Callable[[Any], None]] = {
            "group_requests": self._groups,
            "key_requests": self._key,
            "active_requests": self._active,
            "counter_requests": self._tally,
            "cache_requests": self._caches,
            "appends": self._append,
            "centres": self._centre,
            "marks": self._marks,
            "counters": self._counters,
            "columns": self._column,
        }
        for name, act in steps.items():
            received = self.sinks[name].received
            for _cycle, payload in received[self.seen[name] :]:
                layout = self.layouts[name]
                act(unpack(layout, from_integers([payload], layout.size)))
                self.credit -= self._bits(name)
            self.seen[name] = len(received)
        self._transfer()

    def _send(self, name: str, layout: Any, value: Any) -> None:
        rows = to_integers(pack(layout, value))
        if self.bandwidth:
            self.waiting.extend((name, row) for row in rows)
        else:
            self.sources[name].send(rows)

    def _transfer(self) -> None:
        """Send the oldest rows while bandwidth is left in this cycle; none is saved for later."""
        self.credit = min(self.credit, 0) + self.bandwidth
        while self.waiting and self.credit > 0:
            name, row = self.waiting.popleft()
            self.sources[name].send([row])
            self.credit -= self._bits(name)

    def _groups(self, request: Any) -> None:
        head, lanes = self.head(request), self.p.apid.lanes
        size = -(-int(request["length"][0]) // lanes) * lanes
        fields = {}
        for name in ("centres", "ratios", "modes", "counts"):
            padded = np.zeros(size, np.int64)
            there = min(size, self.p.slots)
            padded[:there] = getattr(head, name)[:there]
            fields[name] = padded.reshape(-1, lanes)
        self._send("groups", self.p.eas.group_layout, fields)

    def _place(self, request: Any) -> tuple[Head, slice]:
        position = int(request["position"][0])
        return self.head(request), slice(position, position + 1)

    def _key(self, request: Any) -> None:
        head, at = self._place(request)
        self._send("keys", self.p.key_layout, {"key": head.keys[at], "norm": head.norms[at]})

    def _active(self, request: Any) -> None:
        head, at = self._place(request)
        row = {"key": head.keys[at], "value": head.values[at]}
        self._send("active", self.p.active_layout, row)

    def _tally(self, request: Any) -> None:
        head, at = self._place(request)
        self._send("tallies", self.p.tally_layout, {"counters": head.counters[at]})

    def _caches(self, request: Any) -> None:
        head = self.head(request)
        self._send("caches", self.p.ac.cache_layout, {"word": head.caches})

    def _append(self, row: Any) -> None:
        head, at = self._place(row)
        head.keys[at], head.values[at] = row["key"], row["value"]
        head.length = at.stop

    def _centre(self, row: Any) -> None:
        head, at = self._place(row)
        head.centres[at], head.norms[at], head.ratios[at] = (
            row[name] for name in ("centre", "norm", "ratio")
        )

    def _marks(self, row: Any) -> None:
        head, lanes = self.head(row), self.p.apid.lanes
        start = int(row["group"][0]) * lanes
        for name in ("modes", "counts"):
            array = getattr(head, name)
            array[start : start + lanes] = row[name][0][: len(array) - start]

    def _counters(self, row: Any) -> None:
        head, at = self._place(row)
        head.counters[at] = row["counters"]

    def _column(self, row: Any) -> None:
        # Columns of different tiles can be interleaved.
        tile = int(row["tile"][0]) if self.shared else 0
        self.head(row).caches[self.column[tile]] = row["word"][0].astype(np.uint64)
        self.column[tile] = 0 if row["last"][0] else self.column[tile] + 1

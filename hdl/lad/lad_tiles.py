# amaranth: UnusedElaboratable=no
"""Several LAD tiles that share a memory, with linear layers on all of them."""

from amaranth.hdl import Array, Module, Shape, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.active_union import COUNTER_BITS
from hdl.lad.control.shared_reads import SharedReads, SharedReadsParameters
from hdl.lad.control.step_sharing import StepSharing
from hdl.lad.control.steps_in_flight import MOST_STEPS
from hdl.lad.control.task_sharing import TaskSharing
from hdl.lad.lad_tile import LadTile
from hdl.lad.parameters import LadTilesParameters
from hdl.stream.arbiter import Arbiter
from hdl.stream.connect import connect_handshake, connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

READS = {
    "group_requests": "groups",
    "key_requests": "keys",
    "active_requests": "active",
    "counter_requests": "tallies",
    "cache_requests": "caches",
}
"""Requests and their answers."""

WRITES = ("appends", "centres", "marks", "counters", "columns")
"""Streams of a tile to the memory."""

ROWS_WAITING = 64
"""Largest number per tile of keys, active positions or counters requested and not transferred."""

FUNCTIONS = ("vectors", "factors", "addends", "results")
"""Streams of the special function module."""


class LadTiles(Unit):
    """Several tiles that share a memory, each with its own heads.

    Every payload with a tile's head also has its `tile`. Steps begin in their order, each in the
    tile of its head, and outputs are in the same order; otherwise the tiles are independent. All
    tiles share each stream to and from the memory, round-robin. Linear layers are computed by all
    tiles, norms and other functions by the first one.

    **Latency** that of a tile, and at most 8 cycles more. **Throughput** per tile one step per
    interval of its slowest stage, provided that the memory's streams are fast enough for all tiles.

    **Numerics** those of the tile. LAD, Section IV, Figures 4 and 6.

    Parameters
    ----------
    parameters : LadTilesParameters
        Number and dimensions of the tiles.

    Members
    -------
    steps, outputs : stream
        As in `LadTile`, with the `tile`.
    tasks, inputs, weights, sums : stream
        As in `LinearModule`; a task is that of `TaskSharing`.
    vectors, factors, addends, results : stream
        As in `LadTile`.
    appends, group_requests, key_requests, active_requests, counter_requests : Out(stream)
        As in `LadTile`, with the `tile`.
    cache_requests : Out(stream)
        As in `LadTile`, with the `tile`.
    groups, keys, active, tallies, caches : In(stream)
        As in `LadTile`.
    centres, marks, counters, columns : Out(stream)
        As in `LadTile`, with the `tile`.
    coming : In(stream)
        As in `LadTile`, with the `tile`.
    hits, misses : Out(32)
        Sums over all tiles.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `LadTilesParameters`.
    """

    def __init__(self, *, parameters: LadTilesParameters) -> None:
        self.parameters = p = parameters
        self.tiles = [LadTile(parameters=p.tile) for _ in range(p.tiles)]
        members = dict(self.tiles[0].signature.members)
        # Payloads with a head also have its tile; answers are matched by the order of the requests.
        for name in ("steps", "coming"):
            if name in members:
                layout = getattr(p.tile, {"coming": "head_layout"}.get(name, "step_layout"))
                members[name] = In(stream.Signature(p.named(layout)))
        for name in (*READS, *WRITES, "outputs"):
            layout = getattr(self.tiles[0], name).payload.shape()
            members[name] = Out(stream.Signature(p.named(layout)))
        members["tasks"] = In(stream.Signature(p.task_layout))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Connect the tiles through arbiters and shared reads, a single tile directly."""
        m = Module()
        for number, tile in enumerate(self.tiles):
            m.submodules[f"tile_{number}"] = tile
        if len(self.tiles) == 1:
            self._alone(m)
            return m
        self._steps(m)
        self._reads(m)
        self._writes(m)
        self._linear(m)
        for name in FUNCTIONS[:-1]:
            connect_streams(m, getattr(self, name), getattr(self.tiles[0], name))
        connect_streams(m, self.tiles[0].results, self.results)
        if self.parameters.tile.prefetched:
            self._coming(m)
        return m

    def _alone(self, m: Module) -> None:
        """Connect a single tile; its number has no bits."""
        (tile,) = self.tiles
        for name, member in tile.signature.members.items():
            ours, theirs = getattr(self, name), getattr(tile, name)
            if member.is_port:
                m.d.comb += ours.eq(theirs)
                continue
            source, sink = (theirs, ours) if member.flow is Out else (ours, theirs)
            m.d.comb += Value.cast(sink.payload).eq(Value.cast(source.payload))
            connect_handshake(m, source, sink)

    def _steps(self, m: Module) -> None:
        """Distribute the steps, and collect the outputs in order."""
        m.submodules.steps = sharing = StepSharing(parameters=self.parameters)
        connect_streams(m, self.steps, sharing.steps)
        connect_streams(m, sharing.outputs, self.outputs)
        for number, tile in enumerate(self.tiles):
            connect_streams(m, sharing.tile_steps[number], tile.steps)
            connect_streams(m, tile.outputs, sharing.tile_outputs[number])

    def _coming(self, m: Module) -> None:
        """Send each tile the heads of its next steps; add up the counters of all tiles."""
        p, coming = self.parameters, self.coming
        ready = []
        for number, tile in enumerate(self.tiles):
            m.submodules[f"coming_{number}"] = heads = Fifo(
                shape=p.tile.head_layout, depth=MOST_STEPS
            )
            connect_streams(m, heads.sink, tile.coming)
            mine = coming.payload.tile == number
            m.d.comb += [
                heads.source.payload.head.eq(coming.payload.head),
                heads.source.valid.eq(coming.valid & mine),
            ]
            ready.append(heads.source.ready)
        m.d.comb += coming.ready.eq(Array(ready)[coming.payload.tile])
        for name in ("hits", "misses"):
            counted = Signal(COUNTER_BITS, name=f"all_{name}")
            m.d.sync += counted.eq(sum(getattr(tile, name) for tile in self.tiles))
            m.d.comb += getattr(self, name).eq(counted)

    def _reads(self, m: Module) -> None:
        """Share the requests and answers of each kind."""
        p = self.parameters
        rows = (ROWS_WAITING, 1)
        # Number of answers per tile with reserved room, and largest number of parts of an answer.
        rooms = ((2, p.tile.apid.groups), rows, rows, rows, (1, p.tile.ac.columns))
        for (request, answer), (waiting, parts) in zip(READS.items(), rooms, strict=True):
            asks, gives = (
                getattr(self.tiles[0], name).payload.shape() for name in (request, answer)
            )
            # The number of groups of G depends on the length of the step.
            by_length = request == "group_requests"
            reads = SharedReadsParameters(
                request_bits=Shape.cast(asks).width,
                answer_bits=Shape.cast(gives).width,
                tiles=p.tiles,
                waiting=waiting,
                parts=parts,
                step=p.tile.apid.lanes if by_length else 1,
            )
            m.submodules[request] = shared = SharedReads(parameters=reads)
            for number, tile in enumerate(self.tiles):
                asked, port = shared.asked[number], getattr(tile, request)
                m.d.comb += [
                    asked.payload["item"].eq(port.payload),
                    asked.payload.amount.eq(port.payload.length if by_length else parts),
                    asked.valid.eq(port.valid),
                    port.ready.eq(asked.ready),
                ]
                connect_streams(m, shared.answered[number], getattr(tile, answer))
            sent = shared.requests.payload
            item = data.View(asks, sent["item"])
            self._named(m, shared.requests, getattr(self, request), item, sent.tile)
            connect_streams(m, getattr(self, answer), shared.fetched)

    def _writes(self, m: Module) -> None:
        """Share the streams that write."""
        for name in WRITES:
            # No register: a tile's write must reach the memory before the tile's next request.
            shape = getattr(self.tiles[0], name).payload.shape()
            m.submodules[name] = turns = Arbiter(shape=shape, sources=len(self.tiles))
            for number, tile in enumerate(self.tiles):
                port, source = getattr(tile, name), turns.sources[number]
                m.d.comb += [
                    source.payload["item"].eq(port.payload),
                    source.valid.eq(port.valid),
                    port.ready.eq(source.ready),
                ]
            sent = turns.sink.payload
            self._named(m, turns.sink, getattr(self, name), sent["item"], sent.source)

    def _named(
        self,
        m: Module,
        source: stream.Interface,
        sink: stream.Interface,
        item: data.View,
        tile: Value,
    ) -> None:
        """Connect a shared stream, adding the tile's number to the payload."""
        members = dict(iter(item.shape()))
        m.d.comb += [getattr(sink.payload, name).eq(item[name]) for name in members]
        m.d.comb += sink.payload.tile.eq(tile)
        connect_handshake(m, source, sink)

    def _linear(self, m: Module) -> None:
        """Share the linear layers."""
        m.submodules.linear = sharing = TaskSharing(parameters=self.parameters)
        connect_streams(m, self.tasks, sharing.tasks)
        for number, tile in enumerate(self.tiles):
            connect_streams(m, sharing.tile_tasks[number], tile.tasks)
            connect_streams(m, tile.sums, sharing.tile_sums[number])
        connect_streams(m, sharing.sums, self.sums)
        for name in ("inputs", "weights"):
            whole = getattr(self, name)
            connect_handshake(m, whole, getattr(sharing, name))
            for number, tile in enumerate(self.tiles):
                port = getattr(tile, name)
                connect_handshake(m, getattr(sharing, f"tile_{name}")[number], port)
                m.d.comb += port.payload.eq(whole.payload)

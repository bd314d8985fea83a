"""Linear layers on the vector units of all tiles: groups of rows are assigned round-robin."""

from dataclasses import dataclass

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, Signature

from hdl.lad.parameters import LadTilesParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import every
from hdl.unit import Unit


class Handshake(Signature):
    """Valid and ready of a stream whose payload is wired elsewhere."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "ready": In(1)})


@dataclass(frozen=True)
class _Turn:
    """The tile in turn, and whether it has the task's last group of rows."""

    tile: Signal
    last: Signal


class TaskSharing(Unit):
    """Let all tiles multiply the same inputs by different rows of one matrix.

    Groups of rows are assigned to the tiles round-robin, and so are the weights, slice by slice:
    while one tile uses a transfer for all samples of a batch, the next tiles receive theirs. Sums
    are output in the order of the groups.

    **Latency** 0 cycles. **Throughput** one transfer of weights per cycle.

    Parameters
    ----------
    parameters : LadTilesParameters
        Number of tiles, and payloads.

    Members
    -------
    tasks : In(stream)
        As in `LinearModule`; `groups` is that of the first tile; the next `more` tiles have as many
        groups, all others one less.
    inputs, weights : In(Handshake)
        Valid and ready of these streams of `LinearModule`, for one module with the units of all
        tiles. Their payloads go directly to every tile: copies of the published 14,336 bits of
        weights for six tiles would exceed the 65,536 output bits that Amaranth allows a module.
    sums : Out(stream)
        As in `LinearModule`, in the order of the groups.
    tile_tasks : Out(stream).array(tiles)
        Tasks of each tile.
    tile_inputs, tile_weights : Out(Handshake).array(tiles)
        The tiles that receive an input or a transfer of weights.
    tile_sums : In(stream).array(tiles)
        Sums of each tile.
    """

    def __init__(self, *, parameters: LadTilesParameters) -> None:
        self.parameters = p = parameters
        linear = p.tile.linear
        super().__init__(
            {
                "tasks": In(stream.Signature(p.task_layout)),
                "sums": Out(stream.Signature(linear.output_layout)),
                "tile_tasks": Out(stream.Signature(linear.task_layout)).array(p.tiles),
                "tile_sums": In(stream.Signature(linear.output_layout)).array(p.tiles),
            }
            | {name: In(Handshake()) for name in ("inputs", "weights")}
            | {f"tile_{name}": Out(Handshake()).array(p.tiles) for name in ("inputs", "weights")}
        )

    def elaborate(self, platform: object) -> Module:
        """Distribute the task, broadcast its inputs, assign its weights; collect the sums."""
        m = Module()
        p = self.parameters
        task, tasks = self.tasks.payload, self.tasks
        # Sums are collected while the next task can already be in progress.
        m.submodules.collected = collected = MemoryFifo(shape=p.task_layout, depth=2)
        noted = Signal()
        notes = tasks.valid & ~noted & collected.source.ready
        m.d.comb += [
            collected.source.valid.eq(tasks.valid & ~noted),
            collected.source.payload.eq(task),
        ]
        # A tile has completed its task when its last product has begun.
        done = [Signal(name=f"done_{number}") for number in range(p.tiles)]
        ends = []
        has = [self._has(task, number) for number in range(p.tiles)]
        for number, tile in enumerate(self.tile_tasks):
            m.d.comb += [
                Value.cast(tile.payload).eq(Value.cast(task)),
                tile.payload.groups.eq(task.groups - self._less(task, number)),
                tile.valid.eq(tasks.valid & noted & has[number] & ~done[number]),
            ]
            ends.append(done[number] | ~has[number] | (tile.valid & tile.ready))
        m.d.comb += tasks.ready.eq(noted & every(ends))
        over = tasks.valid & tasks.ready
        m.d.sync += noted.eq((noted | notes) & ~over)
        m.d.sync += [one.eq(end & ~over & noted) for one, end in zip(done, ends, strict=True)]
        self._inputs(m, has)
        self._weights(m)
        self._sums(m, collected.sink)
        return m

    def _less(self, task: data.View, number: int) -> Value:
        """Return whether a tile has one group less than the first tile."""
        return task.more < number if number else Const(0, 1)

    def _has(self, task: data.View, number: int) -> Value:
        """Return whether a tile has a group at all."""
        return (task.groups != 1) | ~self._less(task, number)

    def _inputs(self, m: Module, has: list[Value]) -> None:
        """Transfer an input to all tiles that take part, when all of them are ready."""
        takes = [tile.ready | ~works for tile, works in zip(self.tile_inputs, has, strict=True)]
        m.d.comb += self.inputs.ready.eq(self.tasks.valid & every(takes))
        for number, tile in enumerate(self.tile_inputs):
            m.d.comb += tile.valid.eq(self.inputs.valid & self.inputs.ready & has[number])

    def _turns(self, m: Module, name: str, task: data.View, moves: Value) -> _Turn:
        """Count through the tiles, round by round."""
        p = self.parameters
        tile = Signal(p.tile_shape, name=f"{name}_tile")
        left, last = Signal(p.tile.linear.groups.bit_length(), name=f"{name}_round"), Signal()
        m.d.comb += last.eq((left == task.groups - 1) & (tile == task.more))
        with m.If(moves):
            m.d.sync += tile.eq(tile + 1)
            with m.If(last):
                m.d.sync += [tile.eq(0), left.eq(0)]
            with m.Elif(tile == p.tiles - 1):
                m.d.sync += [tile.eq(0), left.eq(left + 1)]
        return _Turn(tile, last)

    def _weights(self, m: Module) -> None:
        """Transfer each group's slice to its tile; every slice begins with the first tile."""
        moves = self.weights.valid & self.weights.ready
        turn = self._turns(m, "weights", self.tasks.payload, moves).tile
        ready = Array(tile.ready for tile in self.tile_weights)[turn]
        m.d.comb += self.weights.ready.eq(self.tasks.valid & ready)
        for number, tile in enumerate(self.tile_weights):
            m.d.comb += tile.valid.eq(self.weights.valid & self.tasks.valid & (turn == number))

    def _sums(self, m: Module, task: stream.Interface) -> None:
        """Read the sums of a group for all samples from its tile, then those of the next group."""
        p = self.parameters
        sample, ends = Signal(range(p.tile.linear.samples)), Signal()
        moves = self.sums.valid & self.sums.ready
        m.d.comb += ends.eq(sample == task.payload.samples - 1)
        current = self._turns(m, "sums", task.payload, moves & ends)
        turn, last = current.tile, current.last
        payloads = Array(Value.cast(tile.payload) for tile in self.tile_sums)
        m.d.comb += [
            self.sums.valid.eq(task.valid & Array(tile.valid for tile in self.tile_sums)[turn]),
            Value.cast(self.sums.payload).eq(payloads[turn]),
            self.sums.payload.last.eq(last & ends),
            task.ready.eq(moves & ends & last),
        ]
        for number, tile in enumerate(self.tile_sums):
            m.d.comb += tile.ready.eq(self.sums.ready & task.valid & (turn == number))
        with m.If(moves):
            m.d.sync += sample.eq(Mux(ends, 0, sample + 1))

"""Distribution of steps to tiles, and reordering of their outputs."""

from amaranth.hdl import Array, Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.steps_in_flight import MOST_STEPS
from hdl.lad.parameters import LadTilesParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class StepSharing(Unit):
    """Send each step to the tile of its head; output the results in the order of the steps.

    A tile must not wait for the output of another tile: there is room for the outputs of all its
    steps.

    **Latency** 0 cycles to a tile, 4 from there. **Throughput** one step and one output per cycle.

    Parameters
    ----------
    parameters : LadTilesParameters
        Number of tiles, and payloads.

    Members
    -------
    steps : In(stream)
        A step, with its `tile`.
    tile_steps : Out(stream).array(tiles)
        The steps of each tile.
    tile_outputs : In(stream).array(tiles)
        The outputs of each tile.
    outputs : Out(stream)
        The outputs in the order of the steps, each with its `tile`.
    """

    def __init__(self, *, parameters: LadTilesParameters) -> None:
        self.parameters = p = parameters
        step, output = p.tile.step_layout, p.tile.output_layout
        super().__init__(
            {
                "steps": In(stream.Signature(p.named(step))),
                "tile_steps": Out(stream.Signature(step)).array(p.tiles),
                "tile_outputs": In(stream.Signature(output)).array(p.tiles),
                "outputs": Out(stream.Signature(p.named(output))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Distribute the steps, queue their tiles, and output the results in that order."""
        m = Module()
        p = self.parameters
        turn = data.StructLayout({"tile": p.tile_shape})
        # The oldest entry of a FIFO is in its output register, and needs no entry of the memory.
        m.submodules.order = order = MemoryFifo(shape=turn, depth=p.tiles * MOST_STEPS - 1)
        steps, tile, next_tile = self.steps, self.steps.payload.tile, order.sink.payload.tile
        ready, valid, payloads = [], [], []
        leaves = self.outputs.valid & self.outputs.ready
        for number in range(p.tiles):
            step = self.tile_steps[number]
            m.submodules[f"outputs_{number}"] = waiting = MemoryFifo(
                shape=p.tile.output_layout, depth=MOST_STEPS - 1
            )
            pending = Signal(range(MOST_STEPS + 1), name=f"pending_{number}")
            mine, room, out = tile == number, pending != MOST_STEPS, next_tile == number
            connect_streams(m, self.tile_outputs[number], waiting.source)
            m.d.comb += [
                step.valid.eq(steps.valid & mine & room),
                Value.cast(step.payload).eq(Value.cast(steps.payload)),
                waiting.sink.ready.eq(self.outputs.ready & order.sink.valid & out),
            ]
            # In flight from the step's transfer until its output is transferred.
            begins = step.valid & step.ready
            m.d.sync += pending.eq(pending + begins - (leaves & out))
            ready.append(step.ready & room)
            valid.append(waiting.sink.valid)
            payloads.append(Value.cast(waiting.sink.payload))
        m.d.comb += [
            steps.ready.eq(Array(ready)[tile]),
            order.source.valid.eq(steps.valid & steps.ready),
            order.source.payload.tile.eq(tile),
            self.outputs.valid.eq(order.sink.valid & Array(valid)[next_tile]),
            Value.cast(self.outputs.payload).eq(Cat(Array(payloads)[next_tile], next_tile)),
            order.sink.ready.eq(leaves),
        ]
        return m

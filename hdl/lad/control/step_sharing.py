"""Steps handed to tiles, and their outputs put back into the steps' order."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.step_slots import SLOTS
from hdl.lad.lad_tiles_parameters import LadTilesParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class StepSharing(Unit):
    """Give each step to the tile that has its head; let outputs leave in the order of the steps.

    A tile must never wait for another one's output, so its outputs have room for all its steps.

    **Latency** 0 cycles to a tile, 4 from there. **Throughput** one of each a cycle.

    Parameters
    ----------
    parameters : LadTilesParameters
        Dimensions.

    Members
    -------
    steps : In(stream)
        A step, and its `tile`.
    dealt : Out(stream).array(tiles)
        The tiles' steps.
    given : In(stream).array(tiles)
        Their outputs.
    outputs : Out(stream)
        The same in the steps' order, each with its `tile`.
    """

    def __init__(self, *, parameters: LadTilesParameters) -> None:
        self.parameters = p = parameters
        step, output = p.tile.step_layout, p.tile.output_layout
        super().__init__(
            {
                "steps": In(stream.Signature(p.named(step))),
                "dealt": Out(stream.Signature(step)).array(p.tiles),
                "given": In(stream.Signature(output)).array(p.tiles),
                "outputs": Out(stream.Signature(p.named(output))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Deal; remember the order; take each tile's output in its turn."""
        m = Module()
        p = self.parameters
        turn = data.StructLayout({"tile": p.tile_shape})
        # The oldest entry of a FIFO stands at its output, and needs no place in its memory.
        m.submodules.order = order = MemoryFifo(shape=turn, depth=p.tiles * SLOTS - 1)
        steps, tile, next_tile = self.steps, self.steps.payload.tile, order.sink.payload.tile
        ready, valid, payloads = [], [], []
        leaves = self.outputs.valid & self.outputs.ready
        for number in range(p.tiles):
            dealt = self.dealt[number]
            m.submodules[f"given_{number}"] = given = MemoryFifo(
                shape=p.tile.output_layout, depth=SLOTS - 1
            )
            pending = Signal(range(SLOTS + 1), name=f"pending_{number}")
            mine, room, out = tile == number, pending != SLOTS, next_tile == number
            connect_streams(m, self.given[number], given.source)
            m.d.comb += [
                dealt.valid.eq(steps.valid & mine & room),
                Value.cast(dealt.payload).eq(Value.cast(steps.payload)),
                given.sink.ready.eq(self.outputs.ready & order.sink.valid & out),
            ]
            # From a step's begin to its output's leaving.
            begins = dealt.valid & dealt.ready
            m.d.sync += pending.eq(pending + begins - (leaves & out))
            ready.append(dealt.ready & room)
            valid.append(given.sink.valid)
            payloads.append(Value.cast(given.sink.payload))
        m.d.comb += [
            steps.ready.eq(Array(ready)[tile]),
            order.source.valid.eq(steps.valid & steps.ready),
            order.source.payload.tile.eq(tile),
            self.outputs.valid.eq(order.sink.valid & Array(valid)[next_tile]),
            Value.cast(self.outputs.payload).eq(Cat(Array(payloads)[next_tile], next_tile)),
            order.sink.ready.eq(leaves),
        ]
        return m

"""Reads of an instruction: slices of the on-chip memory, and their destinations."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.slice_walk import SliceWalk, SliceWalkParameters
from hdl.lad.instructions import MOVES, Destination, instruction_layout
from hdl.lad.parameters import LadParameters
from hdl.unit import Unit


class OperandReader(Unit):
    """Read the operands of an instruction; after each inner loop the next read continues.

    The reads share one port of the memory, in the order in which the modules need the slices.

    **Latency** 2 cycles from `begin` to the first slice. **Throughput** one slice per cycle.

    Parameters
    ----------
    parameters : LadParameters
        Sizes of the memory's areas, and number of samples.

    Members
    -------
    begin, instruction : In
        An instruction begins; it is constant until its last slice is transferred.
    busy : Out(1)
        Slices are still to be read or transferred.
    read, address : Out
        Read this slice.
    operands : Out(stream)
        `destination` and `sample` of the slice at the memory's output, which is constant until the
        transfer.
    """

    def __init__(self, *, parameters: LadParameters) -> None:
        self.parameters = p = parameters
        operand = data.StructLayout({"destination": Destination, "sample": range(p.batch)})
        super().__init__(
            {
                "begin": In(1),
                "instruction": In(instruction_layout(p)),
                "busy": Out(1),
                "read": Out(1),
                "address": Out(p.address_shape),
                "operands": Out(stream.Signature(operand)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Run one address generator per read."""
        m = Module()
        p, instruction, operands = self.parameters, self.instruction, self.operands
        addresses = SliceWalkParameters(bits=p.address_shape.width)
        generators = [SliceWalk(parameters=addresses) for _ in range(MOVES)]
        turn, left = Signal(range(MOVES)), Signal()
        m.d.comb += [
            self.read.eq(left & (~operands.valid | operands.ready)),
            self.address.eq(Array(one.address for one in generators)[turn]),
            self.busy.eq(left | operands.valid),
        ]
        for index, one in enumerate(generators):
            m.submodules[f"move_{index}"] = one
            m.d.comb += [
                one.loops.eq(instruction.moves[index].loops),
                one.start.eq(self.begin),
                one.advance.eq(self.read & (turn == index)),
            ]
        inner_ends = Array(one.inner_ends for one in generators)[turn]
        with m.If(self.begin):
            m.d.sync += [left.eq(instruction.number != 0), turn.eq(0)]
        with m.If(self.read):
            # The destination is registered with the slice: the next slice can be another read's.
            destinations = Array(move.destination for move in instruction.moves)
            m.d.sync += [
                operands.payload.destination.eq(destinations[turn]),
                operands.payload.sample.eq(Array(one.middle for one in generators)[turn]),
            ]
            with m.If(inner_ends):
                m.d.sync += turn.eq(turn + 1)
                with m.If(turn == instruction.number - 1):
                    m.d.sync += [turn.eq(0), left.eq(~Array(one.ends for one in generators)[turn])]
        with m.If(self.read | operands.ready):
            m.d.sync += operands.valid.eq(self.read)
        return m

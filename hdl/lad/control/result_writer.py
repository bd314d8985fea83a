"""Writes of an instruction, and of the attention outputs, to the on-chip memory."""

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.program import LayerProgram
from hdl.lad.control.slice_walk import SliceWalk, SliceWalkParameters
from hdl.lad.instructions import Source, instruction_layout
from hdl.lad.parameters import LadParameters
from hdl.unit import Unit


class ResultWriter(Unit):
    """Write the slices of an instruction's source; write attention outputs in other cycles.

    Attention outputs arrive while later instructions run, and have an address generator of their
    own. There is one write port.

    **Latency** 0 cycles. **Throughput** one slice per cycle.

    Parameters
    ----------
    parameters : LadParameters
        Sizes of the memory's areas.

    Members
    -------
    begin, instruction : In
        An instruction begins; it is constant until its last slice is written.
    busy : Out(1)
        Slices of the instruction are still to be written.
    next_layer : In(1)
        The next attention outputs are the first ones of a layer.
    attended : Out(1)
        All attention outputs of the layer are written.
    slices, sums, results : In(stream)
        The sources: slices from outside, of the linear module, of the special function module.
    outputs : In(stream)
        Attention outputs.
    write, address, values : Out
        Write this slice.
    """

    def __init__(self, *, parameters: LadParameters) -> None:
        self.parameters = p = parameters
        values = stream.Signature(p.tile.sfm.values_layout)
        super().__init__(
            {
                "begin": In(1),
                "instruction": In(instruction_layout(p)),
                "busy": Out(1),
                "next_layer": In(1),
                "attended": Out(1),
                "slices": In(values),
                "sums": In(values),
                "results": In(values),
                "outputs": In(values),
                "write": Out(1),
                "address": Out(p.address_shape),
                "values": Out(p.tile.vector.vector_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Select the source; the attention outputs have lower priority."""
        m = Module()
        p, instruction, outputs = self.parameters, self.instruction, self.outputs
        addresses = SliceWalkParameters(bits=p.address_shape.width)
        m.submodules.target = target = SliceWalk(parameters=addresses)
        m.submodules.attention = attention = SliceWalk(parameters=addresses)
        loops = LayerProgram(p).outputs.record
        m.d.comb += [
            target.loops.eq(instruction.target),
            target.start.eq(self.begin),
            attention.loops.eq(addresses.loops_layout.const(loops)),
            attention.start.eq(self.next_layer),
            outputs.ready.eq(~target.advance),
            attention.advance.eq(outputs.valid & outputs.ready),
            self.write.eq(target.advance | attention.advance),
            self.address.eq(Mux(target.advance, target.address, attention.address)),
            Value.cast(self.values).eq(Value.cast(outputs.payload["values"])),
        ]
        # The memory can always be written: a source waits only until its instruction begins.
        sources = {
            Source.OUTSIDE: self.slices,
            Source.SUMS: self.sums,
            Source.RESULTS: self.results,
        }
        with m.Switch(instruction.source):
            for source, port in sources.items():
                with m.Case(source):
                    m.d.comb += [
                        port.ready.eq(self.busy),
                        target.advance.eq(port.valid & self.busy),
                    ]
                    with m.If(target.advance):
                        m.d.comb += Value.cast(self.values).eq(Value.cast(port.payload["values"]))
        with m.If(self.begin):
            m.d.sync += self.busy.eq(instruction.writes)
        with m.Elif(target.advance & target.ends):
            m.d.sync += self.busy.eq(0)
        with m.If(self.next_layer):
            m.d.sync += self.attended.eq(0)
        with m.Elif(attention.advance & attention.ends):
            m.d.sync += self.attended.eq(1)
        return m

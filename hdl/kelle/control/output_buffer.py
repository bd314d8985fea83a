"""The block's output on its way out: slices wait here for whoever takes them.

The array finishes them as fast as it likes, and what follows the block may be slower.
"""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.layouts import slice_write
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit


class OutputBuffer(Unit):
    """Hold a step's outputs, and give them away one sequence's after the other.

    **Latency** 2 cycles. **Throughput** one slice a cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions.

    Members
    -------
    start : In(1)
        A step begins; nothing of the one before is left.
    slices : In
        Slices to hold.
    complete : In
        How many slices are there of all sequences, so that their first ones may leave.
    outputs : Out(stream)
        The same, in the order of their addresses.
    pending : Out(1)
        Slices are held that have not been on offer.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "start": In(1),
                "slices": In(slice_write(p, p.sequences * p.inputs)),
                "complete": In(bits_for(p.inputs)),
                "outputs": Out(stream.Signature(p.slice_layout)),
                "pending": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Walk over what has come."""
        m = Module()
        p = self.parameters
        # The array cannot wait: all slices of a step fit.
        depth = p.sequences * p.inputs
        m.submodules.held = held = Memory(depth=depth, width=p.slice_layout.size)
        sent, slice_ = Signal(range(depth + 1)), Signal(range(p.inputs))
        move = ~self.outputs.valid | self.outputs.ready
        waits, sends = Signal(), Signal()
        last = slice_ == p.inputs - 1
        m.d.comb += [
            waits.eq((sent != depth) & (slice_ < self.complete)),
            sends.eq(move & waits),
            held.write_enable.eq(self.slices.strobe),
            held.write_address.eq(self.slices.address),
            held.write_data.eq(self.slices["values"]),
            held.read_enable.eq(sends),
            held.read_address.eq(sent),
            self.outputs.payload.eq(held.read_data),
        ]
        with m.If(move):
            m.d.sync += self.outputs.valid.eq(waits)
        with m.If(sends):
            m.d.sync += [sent.eq(sent + 1), slice_.eq(Mux(last, 0, slice_ + 1))]
        # Something is left from the first slice on until the last one has been sent.
        with m.If(sends & (sent == depth - 1)):
            m.d.sync += self.pending.eq(0)
        with m.Elif(self.slices.strobe):
            m.d.sync += self.pending.eq(1)
        with m.If(self.start):
            m.d.sync += [sent.eq(0), slice_.eq(0)]
        return m

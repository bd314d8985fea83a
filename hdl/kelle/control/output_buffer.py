"""The block's output on its way out: slices wait here for whoever takes them.

The array finishes them as fast as it likes, and what follows the block may be slower.
"""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.layouts import slice_write
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit


class OutputBuffer(Unit):
    """Hold a step's output, and give it away in order.

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
        Slices to hold, in the order of their addresses.
    outputs : Out(stream)
        The same.
    pending : Out(1)
        Slices are held that have not been on offer.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "start": In(1),
                "slices": In(slice_write(p, p.inputs)),
                "outputs": Out(stream.Signature(p.slice_layout)),
                "pending": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count what has come and what has gone."""
        m = Module()
        p = self.parameters
        # The array cannot wait: all slices of a step fit.
        m.submodules.held = held = Memory(depth=p.inputs, width=p.slice_layout.size)
        count, sent = Signal(range(p.inputs + 1)), Signal(range(p.inputs + 1))
        move = ~self.outputs.valid | self.outputs.ready
        # Slices come in order, so that two counts say what is held.
        waits = sent != count
        m.d.comb += [
            held.write_enable.eq(self.slices.strobe),
            held.write_address.eq(self.slices.address),
            held.write_data.eq(self.slices["values"]),
            held.read_enable.eq(move & waits),
            held.read_address.eq(sent),
            self.outputs.payload.eq(held.read_data),
            self.pending.eq(waits),
        ]
        with m.If(self.slices.strobe):
            m.d.sync += count.eq(count + 1)
        with m.If(move):
            m.d.sync += [self.outputs.valid.eq(waits), sent.eq(sent + waits)]
        with m.If(self.start):
            m.d.sync += [count.eq(0), sent.eq(0)]
        return m

"""Buffer of a step's outputs.

The array cannot wait, but the consumer of the outputs may be slower than the array.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit


class OutputBuffer(Unit):
    """Store the outputs of a step, and output them token by token.

    **Latency** 2 cycles. **Throughput** one slice per cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    start : In(1)
        A step begins; the buffer must be empty.
    slices : In
        Writes of slices.
    complete, last_token : In
        Number of slices that are stored for every token, which may be output; index of the step's
        last token.
    outputs : Out(stream)
        The slices, in the order of their addresses.
    pending : Out(1)
        The buffer holds slices that have not been offered on `outputs`.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "start": In(1),
                "slices": In(p.slice_write(p.step_tokens * p.hidden_slices)),
                "complete": In(bits_for(p.hidden_slices)),
                "last_token": In(p.token_shape),
                "outputs": Out(stream.Signature(p.slice_layout)),
                "pending": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read the stored slices in the order of their addresses."""
        m = Module()
        p = self.parameters
        # The array cannot wait, so the memory holds all slices of a step.
        depth = p.step_tokens * p.hidden_slices
        m.submodules.held = held = Memory(depth=depth, width=p.slice_layout.size)
        sent, slice_ = Signal(range(depth + 1)), Signal(range(p.hidden_slices))
        move = ~self.outputs.valid | self.outputs.ready
        waits, sends = Signal(), Signal()
        last = slice_ == p.hidden_slices - 1
        count = p.of_tokens(self.last_token, p.hidden_slices)
        m.d.comb += [
            waits.eq((sent != count) & (slice_ < self.complete)),
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
        # `pending` is 1 from the first slice stored until the last one is read.
        with m.If(sends & (sent == count - 1)):
            m.d.sync += self.pending.eq(0)
        with m.Elif(self.slices.strobe):
            m.d.sync += self.pending.eq(1)
        with m.If(self.start):
            m.d.sync += [sent.eq(0), slice_.eq(0)]
        return m

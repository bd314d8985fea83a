"""On-chip weight memory, which prefetches the next matrices while attention runs.

Section 5 and Figure 9 of the paper: an SRAM of 2 MB between the off-chip memory, which delivers
64 bytes per cycle, and the array, which takes 128.
"""

from amaranth.hdl import Module, Value, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.gearbox import Gearbox
from hdl.unit import Unit


class WeightMemory(Unit):
    """A FIFO of weights: takes words from outside and gives beats of loads.

    Weights are input and output in the order of the program. Each is read once, because all
    sequences are multiplied by a tile while it is in the array. Free space is filled independently
    of the array, also with the weights of the next step.

    **Latency** 3 cycles from the last word of a beat. **Throughput** one word in and one beat out
    per cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions, with `weight_memory` above 0.

    Members
    -------
    words : In(stream)
        Words of `channel_bytes` bytes; the lowest bytes of a beat are input first.
    beats : Out(stream)
        Beats of weights: one row of each band.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "words": In(stream.Signature(p.channel_layout)),
                "beats": Out(stream.Signature(p.weights_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Assemble words into beats, and store the beats in a FIFO."""
        m = Module()
        p = self.parameters
        m.submodules.gearbox = gearbox = Gearbox(
            shape=unsigned(8), items_in=p.channel_bytes, items_out=p.beat_bytes
        )
        m.submodules.held = held = MemoryFifo(
            shape=unsigned(8 * p.beat_bytes), depth=p.weight_memory
        )
        # All words are one packet without an end, so that every beat is full.
        m.d.comb += [
            gearbox.source.valid.eq(self.words.valid),
            self.words.ready.eq(gearbox.source.ready),
            Value.cast(gearbox.source.payload["items"]).eq(self.words.payload.as_value()),
            held.source.valid.eq(gearbox.sink.valid),
            held.source.payload.eq(Value.cast(gearbox.sink.payload["items"])),
            gearbox.sink.ready.eq(held.source.ready),
            self.beats.valid.eq(held.sink.valid),
            self.beats.payload.eq(held.sink.payload),
            held.sink.ready.eq(self.beats.ready),
        ]
        return m

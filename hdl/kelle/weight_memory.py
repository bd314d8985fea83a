"""On-chip memory of weights: what the next matrices are is fetched while attention runs.

Section 5 and Figure 9 of the paper: an SRAM of 2 MB between off-chip memory, which gives 64 octets
a cycle, and the array, which takes 128.
"""

from typing import Any

from amaranth.hdl import Module, Value, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.stream.gearbox import Gearbox
from hdl.unit import Unit


class WeightMemory(Unit):
    """Take weights as they come from outside, hold them, and give them as beats of loads.

    Weights leave in the order in which they came, which is that of the program, each once: all
    sequences meet a tile while it is in the array, so that nothing is ever needed again. What is
    free is filled whatever the array does, also with the weights of the next step.

    **Latency** 3 cycles from a beat's last word. **Throughput** a word or a beat a cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions, with a weight memory.

    Members
    -------
    words : In(stream)
        `channel_bytes` octets each, a beat's first ones first.
    beats : Out(stream)
        A row of each band.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "words": In(stream.Signature(p.channel_layout)),
                "beats": Out(stream.Signature(p.weights_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Make beats of words, and keep as many as there is room for."""
        m = Module()
        p = self.parameters
        m.submodules.gearbox = gearbox = Gearbox(
            shape=unsigned(8), items_in=p.channel_bytes, items_out=p.beat_bytes
        )
        m.submodules.held = held = MemoryFifo(
            shape=unsigned(8 * p.beat_bytes), depth=p.weight_memory
        )
        # All words are one packet without an end: every beat is full.
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


def connect_weights(m: Module, p: KelleParameters, outside: Any, loads: Any) -> None:
    """Give weights from outside to the loads, through a memory if there is one."""
    if p.weight_memory:
        m.submodules.weight_memory = memory = WeightMemory(parameters=p)
        connect_streams(m, outside, memory.words)
        outside = memory.beats
    connect_streams(m, outside, loads)

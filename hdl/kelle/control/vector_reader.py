"""Reads stored input vectors, from which keys and values are recomputed, out of the KV eDRAM.

Section 4.1 of the paper: a popular token is stored as its input vector x.
"""

from itertools import pairwise

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.edram.kv_edram import SIDES, channels_of
from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class VectorReader(Unit):
    """Read one input vector at a time, and deliver it slice by slice.

    The keys' side of the eDRAM has the first half of a vector, the values' side the second half.
    The last row of a side may be used in part.

    **Latency** `read_cycles` of the eDRAM, and 1 cycle, from a vector to its first slice.
    **Throughput** as many cycles per row of the eDRAM, and 1 per slice; during the slices the eDRAM
    may refresh.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    layer : In
        Layer of the step.
    vectors : In(stream)
        Number of a stored vector of the layer; transferred with the vector's last slice.
    slices : Out(stream)
        The slices of the vector, in order.
    keys_read, values_read : Out(stream)
        Addresses of the eDRAM.
    keys, values : In
        Rows read, `read_cycles` after the address.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        edram = p.memory.edram
        super().__init__(
            {
                "layer": In(p.layer_bits),
                "vectors": In(stream.Signature(range(max(p.layer_vectors, 2)))),
                "slices": Out(stream.Signature(p.slice_layout)),
                **{f"{side}_read": Out(stream.Signature(edram.address_bits)) for side in SIDES},
                **{side: In(edram.row_layout) for side in SIDES},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read a row, hold it, and deliver its slices."""
        m = Module()
        p = self.parameters
        edram = p.memory.edram
        half = p.hidden_slices // 2
        side = Signal()  # As in `SIDES`.
        word = Signal(range(edram.vector_entries * edram.entry_words + 1))
        delivered = Signal(range(half))  # Slices of this side.
        part = Signal(range(max(p.row_slices, 2)))  # Slice of the held row.
        row = Signal(data.ArrayLayout(p.slice_layout, p.row_slices), reset_less=True)
        half_ends = delivered == half - 1
        waits = [*(f"WAIT_{cycle}" for cycle in range(1, edram.read_cycles)), "HOLD"]
        m.d.comb += self.slices.payload.eq(
            Array(row[i].as_value() for i in range(p.row_slices))[part]
        )

        with m.FSM() as fsm:
            # The fetch has priority at the ports, and an urgent refresh has priority over both.
            with m.State("READ"):
                with m.If(
                    self.vectors.valid & Mux(side, self.values_read.ready, self.keys_read.ready)
                ):
                    m.next = waits[0]
            # The eDRAM's access may take several cycles.
            for wait, following in pairwise(waits):
                with m.State(wait):
                    m.next = following
            # The row is valid for one cycle, because a refresh may follow it.
            with m.State("HOLD"):
                keys, values = (channels_of(edram, getattr(self, name)) for name in SIDES)
                for c in range(edram.row_channels):
                    m.d.sync += row[c // p.rows][c % p.rows].eq(Mux(side, values[c], keys[c]))
                m.d.sync += [part.eq(0), word.eq(word + 1)]
                m.next = "DELIVER"
            # The memory of inputs takes one slice per cycle.
            with m.State("DELIVER"):
                m.d.comb += [
                    self.slices.valid.eq(1),
                    self.vectors.ready.eq(self.slices.ready & half_ends & side),
                ]
                with m.If(self.slices.ready):
                    m.d.sync += [
                        part.eq(part + 1),
                        delivered.eq(Mux(half_ends, 0, delivered + 1)),
                    ]
                    with m.If(half_ends):
                        m.d.sync += [side.eq(~side), word.eq(0)]
                    with m.If(half_ends | (part == p.row_slices - 1)):
                        m.next = "READ"

        # The entries of the input vectors follow those of all slots.
        vector = self.vectors.payload
        if p.layers > 1:
            vector = self.layer * p.layer_vectors + vector
        first = (edram.kv_heads * p.slots + vector * edram.vector_entries) * edram.entry_words
        reads = fsm.ongoing("READ") & self.vectors.valid
        for number, name in enumerate(SIDES):
            read = getattr(self, f"{name}_read")
            m.d.comb += [read.valid.eq(reads & (side == number)), read.payload.eq(first + word)]
        return m

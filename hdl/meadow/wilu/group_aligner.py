"""Align fields to full groups of lanes across packets, so that packet ends leave no gap."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.wilu.field_extractor import selected
from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from hdl.unit import Unit


class GroupAligner(Unit):
    """Queue of fields that appends input fields at the end and outputs groups from the start.

    The queue holds four groups. It accepts fields if at most two groups remain after the output,
    so that there is space for all fields of one transfer. With more than two, it can output two
    further groups, even if the next transfer has only the last few fields of a packet. So it
    outputs a group in every cycle if each packet provides `parameters.lanes` fields per cycle.

    **Latency** 1 cycle. **Throughput** one group per cycle.

    Parameters
    ----------
    parameters : UnpackerParameters
        Dimensions of groups and transfers.

    Members
    -------
    fields : In(stream)
        `number` fields from place 0 on, which may be 0; `last` with the last ones of a matrix.
    groups : Out(stream)
        `parameters.lanes` fields. The last group of a matrix has `count` fields, which may be 0.

    Raises
    ------
    ValueError
        If a rule of `UnpackerParameters` is broken.
    """

    def __init__(self, *, parameters: UnpackerParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "fields": In(stream.Signature(parameters.fields_layout)),
                "groups": Out(stream.Signature(parameters.group_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Hold the queue in registers; an output group shifts the rest down by one group."""
        m = Module()
        p = self.parameters
        lanes, width, capacity = p.lanes, p.id_bits, 4 * p.lanes
        held = [Signal(width, name=f"place_{i}", reset_less=True) for i in range(capacity)]
        level, closing = Signal(range(capacity + 1)), Signal()
        taken, out = self.fields.payload, self.groups.payload
        full, leaves, arrives = Signal(), Signal(), Signal()
        final = closing & (level <= lanes)
        m.d.comb += [
            full.eq(level >= lanes),
            self.groups.valid.eq(full | closing),
            Value.cast(out.ids).eq(Cat(held[:lanes])),
            out.count.eq(Mux(full, lanes, level)),
            out.last.eq(final),
            leaves.eq(self.groups.valid & self.groups.ready),
        ]
        # `stays` counts the fields after the output; no field may follow the end of a matrix.
        stays = Signal.like(level)
        m.d.comb += [
            stays.eq(Mux(leaves, Mux(full, level - lanes, 0), level)),
            # Whether `stays` is at most two groups, without its subtraction.
            self.fields.ready.eq(~closing & Mux(leaves, level <= 3 * lanes, level <= 2 * lanes)),
            arrives.eq(self.fields.valid & self.fields.ready),
        ]
        m.d.sync += level.eq(stays + Mux(arrives, taken.number, 0))
        with m.If(arrives & taken.last):
            m.d.sync += closing.eq(1)
        with m.Elif(leaves & final):
            m.d.sync += closing.eq(0)

        starts = Signal(2 * lanes + 1)
        m.d.comb += [starts[start].eq(stays == start) for start in range(2 * lanes + 1)]
        for place, register in enumerate(held):
            above = held[place + lanes] if place + lanes < capacity else register
            # The input fields that can be written to this place.
            sources = {
                start: taken.ids[place - start]
                for start in range(2 * lanes + 1)
                if 0 <= place - start < p.fields
            }
            m.d.sync += register.eq(
                Mux(
                    arrives & (stays <= place),
                    selected(starts, sources, width),
                    Mux(leaves, above, register),
                )
            )
        return m

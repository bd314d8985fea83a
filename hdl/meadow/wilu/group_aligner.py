"""From fields as packets hold them to full groups of lanes: packets' ends leave no gap."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.wilu.field_extractor import selected
from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from hdl.unit import Unit


class GroupAligner(Unit):
    """Put what comes behind what is there; take groups from below.

    It holds four groups. With at most two left behind what leaves, there is room for all that can
    come. With more, another group is sure, and still one if a packet's last few fields come next:
    so a group leaves in every cycle if packets bring `parameters.lanes` fields a cycle each.

    **Latency** 1 cycle. **Throughput** a group a cycle.

    Parameters
    ----------
    parameters : UnpackerParameters
        Dimensions.

    Members
    -------
    fields : In(stream)
        `number` fields from place 0 on, none included; `last`.
    groups : Out(stream)
        `parameters.lanes` fields; of a matrix's last group `count`, which may be 0.

    Raises
    ------
    ValueError
        By `UnpackerParameters`.
    """

    def __init__(self, *, parameters: UnpackerParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "fields": In(stream.Signature(parameters.fields_layout)),
                "groups": Out(stream.Signature(parameters.group_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep places in a row; a group that leaves moves the others down by as many."""
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
        # What stays when a group leaves; nothing of a matrix may be behind its end.
        stays = Signal.like(level)
        m.d.comb += [
            stays.eq(Mux(leaves, Mux(full, level - lanes, 0), level)),
            self.fields.ready.eq(~closing & (stays <= 2 * lanes)),
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
            # Whatever of the input's places may come to lie here.
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

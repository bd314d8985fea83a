"""Fields of one width, taken from a packet several at a time."""

from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from hdl.unit import Unit


def selected(select: Value, choices: dict[int, Value], width: int) -> Value:
    """Return the choice whose bit of `select` is 1, as an OR of ANDs; 0 if none is."""
    terms = [value & select[bit].replicate(width) for bit, value in choices.items()]
    return reduce(or_, terms, Const(0, width))


class FieldExtractor(Unit):
    """Take a packet's payload apart, `parameters.fields` fields a cycle.

    **Latency** 2 cycles to a packet's first fields. **Throughput** a packet of n fields every
    ``ceil(n / parameters.fields)`` cycles.

    Parameters
    ----------
    parameters : UnpackerParameters
        Dimensions.

    Members
    -------
    payloads : In(stream)
        A payload, the width of its fields, their number, `last`.
    fields : Out(stream)
        The next fields, from the low end of the payload; `last` with a payload's last.

    Raises
    ------
    ValueError
        By `UnpackerParameters`.
    """

    def __init__(self, *, parameters: UnpackerParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "payloads": In(stream.Signature(parameters.payload_layout)),
                "fields": Out(stream.Signature(parameters.fields_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Hold a payload, and shift it down by what was taken."""
        m = Module()
        p = self.parameters
        # A packet is held until its last fields leave; the next follows without a gap.
        held, waits = Signal(p.payload_layout, reset_less=True), Signal()
        taken, moves, more = self.payloads.payload, Signal(), Signal()
        m.d.comb += [
            moves.eq(~self.fields.valid | self.fields.ready),
            more.eq(held.number > p.fields),
            self.payloads.ready.eq(~waits | (moves & ~more)),
        ]
        with m.If(moves):
            out = self.fields.payload
            m.d.sync += [
                self.fields.valid.eq(waits),
                out.number.eq(Mux(more, p.fields, held.number)),
                out.last.eq(held.last & ~more),
            ]
            # Every width's slice is wired, and one chosen: a shifter would be larger.
            for place in range(p.fields):
                m.d.sync += out.ids[place].eq(self._field(held, place))
        with m.If(self.payloads.ready):
            m.d.sync += [held.eq(taken), waits.eq(self.payloads.valid)]
        # What was taken falls off the low end, so that fields are always in the same places.
        with m.Elif(moves):
            m.d.sync += [
                held.payload.eq(self._behind(held)),
                held.number.eq(held.number - p.fields),
            ]
        return m

    def _field(self, held: Any, place: int) -> Value:
        """Return one field; narrow ones reach farther, wide ones lie in low places only."""
        p = self.parameters
        ends = {width: (place + 1) * width for width in range(1, p.id_bits + 1)}
        fields = {
            width - 1: Value.cast(held.payload)[end - width : end]
            for width, end in ends.items()
            if end <= p.packet_bits
        }
        widened = {bit: _extended(field, p.id_bits) for bit, field in fields.items()}
        return selected(held.select, widened, p.id_bits)

    def _behind(self, held: Any) -> Value:
        """Return the payload behind the fields that are taken together, where there is more."""
        p = self.parameters
        payload = Value.cast(held.payload)
        rests = {
            width - 1: _extended(payload[width * p.fields :], p.packet_bits)
            for width in range(1, p.id_bits + 1)
            if width * p.fields < p.packet_bits
        }
        return selected(held.select, rests, p.packet_bits)


def _extended(value: Value, width: int) -> Value:
    """Return a value with zeros above it."""
    return (value | Const(0, width))[:width]

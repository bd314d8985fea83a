"""Extract fields of equal width from a packet, several per cycle."""

from functools import reduce
from operator import or_

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from hdl.unit import Unit


def selected(select: Value, choices: dict[int, Value], width: int) -> Value:
    """Return the choice whose bit of `select` is 1, as an OR of ANDs; 0 if none is."""
    terms = [value & select[bit].replicate(width) for bit, value in choices.items()]
    return reduce(or_, terms, Const(0, width))


class FieldExtractor(Unit):
    """Extraction of the fields of a payload, `parameters.fields` per cycle.

    **Latency** 2 cycles to the first fields of a packet. **Throughput** a packet of n fields in
    ``ceil(n / parameters.fields)`` cycles.

    Parameters
    ----------
    parameters : UnpackerParameters
        Dimensions of packets and fields.

    Members
    -------
    payloads : In(stream)
        A `payload`; `select`, the width of its fields; their `number`; `last` with the last one of
        a matrix.
    fields : Out(stream)
        The next fields, from the least significant end of the payload; `last` with the last fields
        of a payload that has `last`.

    Raises
    ------
    ValueError
        If a rule of `UnpackerParameters` is broken.
    """

    def __init__(self, *, parameters: UnpackerParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "payloads": In(stream.Signature(parameters.payload_layout)),
                "fields": Out(stream.Signature(parameters.fields_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Hold a payload, and shift it right by the fields that are extracted."""
        m = Module()
        p = self.parameters
        # A packet is held until its last fields are extracted; the next follows without a gap.
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
            # A multiplexer selects among the slices of all widths; a shifter would be larger.
            for place in range(p.fields):
                m.d.sync += out.ids[place].eq(self._field(held, place))
        with m.If(self.payloads.ready):
            m.d.sync += [held.eq(taken), waits.eq(self.payloads.valid)]
        # Extracted fields are shifted out, so that the next fields are always at the same bits.
        with m.Elif(moves):
            m.d.sync += [
                held.payload.eq(self._rest(held)),
                held.number.eq(held.number - p.fields),
            ]
        return m

    def _field(self, held: data.View, place: int) -> Value:
        """Return one field; a packet may be too short for wide fields at high places."""
        p = self.parameters
        ends = {width: (place + 1) * width for width in range(1, p.id_bits + 1)}
        fields = {
            width - 1: Value.cast(held.payload)[end - width : end]
            for width, end in ends.items()
            if end <= p.packet_bits
        }
        widened = {bit: _extended(field, p.id_bits) for bit, field in fields.items()}
        return selected(held.select, widened, p.id_bits)

    def _rest(self, held: data.View) -> Value:
        """Return the payload after the fields of one cycle, for widths that leave a rest."""
        p = self.parameters
        payload = Value.cast(held.payload)
        rests = {
            width - 1: _extended(payload[width * p.fields :], p.packet_bits)
            for width in range(1, p.id_bits + 1)
            if width * p.fields < p.packet_bits
        }
        return selected(held.select, rests, p.packet_bits)


def _extended(value: Value, width: int) -> Value:
    """Return a value extended with zeros."""
    return (value | Const(0, width))[:width]

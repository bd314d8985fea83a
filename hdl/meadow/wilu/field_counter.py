"""Count the fields of a matrix, and end the matrix whatever its packets contain."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.wilu.packet_format import MODE_BITS, ids_in
from hdl.meadow.wilu.unpacker_parameters import COUNT_BITS, RESULT, UnpackerParameters
from hdl.unit import Unit


class FieldCounter(Unit):
    """Counter that adds to each payload its number of fields, and marks the last of a matrix.

    The last payload completes the IDs of the matrix. If the packets end earlier, or a mode has no
    width, an empty payload is the last; later packets are discarded. So a corrupted packet can make
    a matrix neither longer nor endless.

    **Latency** 1 cycle. **Throughput** one payload per cycle.

    Parameters
    ----------
    parameters : UnpackerParameters
        Dimensions of packets and IDs.

    Members
    -------
    start : In(1)
        A matrix begins.
    count : In
        Its IDs; valid with `start`.
    fields : In(stream)
        Packets of fields.
    ended : In(1)
        No further packet follows those in `fields`.
    abandon : In(1)
        End the matrix at once; its IDs are `truncated`.
    payloads : Out(stream)
        Payloads with their number of fields.
    closed : Out(1)
        The last payload was output.
    failed : Out(1)
        An error makes all later packets invalid.
    errors : Out
        Errors so far: `mode`, `truncated` and `excess`.

    Raises
    ------
    ValueError
        If a rule of `UnpackerParameters` is broken.
    """

    def __init__(self, *, parameters: UnpackerParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "start": In(1),
                "count": In(COUNT_BITS),
                "fields": In(stream.Signature(p.coded_layout)),
                "ended": In(1),
                "abandon": In(1),
                "payloads": Out(stream.Signature(p.payload_layout)),
                "closed": Out(1),
                "failed": Out(1),
                "errors": Out(RESULT),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count down the IDs of the matrix."""
        m = Module()
        p, fields, errors = self.parameters, self.fields, self.errors
        payloads, out = self.payloads, self.payloads.payload
        widths = range(1, p.id_bits + 1)
        number, remaining, finishes = Signal(range(p.packet_bits + 1)), Signal(COUNT_BITS), Signal()
        with m.Switch(fields.payload.width):
            for bits in widths:
                with m.Case(bits):
                    counts = (
                        ids_in(size, bits) for size in (p.packet_bits, p.packet_bits - MODE_BITS)
                    )
                    m.d.comb += number.eq(Mux(fields.payload.whole, *counts))
        m.d.comb += [
            finishes.eq(remaining <= number),
            fields.ready.eq(~payloads.valid | payloads.ready),
        ]
        with m.If(fields.ready):
            m.d.sync += [
                payloads.valid.eq(0),
                out.payload.eq(fields.payload.payload),
                out.select.eq(Cat(fields.payload.width == bits for bits in widths)),
                out.number.eq(Mux(finishes, remaining, number)),
                out.last.eq(finishes),
            ]
            with m.If(fields.valid & ~self.failed):
                with m.If(self.closed):
                    m.d.sync += errors.excess.eq(1)
                with m.Elif(number == 0):
                    m.d.sync += [self.failed.eq(1), errors.mode.eq(1)]
                with m.Else():
                    m.d.sync += [
                        payloads.valid.eq(1),
                        remaining.eq(remaining - number),
                        self.closed.eq(finishes),
                    ]
                    # A matrix without IDs has no packet.
                    with m.If(remaining == 0):
                        m.d.sync += errors.excess.eq(1)
            with m.Elif(~self.closed & (self.failed | self.ended)):
                # Close the matrix by an empty payload.
                m.d.sync += [payloads.valid.eq(1), out.number.eq(0), out.last.eq(1)]
                m.d.sync += self.closed.eq(1)
                with m.If(~self.failed):
                    m.d.sync += errors.truncated.eq(1)
        with m.If(self.abandon):
            m.d.sync += [self.failed.eq(1), errors.truncated.eq(1)]
        with m.If(self.start):
            m.d.sync += [remaining.eq(self.count), errors.eq(0)]
            m.d.sync += [self.closed.eq(0), self.failed.eq(0)]
        return m

"""Requests for G of all steps of a token of LAD, before the steps begin."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.head_numbers import HeadNumbers
from hdl.shell.lad_axi_parameters import LadAxiParameters
from hdl.unit import Unit


class GroupsAhead(Unit):
    """Request G of the steps of a token in their order, which is the same for every token.

    No step of a token changes G of a later step: it can be read before the projections of its
    layer, so that the latency of memory does not delay the step. With several tiles, the order in
    which LAD takes G depends on the timing, and it must be requested in the order of LAD's requests
    instead.

    **Latency** 0 cycles. **Throughput** one step per cycle.

    Parameters
    ----------
    parameters : LadAxiParameters
        Dimensions of the accelerator, with one tile.

    Members
    -------
    token : In(struct)
        The token in progress, see `LadAxiParameters.token_layout`.
    begun : In(1)
        The token has begun.
    ends : In(1)
        The token is transferred; the next one follows.
    requests : Out(stream)
        As `group_requests` of `Lad`.
    complete : Out(1)
        G of all steps is requested.
    """

    def __init__(self, *, parameters: LadAxiParameters) -> None:
        self.parameters = p = parameters
        lad = p.lad
        super().__init__(
            {
                "token": In(p.token_layout),
                "begun": In(1),
                "ends": In(1),
                "requests": Out(
                    stream.Signature(lad.shared_tiles.named(lad.tile.group_request_layout))
                ),
                "complete": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the query heads of a key/value head, then the samples, then the next heads."""
        m = Module()
        lad, request = self.parameters.lad, self.requests
        m.submodules.numbers = numbers = HeadNumbers(parameters=lad)
        member, sample = Signal(range(lad.group_size)), Signal(range(lad.batch))
        moves, last_member = request.valid & request.ready, member == lad.group_size - 1
        # The query heads of a key/value head have the length of their sample.
        lengths = Array(self.token.lengths[number] for number in range(lad.batch))
        m.d.comb += [
            request.payload.head.eq(numbers.step.head),
            request.payload.length.eq(lengths[sample]),
            request.valid.eq(self.begun & ~self.complete),
            numbers.advance.eq(moves),
            numbers.restart.eq(self.ends),
        ]
        with m.If(moves):
            m.d.sync += [
                member.eq(Mux(last_member, 0, member + 1)),
                self.complete.eq(numbers.last),
            ]
            with m.If(last_member):
                m.d.sync += sample.eq(Mux(sample == lad.batch - 1, 0, sample + 1))
        with m.If(self.ends):
            m.d.sync += self.complete.eq(0)
        return m

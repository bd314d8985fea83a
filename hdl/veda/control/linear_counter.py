"""Position of a beat of weights within its matrix."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from hdl.veda.parameters import VedaParameters


class LinearCounter(Unit):
    """Count the beats of matrices, whose weights arrive in the order in which they are used.

    In an outer product a beat is a row of weights for one element of the state. After one beat per
    element a row of results is complete, and the weights of the next row follow.

    In an inner product a beat is a slice of one output's weights for each array. As many outputs as
    the array has partial sums form a block of outputs: first the first slices of all its outputs
    arrive, then all second slices, and so on. The last block may be smaller.

    The lines of a row, or of a block of outputs, are a segment: every token of a block of tokens
    uses them before the lines of the next segment are used.

    **Latency** 0 cycles.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    moves : In(1)
        The beat is transferred.
    inner : In(1)
        The matrix computes inner products; otherwise outer products.
    feed_forward : In(1)
        The inner products are as long as the intermediate vector (down projection).
    last_token : In
        Index of the block's last token, which uses each line last; the first index is 0.
    first, last : Out(1)
        Mark a dot product's first and last slice, or a row's first and last beat, as in
        `FlexiblePeArray`.
    load : Out(1)
        The beat is accompanied by a slice of the vector.
    release : Out(1)
        The vector's slices are not needed after this beat.
    hold, replay : Out(1)
        The line is needed by a later token; the next beat starts the segment again, as in
        `WeightBuffer`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "moves": In(1),
                "inner": In(1),
                "feed_forward": In(1),
                "last_token": In(parameters.token_shape),
                "first": Out(1),
                "last": Out(1),
                "load": Out(1),
                "release": Out(1),
                "hold": Out(1),
                "replay": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count elements, or outputs within slices, within tokens, within blocks of outputs."""
        m = Module()
        p = self.parameters
        block = p.array.partial_sums
        most = max(p.attended_slices, p.activated_slices)
        element = Signal(range(p.hidden_size))
        output, part = Signal(range(block)), Signal(range(most))
        # Outputs of this block and of the blocks after it: one comparison identifies the last
        # block, which may be smaller.
        left = Signal(range(p.sums + 1), init=p.sums)
        row_ends, part_ends, block_ends, final = Signal(), Signal(), Signal(), Signal()
        token, segment_ends = Signal(p.token_shape), Signal()
        m.d.comb += [
            row_ends.eq(element == p.hidden_size - 1),
            final.eq(left <= block),
            part_ends.eq(output == Mux(final, left, block) - 1),
            block_ends.eq(
                part == Mux(self.feed_forward, p.activated_slices, p.attended_slices) - 1
            ),
            self.first.eq(Mux(self.inner, part == 0, element == 0)),
            self.last.eq(Mux(self.inner, block_ends, row_ends)),
            self.load.eq(self.inner & (output == 0)),
            self.release.eq(final & block_ends & ~self.hold),
            segment_ends.eq(Mux(self.inner, part_ends & block_ends, row_ends)),
            self.hold.eq(token != self.last_token),
            self.replay.eq(segment_ends & self.hold),
        ]
        # Loops from innermost to outermost: lines of a segment, tokens, segments.
        with m.If(self.moves & segment_ends):
            m.d.sync += token.eq(Mux(self.hold, token + 1, 0))
        with m.If(self.moves & ~self.inner):
            m.d.sync += element.eq(Mux(row_ends, 0, element + 1))
        with m.If(self.moves & self.inner):
            m.d.sync += output.eq(Mux(part_ends, 0, output + 1))
            with m.If(part_ends):
                m.d.sync += part.eq(Mux(block_ends, 0, part + 1))
                with m.If(block_ends & ~self.hold):
                    m.d.sync += left.eq(Mux(final, p.sums, left - block))
        return m

"""Position of a beat within its pass, and within the matrix whose weights it carries."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from hdl.veda.instructions import PassKind
from hdl.veda.parameters import VedaParameters


class BeatCounter(Unit):
    """Count the beats of passes, whose lines arrive in the order in which they are used.

    In a pass of scores each beat is a dot product, with the query of the first beat. In a pass of
    outputs all beats are one row.

    A matrix of outer products has one beat per element of the state: a row of weights. After one
    beat per element a row of results is complete, and the weights of the next row follow. A row's
    biases are the weights of an element before the others.

    A matrix of inner products has beats of one slice of one output's weights for each array. As
    many outputs as the array has partial sums form a block of outputs: first the first slices of
    all its outputs arrive, then all second slices, and so on. The last block may be smaller. The
    biases are in a slice before the others.

    The lines of a matrix's row, or of its block of outputs, are a segment: every token of a block
    of tokens uses them before the lines of the next segment are used.

    **Latency** 0 cycles.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    header : In(struct)
        The pass of the beat.
    moves : In(1)
        The beat is transferred.
    completes : In(1)
        The pass is transferred: the next beat is the first of the next pass. It may follow the
        last beat by some cycles.
    begins : Out(1)
        The beat is the pass's first.
    ends : Out(1)
        The beat is the pass's last, and no later token needs its line.
    spent : Out(1)
        The pass has no more beats, and is not yet transferred.
    first, last : Out(1)
        Mark a dot product's first and last slice, or a row's first and last beat, as in
        `FlexiblePeArray`.
    load : Out(1)
        The beat of an inner product needs a query, or a slice of the vector.
    release : Out(1)
        The vector's slices are not needed after this beat of a matrix.
    hold, replay : Out(1)
        The line is needed by a later token; the next beat starts the segment again, as in
        `WeightBuffer`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = parameters
        flags = "begins ends spent first last load release hold replay".split()
        super().__init__(
            {
                "header": In(parameters.decoded_pass_layout),
                "moves": In(1),
                "completes": In(1),
                **{name: Out(1) for name in flags},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count elements, or outputs within slices, within tokens, within blocks of outputs."""
        m = Module()
        p, header = self.parameters, self.header
        by = header.by
        block = p.array.partial_sums
        most = p.biases + max(p.attended_slices, p.activated_slices)
        element = Signal(range(p.row_lines))
        output, part = Signal(range(block)), Signal(range(most))
        # Outputs of this block and of the blocks after it: one comparison identifies the last
        # block, which may be smaller.
        left = Signal(range(p.array_outputs + 1), init=p.array_outputs)
        row_ends, part_ends, block_ends, final = Signal(), Signal(), Signal(), Signal()
        token, segment_ends, later = Signal(p.token_shape), Signal(), Signal()
        slices = Mux(
            header.kind == PassKind.DOWN,
            p.biases + p.activated_slices,
            p.biases + p.attended_slices,
        )
        m.d.comb += [
            row_ends.eq(element == p.row_lines - 1),
            final.eq(left <= block),
            part_ends.eq(output == Mux(final, left, block) - 1),
            block_ends.eq(part == slices - 1),
            segment_ends.eq(Mux(by.slice, part_ends & block_ends, row_ends)),
            # Another token of the block uses the segment after this one.
            later.eq(token != header.last_token),
            self.release.eq(final & block_ends & ~later),
            self.hold.eq(later & (by.slice | by.element)),
            self.replay.eq(segment_ends & self.hold),
        ]
        self._count(m)
        with m.If(by.slice):
            m.d.comb += [
                self.load.eq(output == 0),
                self.first.eq(part == 0),
                self.last.eq(block_ends),
            ]
        with m.Elif(by.element):
            m.d.comb += [self.first.eq(element == 0), self.last.eq(row_ends)]
        with m.Elif(by.query):
            m.d.comb += [self.load.eq(self.begins), self.first.eq(1), self.last.eq(1)]
        with m.Else():
            m.d.comb += [self.first.eq(self.begins), self.last.eq(self.ends)]
        # Loops from innermost to outermost: lines of a segment, tokens, segments.
        with m.If(self.moves & by.element):
            m.d.sync += element.eq(Mux(row_ends, 0, element + 1))
        with m.If(self.moves & by.slice):
            m.d.sync += output.eq(Mux(part_ends, 0, output + 1))
            with m.If(part_ends):
                m.d.sync += part.eq(Mux(block_ends, 0, part + 1))
                with m.If(block_ends & ~later):
                    m.d.sync += left.eq(Mux(final, p.array_outputs, left - block))
        with m.If(self.moves & (by.element | by.slice) & segment_ends):
            m.d.sync += token.eq(Mux(later, token + 1, 0))
        return m

    def _count(self, m: Module) -> None:
        """Count the lines of the pass; a line counts when all tokens of the block have used it."""
        # The number of the line, from 1. `ready` of many streams depends on these bits: only one of
        # them needs a comparison, and none an increment.
        number, first, spent = Signal(self.parameters.burst_shape, init=1), Signal(init=1), Signal()
        m.d.comb += [
            self.begins.eq(first),
            self.ends.eq((number == self.header.beats) & ~self.hold),
            self.spent.eq(spent),
        ]
        with m.If(self.completes):
            m.d.sync += [number.eq(1), first.eq(1), spent.eq(0)]
        with m.Elif(self.moves & ~self.hold):
            m.d.sync += [number.eq(number + 1), first.eq(0), spent.eq(self.ends)]

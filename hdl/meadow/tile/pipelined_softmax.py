"""Pipelined softmax module of Figure 2 (d): MAX, EXP and DIV process three tokens at once."""

from dataclasses import dataclass
from typing import Annotated

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.divider import ContinuingDivider
from hdl.arith.reciprocal import normalised
from hdl.fixed_shape import FixedShape
from hdl.memory.memory import Memory
from hdl.memory.memory_fifo import MemoryFifo
from hdl.parameters import Parameters, Range, parameter_object
from hdl.stream.connect import connect_registered
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

SCORE = signed(8)
"""A score; the table of exponentials defines its step."""

DISTANCES = 256
"""Entries of the table: a score is 0 to 255 steps less than its token's maximum."""

EXPONENTIAL_BITS = 16
"""Bits of an exponential."""

RECIPROCAL_FRACTION = 17
"""Fraction bits of the reciprocal of a normalised sum, which is from 1/2 to 1."""

QUEUED = 4
"""Tokens whose maximum or reciprocal can be queued."""


@parameter_object
class PipelinedSoftmaxParameters(Parameters):
    """Dimensions of a pipelined softmax; its golden model and testbench use them too.

    Parameters
    ----------
    scores : int
        Maximum scores per token.
    probability_bits : int
        Bits of a probability.

    Raises
    ------
    ValueError
        If a value breaks a rule; the message names the rule and the value.
    """

    scores: Annotated[int, Range(2, 4096, "scores")] = 512
    probability_bits: Annotated[int, Range(8, 16, "bits")] = 12

    @property
    def sum_width(self) -> int:
        """Bits of a token's sum of exponentials."""
        return EXPONENTIAL_BITS + self.scores.bit_length()

    @property
    def highest_one(self) -> int:
        """Position of the top 1 bit of the maximum sum."""
        return (self.scores * ((1 << EXPONENTIAL_BITS) - 1)).bit_length() - 1

    @property
    def score_layout(self) -> data.StructLayout:
        """A score; `keep` is 0 if it is masked; `reload` only with the first score of a token."""
        return data.StructLayout({"value": SCORE, "keep": 1, "reload": 1, "last": 1})

    @property
    def exponential_layout(self) -> data.StructLayout:
        """An exponential."""
        return data.StructLayout({"value": unsigned(EXPONENTIAL_BITS), "last": 1})

    @property
    def probability_layout(self) -> data.StructLayout:
        """A probability in steps of 2**-probability_bits."""
        value = FixedShape(self.probability_bits, False, self.probability_bits)
        return data.StructLayout({"value": value, "last": 1})

    @property
    def reciprocal_layout(self) -> data.StructLayout:
        """The reciprocal of a sum: a mantissa and the position of the sum's highest 1."""
        mantissa = unsigned(RECIPROCAL_FRACTION + 1)
        return data.StructLayout({"mantissa": mantissa, "exponent": range(self.sum_width)})


@dataclass(frozen=True)
class ExponentialTables:
    """Two tables of exponentials.

    Members
    -------
    memory : Memory
        Both tables.
    used : Signal
        Index of the table in use.
    full : Signal
        The other table is full.
    """

    memory: Memory
    used: Signal
    full: Signal


class PipelinedSoftmax(Unit):
    """Softmax of a stream of scores in three stages, each of which processes another token.

    MAX computes the maximum of a token's scores while they are written to the score buffer. EXP
    subtracts the maximum from the scores of the previous token, reads their exponentials from a
    table, sums them and writes them to the exponential buffer. DIV multiplies the exponentials of
    the token before that by the reciprocal of their sum. The buffers between the stages are rings
    of two tokens: a stage may begin to overwrite a token while the next stage still reads the rest
    of it, so that no cycle is lost between tokens.

    **Latency** ``F + 26`` cycles from the last score of a token to its first probability, where F
    is the number of its scores, but at least 3. **Throughput** one score and one probability per
    cycle, including from token to token: a token of F scores takes F cycles, but at least 21, the
    time of a division.

    **Numerics** the exponentials are 16-bit table entries, indexed by the distance to the maximum;
    masked scores have the exponential 0. The sum S is exact. Its reciprocal is ``R = floor(2**(n +
    17) / S')``, where S' is S shifted left to n bits. A probability is ``e * R``, rounded half up
    to `probability_bits` fraction bits and clamped to all ones. Its error with respect to e / S is
    at most ``0.5 + 2**(probability_bits - 16)`` steps, and 1 step where e / S is 1.

    **Tables** `entries` fills the table that is not in use, with 256 entries in the order of
    distances. A token with `reload` in its first score switches to this table, and waits until the
    table is full. After a reset there is no table: the first token must reload.

    Parameters
    ----------
    parameters : PipelinedSoftmaxParameters
        Scores per token and bits of a probability.

    Members
    -------
    entries : In(stream)
        The exponentials of a table, such as ``65535 * exp(-distance * step)``, rounded.
    scores : In(stream)
        A `value`; `keep`, 0 if the score is masked, and 1 in at least one score of a token;
        `reload`, only with the first score; `last` with the last score of a token, which has at
        most `scores`.
    probabilities : Out(stream)
        The `value` for each score in the order of the scores, 0 if it is masked; `last` as in
        `scores`.

    Raises
    ------
    ValueError
        If a rule of `PipelinedSoftmaxParameters` is broken.
    """

    def __init__(self, *, parameters: PipelinedSoftmaxParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "entries": In(stream.Signature(unsigned(EXPONENTIAL_BITS))),
                "scores": In(stream.Signature(parameters.score_layout)),
                "probabilities": Out(stream.Signature(parameters.probability_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the stages through the two buffers."""
        m = Module()
        p = self.parameters
        depth = 2 * p.scores
        m.submodules.scores = scores = MemoryFifo(shape=p.score_layout, depth=depth)
        m.submodules.exponentials = exponentials = MemoryFifo(
            shape=p.exponential_layout, depth=depth
        )
        m.submodules.maxima = maxima = Fifo(shape=SCORE, depth=QUEUED)
        m.submodules.reciprocals = reciprocals = Fifo(shape=p.reciprocal_layout, depth=QUEUED)
        self._max(m, scores.source, maxima.source)
        sums = self._exp(m, scores.sink, maxima.sink, exponentials.source)
        # A register separates the last addition from the leading-one detection of the sum.
        held = stream.Signature(unsigned(p.sum_width)).create()
        connect_registered(m, sums, held)
        self._reciprocal(m, held, reciprocals.source)
        self._div(m, exponentials.sink, reciprocals.sink)
        return m

    def _max(self, m: Module, buffer: stream.Interface, maxima: stream.Interface) -> None:
        """Stage MAX: buffer every score and compute the maximum of the token."""
        score = self.scores.payload
        begins, peak, larger = Signal(init=1), Signal(SCORE, reset_less=True), Signal(SCORE)
        # The initial value -128 is correct even if it is the maximum.
        before = Mux(begins, -128, peak)
        taken = self.scores.valid & self.scores.ready
        m.d.comb += [
            larger.eq(Mux(score.keep & (score.value > before), score.value, before)),
            # The last score of a token also needs space for the maximum.
            self.scores.ready.eq(buffer.ready & (~score.last | maxima.ready)),
            buffer.valid.eq(taken),
            buffer.payload.eq(score),
            maxima.valid.eq(taken & score.last),
            maxima.payload.eq(larger),
        ]
        with m.If(taken):
            m.d.sync += [begins.eq(score.last), peak.eq(larger)]

    def _table(self, m: Module) -> ExponentialTables:
        """Add both tables, which share one memory."""
        m.submodules.table = table = Memory(depth=2 * DISTANCES, width=EXPONENTIAL_BITS)
        used, full, place = Signal(), Signal(), Signal(range(DISTANCES))
        writes = self.entries.valid & ~full
        m.d.comb += [
            self.entries.ready.eq(~full),
            table.write_enable.eq(writes),
            table.write_address.eq(Cat(place, ~used)),
            table.write_data.eq(self.entries.payload),
        ]
        with m.If(writes):
            m.d.sync += [place.eq(place + 1), full.eq(place == DISTANCES - 1)]
        return ExponentialTables(table, used, full)

    def _exp(
        self,
        m: Module,
        scores: stream.Interface,
        maxima: stream.Interface,
        exponentials: stream.Interface,
    ) -> stream.Interface:
        """Stage EXP: read exponentials and sum them; return the stream of sums."""
        p = self.parameters
        tables = self._table(m)
        table, used, full = tables.memory, tables.used, tables.full
        score = scores.payload
        sums = stream.Signature(unsigned(p.sum_width)).create()
        # Two pipeline stages advance together: the table's output and the sum after it.
        looked, last, keep = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        move, swap, begins = Signal(), Signal(), Signal(init=1)
        total = Signal(p.sum_width, reset_less=True)
        value, after = Signal(EXPONENTIAL_BITS), Signal(p.sum_width)
        m.d.comb += [
            swap.eq(score.reload & ~full),
            scores.ready.eq(move & maxima.valid & ~swap),
            maxima.ready.eq(scores.valid & scores.ready & score.last),
            table.read_enable.eq(move),
            # The token that reloads reads the other table in the same cycle.
            table.read_address.eq(Cat((maxima.payload - score.value)[:8], used ^ score.reload)),
            value.eq(Mux(keep, table.read_data, 0)),
            after.eq(Mux(begins, 0, total) + value),
            # The last exponential of a token also needs space for the sum.
            move.eq(~looked | (exponentials.ready & (~last | sums.ready))),
            exponentials.valid.eq(looked & move),
            exponentials.payload.value.eq(value),
            exponentials.payload.last.eq(last),
            sums.valid.eq(looked & move & last),
            sums.payload.eq(after),
        ]
        taken = scores.valid & scores.ready
        with m.If(taken & score.reload):
            m.d.sync += [used.eq(~used), full.eq(0)]
        with m.If(move):
            m.d.sync += [looked.eq(taken), last.eq(score.last), keep.eq(score.keep)]
        with m.If(looked & move):
            m.d.sync += [begins.eq(last), total.eq(after)]
        return sums

    def _reciprocal(self, m: Module, sums: stream.Interface, reciprocals: stream.Interface) -> None:
        """Divide a constant by each normalised sum; a register holds the exponent meanwhile."""
        p = self.parameters
        fraction, exponent = normalised(m, sums.payload, p.sum_width - 1)
        # A register separates the shift of the normalisation from the divider.
        normal = data.StructLayout({"fraction": len(fraction), "exponent": len(exponent)})
        shifted, ready = (stream.Signature(normal).create() for _ in range(2))
        m.d.comb += [
            shifted.valid.eq(sums.valid),
            shifted.payload.fraction.eq(fraction),
            shifted.payload.exponent.eq(exponent),
            sums.ready.eq(shifted.ready),
        ]
        connect_registered(m, shifted, ready)
        m.submodules.divider = divider = ContinuingDivider(
            dividend_width=RECIPROCAL_FRACTION + 1, divisor_width=p.sum_width
        )
        operands, result = divider.operands, divider.result
        # The divider holds one division, and accepts the next when its result is taken.
        beside = Signal((p.sum_width - 1).bit_length(), reset_less=True)
        with m.If(operands.valid & operands.ready):
            m.d.sync += beside.eq(ready.payload.exponent)
        m.d.comb += [
            ready.ready.eq(operands.ready),
            operands.valid.eq(ready.valid),
            # The upper quotient digits are zero; the initial remainder replaces their steps.
            operands.payload.remainder.eq(1 << p.sum_width - 2),
            operands.payload.dividend.eq(0),
            operands.payload.divisor.eq(Cat(ready.payload.fraction, Const(1, 1))),
            reciprocals.valid.eq(result.valid),
            result.ready.eq(reciprocals.ready),
            reciprocals.payload.mantissa.eq(result.payload.quotient),
            reciprocals.payload.exponent.eq(beside),
        ]

    def _div(
        self, m: Module, exponentials: stream.Interface, reciprocals: stream.Interface
    ) -> None:
        """Stage DIV: multiply by the reciprocal, shift and round."""
        p = self.parameters
        exponential, factor = exponentials.payload, reciprocals.payload
        output = self.probabilities
        move = ~output.valid | output.ready
        taken = exponentials.valid & exponentials.ready
        # Product bits that do not affect rounding for any exponent are dropped.
        least = RECIPROCAL_FRACTION - 1 - p.probability_bits
        product = Signal(EXPONENTIAL_BITS + RECIPROCAL_FRACTION + 1 - least, reset_less=True)
        drop = delay_line(m, factor.exponent, 3, name="drop", enable=move)[-1]
        flags = delay_line(
            m, Cat(taken, exponential.last), 5, name="divided", enable=move, reset=True
        )[-1]
        # Registers separate the selection in the queue from the digits of the multiplication.
        value, mantissa = (
            delay_line(m, operand, 1, name=name, enable=move)[-1]
            for name, operand in (("exponential", exponential.value), ("factor", factor.mantissa))
        )
        # The exponential is multiplied by both halves of the reciprocal, whose products are added
        # one cycle later.
        half = (RECIPROCAL_FRACTION + 1) // 2
        low = Signal(EXPONENTIAL_BITS + half - least, name="product_low", reset_less=True)
        high = Signal(EXPONENTIAL_BITS + half, name="product_high", reset_less=True)
        m.d.comb += [
            exponentials.ready.eq(move & reciprocals.valid),
            reciprocals.ready.eq(taken & exponential.last),
            output.valid.eq(flags[0]),
            output.payload.last.eq(flags[1]),
        ]
        # One more fraction bit decides the rounding; one more integer bit holds a result of 1.
        shifted = Signal(p.probability_bits + 2, reset_less=True)
        quotient = shifted + 1 >> 1
        ones = (1 << p.probability_bits) - 1
        with m.If(move):
            m.d.sync += [
                low.eq(value * mantissa[:half] >> least),
                high.eq(value * mantissa[half:]),
                product.eq(low + (high << half - least)),
                shifted.eq(product >> drop),
                output.payload.value.eq(Mux(quotient > ones, ones, quotient)),
            ]

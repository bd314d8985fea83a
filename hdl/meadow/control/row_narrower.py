"""Input rows of linear layers in INT8, each with a power of two that follows from its maximum."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.rounding import VariableRoundingShift
from hdl.arith.saturating_add import saturate
from hdl.meadow.parameters import STATE, MeadowParameters
from hdl.meadow.tile.element_parameters import OPERAND
from hdl.meadow.tile.tile_parameters import MOST_EXPONENT
from hdl.memory.memory import Memory
from hdl.unit import Unit

SHIFT_STAGES = 2
"""Cycles of the shift and the rounding."""


class RowNarrower(Unit):
    """Shift of each row by the smallest amount with which all its elements fit INT8.

    The activation memory holds the rows in up to 24 bits. While the words of a row are written, in
    any order of rows, a mask collects the bits above INT8 that an element of the row uses. When the
    row is read, its mask determines the shift, and the token's exponent is `MOST_EXPONENT` minus
    it.

    A row is written either by the normaliser or by the combiner; each has a mask for each token.

    **Latency** 3 cycles from a word of the memory to its INT8 word. A row may be read 2 cycles
    after its last word is written. **Throughput** one word read and one word written per cycle.

    **Numerics** ``value / 2**shift``, rounded half to even and clamped to INT8.

    Parameters
    ----------
    parameters : MeadowParameters
        Words and tokens of a block.

    Members
    -------
    written : In(1)
        A word is written in this cycle: `word` of the row `target`; `first` if it is the first word
        of the row, whose mask it replaces.
    read : In(1)
        A word of the row `source` is read in this cycle.
    words : In(stream)
        The word that was read last, and `last`.
    tokens : Out(stream)
        `word` in INT8, `last`, and the `exponent` of its row.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        word = data.StructLayout({"word": p.state_layout, "last": 1})
        super().__init__(
            {
                "written": In(1),
                "first": In(1),
                "target": In(p.row_place_layout),
                "word": In(p.state_layout),
                "read": In(1),
                "source": In(p.row_place_layout),
                "words": In(stream.Signature(word)),
                "tokens": Out(stream.Signature(p.tile.token_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Collect the masks of written rows; shift the words of rows that are read."""
        m = Module()
        p = self.parameters
        # Every mask has two copies: one is read to be updated, the other to shift a row.
        m.submodules.updated = updated = Memory(depth=2 * p.tokens, width=MOST_EXPONENT)
        m.submodules.masks = masks = Memory(depth=2 * p.tokens, width=MOST_EXPONENT)
        low, sign = OPERAND.width - 1, STATE.width - 1
        used = [
            Cat(value[bit] ^ value[sign] for value in self.word).any() for bit in range(low, sign)
        ]
        target = Value.cast(self.target)
        strobe = delay_line(m, self.written, 1, name="strobe", reset=True)[-1]
        first, place = Signal(reset_less=True), Signal(len(target), reset_less=True)
        upper, mask = Signal(MOST_EXPONENT, reset_less=True), Signal(MOST_EXPONENT)
        # A word of the row that is written in this cycle reads the mask before the write.
        again, newest = Signal(reset_less=True), Signal(MOST_EXPONENT, reset_less=True)
        m.d.sync += [
            upper.eq(Cat(*used)),
            first.eq(self.first),
            place.eq(target),
            again.eq(strobe & (place == target)),
            newest.eq(mask),
        ]
        m.d.comb += [
            mask.eq(upper | Mux(first, 0, Mux(again, newest, updated.read_data))),
            updated.read_enable.eq(self.written),
            updated.read_address.eq(target),
            masks.read_enable.eq(self.read),
            masks.read_address.eq(Value.cast(self.source)),
        ]
        for copy in (updated, masks):
            m.d.comb += [
                copy.write_enable.eq(strobe),
                copy.write_address.eq(place),
                copy.write_data.eq(mask),
            ]
        self._shift(m, masks.read_data)
        return m

    def _shift(self, m: Module, mask: Value) -> None:
        """Shift a word; all registers advance together."""
        words, tokens = self.words, self.tokens
        move, shift = Signal(), Signal(range(MOST_EXPONENT + 1))
        # The highest used bit decides, since later assignments have priority.
        for bit in range(MOST_EXPONENT):
            with m.If(mask[bit]):
                m.d.comb += shift.eq(bit + 1)
        exponent = Signal.like(shift)
        m.d.comb += [
            exponent.eq(MOST_EXPONENT - shift),
            move.eq(~tokens.valid | tokens.ready),
            words.ready.eq(move),
        ]
        # The shift has a register of its own, since a row's mask arrives with its word.
        held = Signal(self.parameters.state_layout, reset_less=True)
        amount = Signal.like(shift, reset_less=True)
        with m.If(move):
            m.d.sync += [amount.eq(shift), held.eq(words.payload.word)]
        stages = 1 + SHIFT_STAGES
        tags = Cat(words.payload.last, exponent)
        tags = delay_line(m, tags, stages, name="tags", enable=move)[-1]
        valid = delay_line(m, words.valid, stages, name="valid", enable=move, reset=True)[-1]
        m.d.comb += [
            tokens.valid.eq(valid),
            tokens.payload.last.eq(tags[0]),
            tokens.payload.exponent.eq(tags[1:]),
        ]
        for number in range(len(held)):
            m.submodules[f"shift_{number}"] = rounding = VariableRoundingShift(
                width=STATE.width, largest_shift=MOST_EXPONENT, stages=SHIFT_STAGES, enable=True
            )
            m.d.comb += [
                rounding.enable.eq(move),
                rounding.a.eq(held[number]),
                rounding.shift.eq(amount),
                tokens.payload.word[number].eq(saturate(rounding.result, OPERAND)[0]),
            ]

"""Products whose groups the units scale: a round of tiles after the other, with all its groups."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.utils import ceil_log2

from hdl.p3llm.control.input_ring import InputRing
from hdl.p3llm.control.product_sequencer import ProductSequencer
from hdl.p3llm.matrix_place import SCALE_SET
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import ColumnOperation


class RoundSequencer(ProductSequencer):
    """Go through a linear layer's tiles round by round; keys and values as `ProductSequencer` does.

    A round has its groups one behind the other: special values for eight, scales for two, then a
    group's columns. Inputs come a word at a time in cycles between columns, in every round again.
    Totals leave once a round, what is above 32 bits first.

    **Latency** and **Throughput** as of `ProductSequencer`.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    See `ProductSequencer`; `ending` of a linear layer means that all its inputs of the last round
    are in the units.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        super().__init__(parameters=parameters)
        self.ring = InputRing(parameters=parameters)

    @property
    def linear(self) -> Value:
        """Whether the product is a linear layer's."""
        return self.held.mode == Mode.LINEAR

    def elaborate(self, platform: Any) -> Module:
        """Let the ring write where nothing else is sent; tell which part of a total is read."""
        m = super().elaborate(platform)
        p, ring, held = self.parameters, self.ring, self.held
        m.submodules.ring = ring
        a_word = p.channel.unit.steps_a_word
        with m.If(self.linear):
            m.d.comb += [
                self.word_address.eq(ring.address),
                self.command.step.eq(ring.step),
            ]
        # Of a result the input is that which is read.
        with m.If(self.linear & self.drain.grant):
            m.d.comb += self.command.inputs.eq(self.drain.pump)
        with m.If(ring.grant):
            m.d.comb += [
                self.command.valid.eq(1),
                Value.cast(self.command.operation).eq(ColumnOperation.WRITE_INPUT),
                self.command["all"].eq(1),
                self.command.word.eq(ring.word),
            ]
        m.d.comb += [
            ring.both.eq(held.both),
            ring.rounds.eq(held.rounds),
            ring.words.eq(held.outers * (held.steps // a_word)),
            ring.first_0.eq(self.words[0]),
            ring.first_1.eq(self.words[1]),
        ]
        return m

    def _inputs(self, m: Module, issues: Signal, steps: Value, last_outer: Value) -> None:
        """Start the ring, which writes beside the columns; probabilities and queries come first."""
        with m.If(self.linear):
            m.d.comb += self.ring.start.eq(1)
            m.next = "METADATA"
        with m.Else():
            super()._inputs(m, issues, steps, last_outer)

    def _set_ends(self) -> Value:
        """Return whether the last column, round or group of a set is under way."""
        return Mux(self.linear, self.outer[:3].all(), super()._set_ends())

    def _reads(
        self, m: Module, issues: Signal, last: Value, skipped: Value, following: str
    ) -> None:
        """Let the units take the scales of two groups; all else is read for the NPU."""
        if following != "MULTIPLY":
            super()._reads(m, issues, last, skipped, following)
            return
        with m.If(self.linear):
            self._together(m, issues, ColumnOperation.FILL_SCALES)
            with m.If(self.taken):
                m.d.sync += self.position_now.eq(self.position_now + 1)
                m.next = following
        with m.Else():
            super()._reads(m, issues, last, skipped, following)

    def _multiply(self, m: Module, issues: Signal, last: dict[str, Signal]) -> None:
        """Multiply a column whose inputs are there; totals before it must have left."""
        ends = last["step"] & last["outer"]
        with m.If(self.linear):
            self._column(m, issues, last, ends)
        with m.Else():
            super()._multiply(m, issues, last)

    def _column(self, m: Module, issues: Signal, last: dict[str, Signal], ends: Value) -> None:
        """Multiply a column of a linear layer, and count."""
        command = self.command
        may_come = self.ring.ready & ~(ends & self.drain.busy)
        self._together(m, issues, ColumnOperation.MULTIPLY, may_come)
        m.d.comb += [
            self.column.multiply.eq(1),
            self.ring.taken.eq(self.taken),
            command.first.eq(self.step == 0),
            command["last"].eq(last["step"]),
            command.begins.eq(self.outer == 0),
            command.ends.eq(last["outer"]),
            command.group.eq(self.outer[:3]),
            self.drain.arm.valid.eq(self.taken & ends),
        ]
        # Behind the last round's inputs nothing of them is needed.
        with m.If(self.ring.done & last["round"]):
            m.d.sync += self.ending.eq(1)
        with m.If(self.taken):
            m.d.sync += [self.position_now.eq(self.position_now + 1), self.step.eq(self.step + 1)]
            with m.If(last["step"]):
                m.d.sync += [self.step.eq(0), self.outer.eq(self.outer + 1)]
                # Scales of two groups are used up, special values of eight.
                with m.If(self.outer[: ceil_log2(SCALE_SET)].all()):
                    m.next = "TABLE"
                with m.If(last["set"]):
                    m.next = "METADATA"
                with m.If(last["outer"]):
                    m.d.sync += [self.outer.eq(0), self.round.eq(self.round + 1)]
                    m.next = "METADATA"
                    with m.If(last["round"]):
                        m.d.sync += self.table.eq(0)
                        m.next = "TAIL"

    def _drains(self, m: Module, issues: Signal, counts: dict[str, Signal]) -> None:
        """Write inputs, then read sums, in cycles that nothing else needs."""
        ring, drain = self.ring, self.drain
        taken = Signal(name="taken_or_written")
        m.d.comb += [
            # Words come for columns that wait; sums have the time of a round.
            ring.grant.eq(ring.wants & self.linear & ~issues & ~self.hold),
            taken.eq(issues | ring.grant),
        ]
        super()._drains(m, taken, counts)
        m.d.comb += [drain.arm.more.eq(0), drain.arm.weighted.eq(0), drain.arm.wide.eq(self.linear)]
        with m.If(drain.grant):
            m.d.comb += [self.command.total.eq(drain.wide), self.command.high.eq(drain.high)]

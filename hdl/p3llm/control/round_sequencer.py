"""The product sequencer for units that scale groups: per round of tiles, all its groups."""

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
    """Issue a linear layer's columns round by round; other products as `ProductSequencer`.

    A round contains its groups in order: special values of eight groups, scales of two groups, then
    the columns of a group. Inputs are written one word at a time in cycles between columns, again
    in every round. Totals are read once per round, the bits above 32 first.

    **Latency** and **Throughput** as of `ProductSequencer`.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    As `ProductSequencer`. For a linear layer, `ending` indicates that all inputs of the last round
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
        """Whether the product is that of a linear layer."""
        return self.held.mode == Mode.LINEAR

    def elaborate(self, platform: Any) -> Module:
        """Add the ring's writes, and the part of a total that is read."""
        m = super().elaborate(platform)
        p, ring, held = self.parameters, self.ring, self.held
        m.submodules.ring = ring
        a_word = p.channel.unit.steps_a_word
        with m.If(self.linear):
            m.d.comb += [
                self.word_address.eq(ring.address),
                self.command.step.eq(ring.step),
            ]
        # For a read of results, `inputs` selects the input.
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
        """Start the ring for a linear layer; otherwise write the inputs before the columns."""
        with m.If(self.linear):
            m.d.comb += self.ring.start.eq(1)
            m.next = "METADATA"
        with m.Else():
            super()._inputs(m, issues, steps, last_outer)

    def _set_ends(self) -> Value:
        """Return whether the current column, round or group is the last of its set."""
        return Mux(self.linear, self.outer[:3].all(), super()._set_ends())

    def _reads(
        self, m: Module, issues: Signal, last: Value, skipped: Value, following: str
    ) -> None:
        """Load the scales of two groups into the units; read all others for the NPU."""
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
        """Multiply a column once its inputs are written and earlier totals are read."""
        ends = last["step"] & last["outer"]
        with m.If(self.linear):
            self._column(m, issues, last, ends)
        with m.Else():
            super()._multiply(m, issues, last)

    def _column(self, m: Module, issues: Signal, last: dict[str, Signal], ends: Value) -> None:
        """Multiply a column of a linear layer, and advance the loops."""
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
        # After the inputs of the last round are written, the NPU may overwrite them.
        with m.If(self.ring.done & last["round"]):
            m.d.sync += self.ending.eq(1)
        with m.If(self.taken):
            m.d.sync += [self.position_now.eq(self.position_now + 1), self.step.eq(self.step + 1)]
            with m.If(last["step"]):
                m.d.sync += [self.step.eq(0), self.outer.eq(self.outer + 1)]
                # Scales are loaded for two groups at a time, special values for eight.
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
        """Write inputs, then read sums, in cycles without another command."""
        ring, drain = self.ring, self.drain
        taken = Signal(name="taken_or_written")
        m.d.comb += [
            # Writes of inputs have priority: columns wait for them, sums have the time of a round.
            ring.grant.eq(ring.wants & self.linear & ~issues & ~self.hold),
            taken.eq(issues | ring.grant),
        ]
        super()._drains(m, taken, counts)
        m.d.comb += [drain.arm.more.eq(0), drain.arm.weighted.eq(0), drain.arm.wide.eq(self.linear)]
        with m.If(drain.grant):
            m.d.comb += [self.command.total.eq(drain.wide), self.command.high.eq(drain.high)]

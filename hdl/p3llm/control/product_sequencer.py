# amaranth: UnusedElaboratable=no
"""The FSM that issues the commands of a product: columns, inputs and reads of results."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.control.bank_scheduler import BankScheduler
from hdl.p3llm.control.drain import Drain
from hdl.p3llm.instructions import MemoryBits, memory_instruction
from hdl.p3llm.matrix_place import LINEAR_SET
from hdl.p3llm.npu.sum_accumulator import SumAccumulator
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.dot_product import LANES
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, ColumnOperation
from hdl.p3llm.places import Places
from hdl.unit import Unit

SETTLE = 5
"""Cycles from the last command of a product until all results are stored."""


class ProductSequencer(Unit):
    """Issue the commands of a product: a sequence of columns at ascending positions.

    The sequence consists of sets: a column of metadata, columns that the NPU reads (8-bit scales of
    a linear layer, FP16 scales of keys and values), and the columns of several rounds. In each
    outer step (a group of inputs, or the probabilities that the registers hold) the inputs are
    written first. Sums are read in cycles without a column command, and must be read before the
    next ones are complete.

    **Throughput** one column every second cycle; docs/p3llm/p3llm.md lists what else uses the bus.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    instructions : In(stream)
        A product; the next one is accepted when its last sum has been read.
    layer : In
        Position of the layer's first column.
    position : In
        Position of the token, which is already in the cache.
    column : Out(struct)
        Request to `BankScheduler`.
    taken : In(1)
        The scheduler accepts the request.
    command : Out(struct)
        The column command of this cycle, without `data` and `mask`.
    word_address : Out
        Address of the word of inputs that a command of this cycle writes.
    hold : In(1)
        The word at `word_address` is not complete yet.
    ending : Out(1)
        The last group of a linear layer's inputs is in the units: its sums arrive in order, and its
        inputs are no longer needed.
    tag : Out(struct)
        Tag of the result of this cycle's command, for `SumAccumulator`.
    reads : Out(struct)
        Kind and destination of the column that this cycle's command reads: `scales` at
        `scales_address`, or FP16 `numbers` at `place`, or with `pre_rope` `keys` or their `zeros`
        there.
    idle : Out(1)
        No product is in flight, and none is offered.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        instruction, places = memory_instruction(p), Places(p)
        self.held = Signal(instruction)
        bits = MemoryBits(p)
        self.position_now = Signal(bits.position)
        self.outer, self.round = Signal(bits.outers), Signal(bits.rounds)
        self.step, self.table = Signal(bits.steps), Signal(bits.tail)
        self.unit, self.side = Signal(range(p.units)), Signal()
        self.word, self.pump = Signal(range(p.channel.unit.words)), Signal()
        self.words = [Signal(places.word_bits, name=f"word_{i}") for i in range(2)]
        self.columns = [Signal(places.column_bits, name=f"column_{i}") for i in range(2)]
        self.drain = Drain(parameters=p)
        super().__init__(
            {
                "instructions": In(stream.Signature(instruction)),
                "layer": In(bits.position),
                "position": In(range(p.slots)),
                "column": Out(BankScheduler.column_layout(p.channel, bits.position)),
                "taken": In(1),
                "command": Out(p.channel.column_command_layout),
                "word_address": Out(places.word_bits),
                "hold": In(1),
                "ending": Out(1),
                "tag": Out(SumAccumulator.tag_layout(p)),
                "reads": Out(self.reads_layout(p)),
                "idle": Out(1),
            }
        )

    @staticmethod
    def reads_layout(p: P3llmParameters) -> data.StructLayout:
        """Return the layout of the member `reads`."""
        scales = ceil_log2(p.units) + 3
        return data.StructLayout(
            {
                "scales": 1,
                "scales_address": scales,
                "numbers": 1,
                "place": Places(p).column_bits,
                **({"keys": 1, "zeros": 1} if p.pre_rope else {}),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Nested loops over outer steps, rounds and steps; the drain runs in parallel."""
        m = Module()
        held = self.held
        m.submodules.drain = self.drain
        finals = self._finals(m)
        values = held.mode == Mode.PV
        last_outer = self.outer == finals["outer"]
        final_step = Mux(values & last_outer, finals["tokens"], finals["step"])
        ends = {
            "step": self.step == final_step,
            "round": self.round == finals["round"],
            "outer": last_outer,
            "set": self._set_ends(),
        }
        flags = {name: Signal(name=f"last_{name}") for name in ends}
        m.d.comb += [flags[name].eq(ends[name]) for name in ends]
        issues = Signal()
        with m.FSM():
            # The sums of the last product are read before the next one starts.
            with m.State("IDLE"):
                self._take(m)
            # The instruction is held; compute the loop ends. Without groups it only reads numbers.
            with m.State("BEGIN"):
                m.next = "INPUTS"
                with m.If(held.outers == 0):
                    m.next = "TAIL"
            # A group's inputs are written to all units before its first column.
            with m.State("INPUTS"):
                self._inputs(m, issues, final_step, last_outer)
            # A set starts with the metadata of its codes: special values or zero points.
            with m.State("METADATA"):
                self._metadata(m, issues)
            # Scales of the set: 8-bit scales of two rounds per position, or FP16 of keys and
            # values.
            with m.State("TABLE"):
                last, skipped = self._table_ends(finals["round"] - self.round + 1)
                self._reads(m, issues, last, skipped, "MULTIPLY")
            # Columns that are multiplied, one every second cycle.
            with m.State("MULTIPLY"):
                self._multiply(m, issues, flags)
            # The tail: positions of FP16 numbers that the NPU reads.
            with m.State("TAIL"):
                with m.If(held.tail == 0):
                    m.next = "IDLE"
                with m.Else():
                    self._reads(m, issues, self.table == held.tail - 1, Const(0), "IDLE")
        self._drains(m, issues, flags)
        m.d.comb += [
            self.column.position.eq(self.position_now),
            self.column.unit.eq(self._scattered()),
            self.command.column.eq(self.position_now[:COLUMN_BITS]),
            self.command.mode.eq(held.mode),
            self.command.step.eq(self.step),
            self.command.inputs.eq(held.both),
        ]
        return m

    def _finals(self, m: Module) -> dict[str, Signal]:
        """Return the last index of each loop, from instruction or tokens; valid after BEGIN."""
        p, held = self.parameters, self.held
        counters = {"outer": self.outer, "round": self.round, "step": self.step}
        counters["tokens"] = self.step
        finals = {name: Signal.like(one, name=f"final_{name}") for name, one in counters.items()}
        # Number of steps that the input registers hold; more probabilities need several refills.
        full = p.channel.unit.steps
        # The token at `position` is the last one.
        chunk, block = (self.position >> ceil_log2(size) for size in (p.chunk, p.block))
        m.d.sync += [
            finals["outer"].eq(held.outers - 1),
            finals["round"].eq(held.rounds - 1),
            finals["step"].eq(held.steps - 1),
            finals["tokens"].eq(self.position[ceil_log2(LANES) :] % full),
        ]
        with m.If(held.mode == Mode.QK):
            m.d.sync += [finals["round"].eq(block), finals["step"].eq(p.head_size // LANES - 1)]
        with m.If(held.mode == Mode.PV):
            m.d.sync += [finals["outer"].eq(chunk), finals["step"].eq(full - 1)]
        return finals

    def _set_ends(self) -> Value:
        """Return whether the current column or round is the last of its set."""
        of_values = self.step[: ceil_log2(self.parameters.elements)].all()
        of_keys, of_linear = self.round[:2].all(), self.round[:3].all()
        mode = self.held.mode
        return Mux(mode == Mode.PV, of_values, Mux(mode == Mode.QK, of_keys, of_linear))

    def _scattered(self) -> Value:
        """Return the unit index, permuted so that consecutive units differ in bank group."""
        p = self.parameters
        within = ceil_log2(max(1, p.units // p.channel.timing.groups))
        return Cat(self.unit[len(self.unit) - within :], self.unit[: len(self.unit) - within])

    def _take(self, m: Module) -> None:
        """Accept a product once the sums of the last one have arrived."""
        given = self.instructions.payload
        # Results of the last commands are still in flight when the last column is accepted.
        settled, settle = Signal(), Signal(3, init=SETTLE)
        m.d.comb += [
            settled.eq((settle == 0) & ~self.drain.busy),
            self.idle.eq(settled & ~self.instructions.valid),
            self.instructions.ready.eq(settled),
        ]
        m.d.sync += settle.eq(Mux(self.drain.busy, SETTLE, settle - (settle != 0)))
        # `ending` is cleared at the end of the product.
        with m.If(self.idle):
            m.d.sync += self.ending.eq(0)
        with m.If(self.instructions.valid & settled):
            counters = (self.outer, self.round, self.step, self.table, self.unit)
            m.d.sync += [
                settle.eq(SETTLE),
                self.held.eq(given),
                self.position_now.eq(self.layer + given.base),
                *(counter.eq(0) for counter in (*counters, self.word, self.pump)),
                *(self.words[i].eq(given.inputs[i]) for i in range(2)),
                *(self.columns[i].eq(given.columns[i]) for i in range(2)),
            ]
            m.next = "BEGIN"

    def _inputs(self, m: Module, issues: Signal, final_step: Value, last_outer: Value) -> None:
        """Write the inputs of an outer step, first those of pump 0, then those of pump 1."""
        p, command = self.parameters, self.command
        in_word = ceil_log2(p.result)
        last = self.word == (final_step >> in_word)
        # The second input's words follow the first one's in the unit's registers.
        upper = p.channel.unit.steps >> in_word
        m.d.comb += [
            issues.eq(~self.hold),
            command.valid.eq(~self.hold),
            Value.cast(command.operation).eq(ColumnOperation.WRITE_INPUT),
            command["all"].eq(1),
            command.word.eq(self.word + Mux(self.pump, upper, 0)),
        ]
        for pump in range(2):
            with m.If(self.pump == pump):
                m.d.comb += self.word_address.eq(self.words[pump])
                with m.If(~self.hold):
                    m.d.sync += self.words[pump].eq(self.words[pump] + 1)
        with m.If(~self.hold):
            m.d.sync += self.word.eq(self.word + 1)
            with m.If(last):
                m.d.sync += [self.word.eq(0), self.pump.eq(self.held.both & ~self.pump)]
                with m.If(self.pump | ~self.held.both):
                    m.d.sync += self.ending.eq(last_outer & (self.held.mode == Mode.LINEAR))
                    m.next = "METADATA"

    def _together(
        self, m: Module, issues: Signal, operation: ColumnOperation, valid: Value | int = 1
    ) -> None:
        """Request the next column of all units, and issue its command when it is accepted."""
        column, command = self.column, self.command
        m.d.comb += [
            column.valid.eq(valid),
            column.together.eq(1),
            column.ahead.eq(1),
            issues.eq(self.taken),
            command.valid.eq(self.taken),
            Value.cast(command.operation).eq(operation),
            command.bank.eq(self.position_now[COLUMN_BITS]),
        ]

    def _metadata(self, m: Module, issues: Signal) -> None:
        """Fill the units' metadata from a column."""
        self._together(m, issues, ColumnOperation.FILL_METADATA)
        with m.If(self.taken):
            m.d.sync += [
                self.position_now.eq(self.position_now + 1),
                # Two tables alternate: sums of the last set still use the other one.
                self.side.eq(~self.side),
                self.table.eq(0),
                self.unit.eq(0),
            ]
            m.next = "TABLE"
            # The scales of values are contained in the probabilities.
            with m.If(self.held.mode == Mode.PV):
                m.next = "MULTIPLY"
            # A further pair of the head: the first pair has read the scales.
            with m.If(self.held.scaled):
                m.d.sync += self.position_now.eq(self.position_now + 1 + 2 * KEY_SET)
                m.next = "MULTIPLY"

    def _table_ends(self, left: Value) -> tuple[Value, Value]:
        """Return whether a position of scales is a set's last, and how many positions to skip."""
        halves = (left + 1) >> 1
        pairs = Mux(halves > LINEAR_SET // 2, LINEAR_SET // 2, halves)
        rounds = Mux(left > KEY_SET, KEY_SET, left)
        # Scales of keys, then of values; rounds without tokens are skipped.
        ends = self.table[:2] == (rounds - 1)[:2]
        keys = self.held.mode == Mode.QK
        last = Mux(keys, ends & (self.table >= KEY_SET), self.table == pairs - 1)
        return last, Mux(keys & ends, KEY_SET - rounds, 0)

    def _alone(self, m: Module, issues: Signal) -> None:
        """Request the next column of a single unit, and read it when it is accepted."""
        command = self.command
        m.d.comb += [
            self.column.valid.eq(1),
            self.column.ahead.eq(1),
            issues.eq(self.taken),
            command.valid.eq(self.taken),
            Value.cast(command.operation).eq(ColumnOperation.READ),
            command.bank.eq(Cat(self.position_now[COLUMN_BITS], self._scattered())),
        ]

    def _reads(
        self, m: Module, issues: Signal, last: Value, skipped: Value, following: str
    ) -> None:
        """Read positions for the NPU, unit by unit."""
        p, reads, unit = self.parameters, self.reads, self._scattered()
        in_tail = following == "IDLE"
        # FP16 numbers are sent to the vector unit, 8-bit scales to the accumulator.
        numbers = Const(1) if in_tail else self.held.mode == Mode.QK
        # In a set of keys, the scales of the keys precede those of the values.
        second = Const(0) if in_tail else self.table >= KEY_SET
        self._alone(m, issues)
        m.d.comb += [
            reads.numbers.eq(self.taken & numbers),
            reads.scales.eq(self.taken & ~numbers),
            reads.scales_address.eq(Cat(unit, self.table[:2], self.side)),
            reads.place.eq(Mux(second, self.columns[1], self.columns[0]) + unit),
        ]
        with m.If(self.taken):
            m.d.sync += self.unit.eq(self.unit + 1)
            with m.If(self.unit == p.units - 1):
                m.d.sync += [
                    self.position_now.eq(self.position_now + 1 + skipped),
                    self.table.eq(self.table + 1 + skipped),
                ]
                for number, place in enumerate(self.columns):
                    with m.If(numbers & (second == number)):
                        m.d.sync += place.eq(place + p.units)
                with m.If(last):
                    m.d.sync += self.table.eq(0)
                    m.next = following

    def _multiply(self, m: Module, issues: Signal, last: dict[str, Signal]) -> None:
        """Multiply a column; if it completes sums, the previous ones must have been read."""
        p, command, mode = self.parameters, self.command, self.held.mode
        values, keys = mode == Mode.PV, mode == Mode.QK
        # Sums of P V extend over all outer steps; the others end with their group.
        completes = last["step"] & (~values | last["outer"])
        # Index of the column's metadata in the unit.
        group = Mux(keys, self.round[:2], self.round[:3])
        self._together(m, issues, ColumnOperation.MULTIPLY, ~(completes & self.drain.busy))
        m.d.comb += [
            self.column.multiply.eq(1),
            command.first.eq((self.step == 0) & (~values | (self.outer == 0))),
            command["last"].eq(completes),
            command.group.eq(Mux(values, self.step[: ceil_log2(p.elements)], group)),
            self.drain.arm.valid.eq(self.taken & completes),
        ]
        with m.If(self.taken):
            m.d.sync += [self.position_now.eq(self.position_now + 1), self.step.eq(self.step + 1)]
            # In P V a set is a number of columns, otherwise a number of rounds.
            with m.If(values & last["set"]):
                m.next = "METADATA"
            with m.If(last["step"]):
                m.d.sync += [self.step.eq(0), self.round.eq(self.round + 1)]
                with m.If(last["set"]):
                    m.next = "METADATA"
                with m.If(last["round"]):
                    m.d.sync += [self.round.eq(0), self.outer.eq(self.outer + 1)]
                    m.next = "INPUTS"
                    with m.If(last["outer"]):
                        m.d.sync += self.table.eq(0)
                        m.next = "TAIL"

    def _drains(self, m: Module, issues: Signal, last: dict[str, Signal]) -> None:
        """Read sums in cycles without another command."""
        p, held, drain, command = self.parameters, self.held, self.drain, self.command
        linear, values = held.mode == Mode.LINEAR, held.mode == Mode.PV
        # The channels of a head may occupy only some of the units.
        last_unit = Mux(values, p.head_size // p.elements - 1, p.units - 1)
        slices = Mux(values, 0, self.round * (2 * p.units))
        m.d.comb += [
            drain.arm.both.eq(held.both),
            drain.arm["last"].eq(last_unit),
            *(drain.arm.places[i].eq(held.sums[i] + slices) for i in range(2)),
            drain.arm.weighted.eq(linear),
            # The first group starts a row's sum; the next ones are added to it.
            drain.arm.more.eq(linear & (self.outer != 0)),
            drain.arm.final.eq(linear & last["outer"]),
            drain.arm.table.eq(Cat(self.round[1:3], self.side)),
            drain.arm.odd.eq(self.round[0]),
            drain.grant.eq(drain.wants & ~issues),
            self.tag.eq(drain.tag),
        ]
        # A result is read in a cycle between two column commands.
        with m.If(drain.grant):
            m.d.comb += [
                command.valid.eq(1),
                Value.cast(command.operation).eq(ColumnOperation.READ_RESULT),
                command.bank.eq(drain.unit << 1),
                command.upper.eq(drain.upper),
                command.advance.eq(drain.advance),
            ]

# amaranth: UnusedElaboratable=no
"""The FSM that issues the commands of a product: columns, inputs and reads of results."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.control.bank_scheduler import BankScheduler
from hdl.p3llm.control.drain import Drain
from hdl.p3llm.control.input_ring import InputRing
from hdl.p3llm.instructions import MemoryBits, memory_instruction
from hdl.p3llm.matrix_place import LINEAR_SET, SCALE_SET
from hdl.p3llm.npu.total_collector import TotalCollector
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.dot_product import LANES
from hdl.p3llm.pim.group_scaler import GroupScaler
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, ColumnOperation
from hdl.p3llm.places import Places
from hdl.unit import Unit

SETTLE = 5
"""Cycles from the last command of a product until all results are stored."""


class ProductSequencer(Unit):
    """Issue the commands of a product: a sequence of columns at ascending positions.

    Of keys and values, the sequence consists of sets: a column of metadata, for keys the columns of
    FP16 scales that the NPU reads, and the columns of several rounds. The inputs (a query, or the
    probabilities that the registers hold) are written first.

    A linear layer is a sequence of rounds, each with all its groups: special values of eight
    groups, scales of two groups, then the columns of a group. Inputs are written one word at a time
    in cycles between columns, again in every round. A column that completes a group waits until the
    units have scaled the previous group.

    Sums and totals are read in cycles without a column command, and must be read before the next
    ones are complete. Of totals, the bits above 32 are read first.

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
        All inputs of a linear layer's last round are in the units: its totals arrive in order, and
        its inputs are no longer needed.
    tag : Out(struct)
        Tag of the result of this cycle's command, for `TotalCollector`.
    reads : Out(struct)
        Kind of the column that this cycle's command reads, and its destination `place`: FP16
        `numbers`, or with `pre_rope` `keys` or their `zeros`.
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
        self.unit = Signal(range(p.units))
        self.word, self.pump = Signal(range(p.channel.unit.words)), Signal()
        self.words = [Signal(places.word_bits, name=f"word_{i}") for i in range(2)]
        self.columns = [Signal(places.column_bits, name=f"column_{i}") for i in range(2)]
        self.drain, self.ring = Drain(parameters=p), InputRing(parameters=p)
        # Cycles until a further column may complete a group.
        self.interval = GroupScaler.interval(p.channel.unit.elements, p.channel.unit.pumps)
        self.scaler_wait = Signal(range(self.interval))
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
                "tag": Out(TotalCollector.tag_layout(p)),
                "reads": Out(self.reads_layout(p)),
                "idle": Out(1),
            }
        )

    @staticmethod
    def reads_layout(p: P3llmParameters) -> data.StructLayout:
        """Return the layout of the member `reads`."""
        return data.StructLayout(
            {
                "numbers": 1,
                "place": Places(p).column_bits,
                **({"keys": 1, "zeros": 1} if p.pre_rope else {}),
            }
        )

    @property
    def linear(self) -> Value:
        """Whether the product is that of a linear layer."""
        return self.held.mode == Mode.LINEAR

    def elaborate(self, platform: object) -> Module:
        """Nested loops over outer steps, rounds and steps; drain and ring run in parallel."""
        m = Module()
        held = self.held
        m.submodules.drain, m.submodules.ring = self.drain, self.ring
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
        with m.If(self.scaler_wait != 0):
            m.d.sync += self.scaler_wait.eq(self.scaler_wait - 1)
        with m.FSM():
            # The sums of the last product are read before the next one starts.
            with m.State("IDLE"):
                self._take(m)
            # The instruction is held; compute the loop ends. Without groups it only reads numbers.
            with m.State("BEGIN"):
                m.next = "INPUTS"
                with m.If(held.outers == 0):
                    m.next = "TAIL"
            # The ring writes a linear layer's inputs; others are written before their columns.
            with m.State("INPUTS"):
                with m.If(self.linear):
                    m.d.comb += self.ring.start.eq(1)
                    m.next = "METADATA"
                with m.Else():
                    self._inputs(m, issues, final_step)
            # A set starts with the metadata of its codes: special values or zero points.
            with m.State("METADATA"):
                self._metadata(m, issues)
            # Scales: 8-bit scales of two groups for the units, or FP16 of a set for the NPU.
            with m.State("TABLE"):
                with m.If(self.linear):
                    self._fill_scales(m, issues)
                with m.Else():
                    last, skipped = self._table_ends(finals["round"] - self.round + 1)
                    with m.If(self._reads(m, issues, self.table >= KEY_SET, last, skipped)):
                        m.next = "MULTIPLY"
            # Columns that are multiplied, one every second cycle.
            with m.State("MULTIPLY"):
                with m.If(self.linear):
                    self._multiply_group(m, issues, flags)
                with m.Else():
                    self._multiply(m, issues, flags)
            # The tail: positions of FP16 numbers that the NPU reads.
            with m.State("TAIL"):
                with m.If(held.tail == 0):
                    m.next = "IDLE"
                with m.Else():
                    last = self.table == held.tail - 1
                    with m.If(self._reads(m, issues, Const(0), last, Const(0))):
                        m.next = "IDLE"
        self._writes_inputs(m, issues)
        self._drains(m, issues)
        m.d.comb += [
            self.column.position.eq(self.position_now),
            self.column.unit.eq(self._scattered()),
            self.command.column.eq(self.position_now[:COLUMN_BITS]),
            self.command.mode.eq(held.mode),
            self.command.step.eq(Mux(self.linear, self.ring.step, self.step)),
            # For a read of totals, `inputs` selects the input.
            self.command.inputs.eq(Mux(self.linear & self.drain.grant, self.drain.pump, held.both)),
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
        """Return whether the current column, round of keys or group is the last of its set."""
        of_values = self.step[: ceil_log2(self.parameters.elements)].all()
        of_keys = self.round[: ceil_log2(KEY_SET)].all()
        of_linear = self.outer[: ceil_log2(LINEAR_SET)].all()
        return Mux(self.linear, of_linear, Mux(self.held.mode == Mode.PV, of_values, of_keys))

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

    def _inputs(self, m: Module, issues: Signal, final_step: Value) -> None:
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

    def _fill_scales(self, m: Module, issues: Signal) -> None:
        """Load the scales of two groups into the units."""
        self._together(m, issues, ColumnOperation.FILL_SCALES)
        with m.If(self.taken):
            m.d.sync += self.position_now.eq(self.position_now + 1)
            m.next = "MULTIPLY"

    def _table_ends(self, left: Value) -> tuple[Value, Value]:
        """Return whether a position of scales is a set's last, and how many positions to skip."""
        rounds = Mux(left > KEY_SET, KEY_SET, left)
        # Scales of keys, then of values; rounds without tokens are skipped.
        ends = self.table[:2] == (rounds - 1)[:2]
        return ends & (self.table >= KEY_SET), Mux(ends, KEY_SET - rounds, 0)

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
        self, m: Module, issues: Signal, second: Value, last: Value, skipped: Value
    ) -> Value:
        """Read positions of FP16 numbers for the NPU, unit by unit; return whether all are read.

        Parameters
        ----------
        m : Module
            Module of the sequencer.
        issues : Signal
            A command is issued in this cycle.
        second : Value
            The numbers belong to the second destination: scales of values follow those of keys.
        last : Value
            The position is the last one.
        skipped : Value
            Positions to skip after this one.
        """
        p, reads, unit = self.parameters, self.reads, self._scattered()
        self._alone(m, issues)
        m.d.comb += [
            reads.numbers.eq(self.taken),
            reads.place.eq(Mux(second, self.columns[1], self.columns[0]) + unit),
        ]
        ends = self.taken & (self.unit == p.units - 1)
        with m.If(self.taken):
            m.d.sync += self.unit.eq(self.unit + 1)
        with m.If(ends):
            m.d.sync += [
                self.position_now.eq(self.position_now + 1 + skipped),
                self.table.eq(Mux(last, 0, self.table + 1 + skipped)),
            ]
            for number, place in enumerate(self.columns):
                with m.If(second == number):
                    m.d.sync += place.eq(place + p.units)
        return ends & last

    def _multiply(self, m: Module, issues: Signal, last: dict[str, Signal]) -> None:
        """Multiply a column of keys or values; earlier sums must have been read if it ends some."""
        p, command, values = self.parameters, self.command, self.held.mode == Mode.PV
        # Sums of P V extend over all outer steps; those of Q K^T end with their round.
        completes = last["step"] & (~values | last["outer"])
        # Index of the column's metadata in the unit.
        of_values = self.step[: ceil_log2(p.elements)]
        self._together(m, issues, ColumnOperation.MULTIPLY, ~(completes & self.drain.busy))
        m.d.comb += [
            self.column.multiply.eq(1),
            command.first.eq((self.step == 0) & (~values | (self.outer == 0))),
            command["last"].eq(completes),
            command.group.eq(Mux(values, of_values, self.round[: ceil_log2(KEY_SET)])),
            self.drain.arm.valid.eq(self.taken & completes),
        ]
        with m.If(self.taken):
            m.d.sync += [self.position_now.eq(self.position_now + 1), self.step.eq(self.step + 1)]
            # In P V a set is a number of columns, in Q K^T a number of rounds.
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

    def _multiply_group(self, m: Module, issues: Signal, last: dict[str, Signal]) -> None:
        """Multiply a column of a linear layer once the units have its inputs and can scale."""
        command = self.command
        ends = last["step"] & last["outer"]
        waits = (ends & self.drain.busy) | (last["step"] & (self.scaler_wait != 0))
        self._together(m, issues, ColumnOperation.MULTIPLY, self.ring.ready & ~waits)
        m.d.comb += [
            self.column.multiply.eq(1),
            self.ring.taken.eq(self.taken),
            command.first.eq(self.step == 0),
            command["last"].eq(last["step"]),
            command.begins.eq(self.outer == 0),
            command.ends.eq(last["outer"]),
            command.group.eq(self.outer[: ceil_log2(LINEAR_SET)]),
            self.drain.arm.valid.eq(self.taken & ends),
        ]
        # After the inputs of the last round are written, the NPU may overwrite them.
        with m.If(self.ring.done & last["round"]):
            m.d.sync += self.ending.eq(1)
        with m.If(self.taken):
            m.d.sync += [self.position_now.eq(self.position_now + 1), self.step.eq(self.step + 1)]
            with m.If(last["step"]):
                m.d.sync += [
                    self.step.eq(0),
                    self.outer.eq(self.outer + 1),
                    self.scaler_wait.eq(self.interval - 1),
                ]
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

    def _writes_inputs(self, m: Module, issues: Signal) -> None:
        """Write the ring's inputs in cycles without a column command."""
        ring, held, command = self.ring, self.held, self.command
        m.d.comb += [
            ring.grant.eq(ring.wants & self.linear & ~issues & ~self.hold),
            ring.both.eq(held.both),
            ring.rounds.eq(held.rounds),
            ring.words.eq(held.outers * (held.steps // self.parameters.channel.unit.steps_a_word)),
            ring.first_0.eq(self.words[0]),
            ring.first_1.eq(self.words[1]),
        ]
        with m.If(self.linear):
            m.d.comb += self.word_address.eq(ring.address)
        with m.If(ring.grant):
            m.d.comb += [
                command.valid.eq(1),
                Value.cast(command.operation).eq(ColumnOperation.WRITE_INPUT),
                command["all"].eq(1),
                command.word.eq(ring.word),
            ]

    def _drains(self, m: Module, issues: Signal) -> None:
        """Read sums and totals in cycles without another command."""
        p, held, drain, command = self.parameters, self.held, self.drain, self.command
        values = held.mode == Mode.PV
        # The channels of a head may occupy only some of the units.
        last_unit = Mux(values, p.head_size // p.elements - 1, p.units - 1)
        slices = Mux(values, 0, self.round * (2 * p.units))
        m.d.comb += [
            drain.arm.both.eq(held.both),
            drain.arm["last"].eq(last_unit),
            *(drain.arm.places[i].eq(held.sums[i] + slices) for i in range(2)),
            drain.arm.wide.eq(self.linear),
            # Writes of inputs have priority: columns wait for them, totals have the time of a
            # round.
            drain.grant.eq(drain.wants & ~issues & ~self.ring.grant),
            self.tag.eq(drain.tag),
        ]
        with m.If(drain.grant):
            m.d.comb += [
                command.valid.eq(1),
                Value.cast(command.operation).eq(ColumnOperation.READ_RESULT),
                command.bank.eq(drain.unit << 1),
                command.upper.eq(drain.upper),
                command.advance.eq(drain.advance),
                command.total.eq(drain.wide),
                command.high.eq(drain.high),
            ]

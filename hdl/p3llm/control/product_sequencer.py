# amaranth: UnusedElaboratable=no
"""The sequencer of products: it executes an instruction, and reads the sums of the units."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.control.bank_scheduler import BankScheduler, parity_of
from hdl.p3llm.control.drain import Drain
from hdl.p3llm.control.factor_fetch import FactorFetch
from hdl.p3llm.control.key_fetch import KeyFetch
from hdl.p3llm.control.key_sequencer import KeySequencer
from hdl.p3llm.control.linear_sequencer import LinearSequencer
from hdl.p3llm.control.product_command import product_command, reads_layout
from hdl.p3llm.control.value_sequencer import ValueSequencer
from hdl.p3llm.instructions import MemoryBits, memory_instruction
from hdl.p3llm.npu.total_collector import TotalCollector
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.parts import place_parts
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, ColumnOperation
from hdl.p3llm.places import Places
from hdl.unit import Unit

SETTLE = 5
"""Cycles from the last command of a product until all results are stored."""


class ProductSequencer(Unit):
    """Execute products: sequences of columns at ascending positions.

    Each kind of product has a sequencer that outputs a stream of commands: linear layers
    (`LinearSequencer`), Q K^T (`KeySequencer`), P V (`ValueSequencer`), and reads of factors for
    the NPU (`FactorFetch`). With `pre_rope` the NPU computes Q K^T, and `KeyFetch` reads the
    keys. One sequencer is active at a time. Commands use the bus in this order of priority: columns
    and inputs of the active sequencer; inputs of a linear layer; reads of sums and totals
    (`Drain`).

    **Throughput** one column every second cycle; docs/p3llm/p3llm.md lists what else uses the bus.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    instructions : In(stream)
        A product; the next one is accepted after its last column, while its sums are read.
    layer : In
        Position of the layer's first column.
    position : In
        Position of the token, which is already in the cache.
    column : Out(struct)
        Request to `BankScheduler`.
    taken : In(1)
        The scheduler accepts the request.
    slot : In(1)
        Only if tCCD_S takes several cycles: the cycle may have a command, see `BankScheduler`.
    command : Out(struct)
        The column command of this cycle, without `data` and `mask`.
    word_address : Out
        Address of the word of inputs that a command of this cycle writes.
    hold : In(1)
        The word at `word_address` is not complete yet.
    linear_runs : Out(1)
        The product in flight, or the older one of two, is a linear layer: its totals arrive in
        order.
    tag : Out(struct)
        Tag of the result of this cycle's command, for `TotalCollector`.
    reads : Out(struct)
        Kind of the column that this cycle's command reads, and its destination, see `reads_layout`.
    requested : Out(1)
        No column is left to request: sums may still be read, or no product is in flight.
    completes : Out(1)
        All results of a product are stored; of two products in flight, those of the older one.
    idle : Out(1)
        No product is in flight, and none is offered.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        self.linear, self.values = LinearSequencer(parameters=p), ValueSequencer(parameters=p)
        self.keys = KeyFetch(parameters=p) if p.pre_rope else KeySequencer(parameters=p)
        self.factors, self.drain = FactorFetch(parameters=p), Drain(parameters=p)
        instruction, position = memory_instruction(p), MemoryBits(p).position
        super().__init__(
            {
                "instructions": In(stream.Signature(instruction)),
                "layer": In(position),
                "position": In(range(p.slots)),
                "column": Out(BankScheduler.column_layout(p.channel, position)),
                "taken": In(1),
                **({"slot": In(1)} if p.channel.timing.ccd_s > 1 else {}),
                "command": Out(p.channel.column_command_layout),
                "word_address": Out(Places(p).word_bits),
                "hold": In(1),
                "linear_runs": Out(1),
                "tag": Out(TotalCollector.tag_layout(p)),
                "reads": Out(reads_layout(p)),
                "requested": Out(1),
                "completes": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Start the sequencer of an instruction, and merge the three sources of commands."""
        m = Module()
        place_parts(m, self)
        held = Signal(memory_instruction(self.parameters))
        at = Signal(MemoryBits(self.parameters).position)
        given = Signal(product_command(self.parameters))
        issues = Signal()
        self._control(m, held, at)
        self._request(m, given, issues, at)
        self._issue(m, given, issues, at)
        self._drain(m, held, given, issues)
        with m.If(issues):
            m.d.sync += at.eq(at + given.stride)
        m.d.comb += [
            self.command.mode.eq(held.mode),
            # The last pump of a column, or that of the totals that are read.
            self.command.pump.eq(
                Mux(self.drain.grant & self.drain.wide, self.drain.pump, held.both)
            ),
        ]
        return m

    def _control(self, m: Module, held: data.View, at: Signal) -> None:
        """Accept an instruction, start its sequencer, wait for its end and for the last sums.

        The next instruction starts while the sums of the previous one are read.
        """
        parts = (self.linear, self.keys, self.values, self.factors)
        given = self.instructions.payload
        # An older product has no column left; its last results are in flight, or still to be read.
        older, draining, settle = Signal(), Signal(), Signal(range(SETTLE))
        linear, older_linear = Signal(), Signal()
        ends = Signal()
        m.d.comb += [
            self.completes.eq(older & ~draining & (settle == 0)),
            # The instruction in flight, or the older one of two.
            self.linear_runs.eq(Mux(older, older_linear, linear)),
            *(part.instruction.eq(held) for part in parts),
            *(part.token.eq(self.position) for part in (self.keys, self.values)),
        ]
        m.d.sync += settle.eq(Mux(draining, SETTLE - 1, settle - (settle != 0)))
        with m.If(~self.drain.busy):
            m.d.sync += draining.eq(0)
        with m.If(self.completes):
            m.d.sync += older.eq(0)
        with m.If(ends):
            m.d.sync += [older.eq(1), draining.eq(1), older_linear.eq(linear), linear.eq(0)]
        done = Cat(part.done for part in parts).any()
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    self.requested.eq(1),
                    self.idle.eq(~older & ~self.instructions.valid),
                    self.instructions.ready.eq(1),
                ]
                with m.If(self.instructions.valid):
                    m.d.sync += [
                        held.eq(given),
                        at.eq(self.layer + given.base),
                        linear.eq((given.mode == Mode.LINEAR) & (given.groups != 0)),
                    ]
                    m.next = "BEGIN"
            # The instruction is held. A product without groups only reads factors.
            with m.State("BEGIN"):
                with m.If(held.groups == 0):
                    m.d.comb += self.factors.begin.eq(1)
                with m.Else():
                    m.d.comb += [
                        self.linear.begin.eq(held.mode == Mode.LINEAR),
                        self.keys.begin.eq(held.mode == Mode.QK),
                        self.values.begin.eq(held.mode == Mode.PV),
                    ]
                m.next = "RUN"
            # One of the sequencers outputs its commands.
            with m.State("RUN"):
                with m.If(done):
                    m.d.comb += ends.eq(~older)
                    m.next = "IDLE"
                    with m.If(older):
                        m.next = "LAST"
            # Results of two products are in flight: the older ones must be stored first.
            with m.State("LAST"):
                m.d.comb += ends.eq(~older)
                with m.If(~older):
                    m.next = "IDLE"

    def _request(self, m: Module, given: data.View, issues: Signal, at: Signal) -> None:
        """Request the column of the active sequencer's command; issue it when it is accepted."""
        valid = Signal()
        for part in (self.linear, self.keys, self.values, self.factors):
            m.d.comb += part.commands.ready.eq(issues)
            with m.If(part.commands.valid):
                m.d.comb += [valid.eq(1), given.eq(part.commands.payload)]
        # Inputs need no bank, but a word that the NPU has stored.
        of_inputs = given.operation == ColumnOperation.WRITE_INPUT
        # A column that completes sums waits until the previous sums have been read. A linear layer
        # begins after those of keys and values, which its groups would replace: its inputs depend
        # on them.
        waits = given.completes & self.drain.busy
        m.d.comb += [
            self.column.valid.eq(valid & ~of_inputs & ~waits),
            self.column.multiply.eq(given.operation == ColumnOperation.MULTIPLY),
            self.column.all_units.eq(given.operation != ColumnOperation.READ),
            self.column.ahead.eq(1),
            self.column.position.eq(at),
            self.column.unit.eq(self._scattered(given.unit)),
            issues.eq(Mux(of_inputs, self._in_slot(~self.hold), self.taken) & valid & ~waits),
        ]

    def _issue(self, m: Module, given: data.View, issues: Signal, at: Signal) -> None:
        """Issue the active sequencer's command, or write a linear layer's inputs."""
        command, inputs, unit = self.command, self.linear.inputs, self._scattered(given.unit)
        of_unit = ("step", "group", "first", "last", "begins", "ends", "word")
        m.d.comb += [
            command.valid.eq(issues),
            Value.cast(command.operation).eq(given.operation),
            command["all"].eq(given.operation == ColumnOperation.WRITE_INPUT),
            command.bank.eq(Cat(parity_of(at[COLUMN_BITS:]), unit)),
            command.column.eq(at[:COLUMN_BITS]),
            *(command[name].eq(given[name]) for name in of_unit),
            self.word_address.eq(given.address),
            inputs.ready.eq(self._in_slot(~issues) & ~self.hold),
        ]
        # Kinds of reads are one-hot; `place` is that of the first unit.
        for name, _field in self.reads.shape():
            m.d.comb += self.reads[name].eq(
                given.reads.place + unit if name == "place" else given.reads[name] & issues
            )
        with m.If(inputs.valid):
            m.d.comb += self.word_address.eq(inputs.payload.address)
            with m.If(inputs.ready):
                m.d.comb += [
                    command.valid.eq(1),
                    Value.cast(command.operation).eq(ColumnOperation.WRITE_INPUT),
                    command["all"].eq(1),
                    command.word.eq(inputs.payload.word),
                    command.half.eq(inputs.payload.half),
                    command.upper.eq(inputs.payload.upper),
                ]

    def _drain(self, m: Module, held: data.View, given: data.View, issues: Signal) -> None:
        """Read sums and totals in cycles without another command."""
        p, drain, command = self.parameters, self.drain, self.command
        inputs = self.linear.inputs
        # The channels of a head, or the last tokens, may occupy only some of the units.
        last_unit = Signal(range(p.units))
        unit_of_token = self.position[ceil_log2(p.elements) : ceil_log2(p.block)]
        last_round = given.round == self.position >> ceil_log2(p.block)
        with m.Switch(held.mode):
            with m.Case(Mode.PV):
                m.d.comb += last_unit.eq(p.head_size // p.elements - 1)
            with m.Case(Mode.QK):
                m.d.comb += last_unit.eq(Mux(last_round, unit_of_token, p.units - 1))
            with m.Default():
                m.d.comb += last_unit.eq(p.units - 1)
        m.d.comb += [
            drain.arm.valid.eq(issues & given.completes),
            drain.arm.both.eq(held.both),
            drain.arm["last"].eq(last_unit),
            *(drain.arm.places[i].eq(held.sums[i] + given.round * (2 * p.units)) for i in range(2)),
            drain.arm.wide.eq(held.mode == Mode.LINEAR),
            drain.arm.shared.eq(held.shared & (given.round == (held.rounds - 1))),
            # Writes of inputs have priority: columns wait for them, totals have the time of a
            # round.
            drain.grant.eq(drain.wants & self._in_slot(~issues) & ~(inputs.valid & inputs.ready)),
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

    def _in_slot(self, allowed: Value) -> Value:
        """Return whether a command is allowed and the cycle may have one."""
        return allowed & self.slot if self.parameters.channel.timing.ccd_s > 1 else allowed

    def _scattered(self, unit: Value) -> Value:
        """Return the unit index, permuted so that consecutive units differ in bank group."""
        p = self.parameters
        within = ceil_log2(max(1, p.units // p.channel.timing.groups))
        return Cat(unit[len(unit) - within :], unit[: len(unit) - within])

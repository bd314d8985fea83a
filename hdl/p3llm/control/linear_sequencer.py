"""The FSM of a linear layer's columns."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.control.input_ring import InputRing
from hdl.p3llm.control.product_command import product_command
from hdl.p3llm.instructions import MemoryBits, memory_instruction
from hdl.p3llm.matrix_place import LINEAR_SET, SCALE_SET
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.group_scaler import GroupScaler
from hdl.p3llm.pim.pim_channel import ColumnOperation
from hdl.p3llm.places import Places
from hdl.unit import Unit


class LinearSequencer(Unit):
    """Multiply the inputs of a linear layer by its weights, round by round of output tiles.

    A round has all groups of its outputs: special values of `LINEAR_SET` groups, scales of
    `SCALE_SET` groups, then the columns of each group. All inputs are written again in every round,
    one word at a time, in cycles without a column; `twice` in a round with two passes over them. A
    column that ends a group waits until the units can scale it. In a `shared` last round, the lower
    half of the units multiplies the first half of the groups, the upper half the others.

    **Latency** 2 cycles from `begin` to the first command. **Throughput** one column every second
    cycle.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    begin : In(1)
        Start with `instruction`; not while a product is in progress.
    instruction : In(struct)
        `groups` per output, `rounds` and `steps` columns per group; `twice`, if a round has two
        passes; `shared`; `inputs`, the places of the inputs in the NPU; held until `done`.
    commands : Out(stream)
        Columns, see `product_command`.
    inputs : Out(stream)
        A `word` of the units' input registers to write, and its `address` in the NPU; with `half`
        only those of the `upper` or the lower units.
    done : Out(1)
        The last column is multiplied in this cycle.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        inputs = {"word": range(p.channel.unit.words), "address": Places(p).word_bits}
        inputs |= {"half": 1, "upper": 1}
        super().__init__(
            {
                "begin": In(1),
                "instruction": In(memory_instruction(p)),
                "commands": Out(stream.Signature(product_command(p))),
                "inputs": Out(stream.Signature(data.StructLayout(inputs))),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Nested loops over rounds, groups and columns."""
        m = Module()
        p, given, commands = self.parameters, self.instruction, self.commands
        m.submodules.ring = ring = InputRing(parameters=p)
        self._connect_ring(m, ring)
        bits = MemoryBits(p)
        loops = {"round": bits.rounds, "group": bits.groups, "step": bits.steps}
        round_, group, step = (Signal(width, name=name) for name, width in loops.items())
        finals = [Signal(width, name=f"final_{name}") for name, width in loops.items()]
        last_round, last_group, last_step = (Signal(name=f"last_{name}") for name in loops)
        # The loop ends are registered, which shortens the path to the scheduler.
        groups = Mux(given.shared & last_round, (given.groups + 1) >> 1, given.groups)
        m.d.sync += [
            final.eq(count - 1)
            for final, count in zip(finals, (given.rounds, groups, given.steps), strict=True)
        ]
        # Special values are stored for eight groups at a time, scales for two.
        last_of_set = group[: ceil_log2(LINEAR_SET)].all()
        last_of_pair = group[: ceil_log2(SCALE_SET)].all()
        # Cycles until the units can scale a further group.
        interval = GroupScaler.interval(p.channel.unit.elements, p.channel.unit.pumps)
        scaling = Signal(range(interval))
        moves = commands.valid & commands.ready
        ends = last_step & last_group
        payload = commands.payload
        m.d.comb += [
            last_round.eq(round_ == finals[0]),
            last_group.eq(group == finals[1]),
            last_step.eq(step == finals[2]),
            payload.stride.eq(1),
            payload.round.eq(round_),
            payload.step.eq(ring.step),
            payload.group.eq(group[: ceil_log2(LINEAR_SET)]),
            payload.first.eq(step == 0),
            payload["last"].eq(last_step),
            payload.begins.eq(group == 0),
            payload.ends.eq(last_group),
            payload.completes.eq(ends),
        ]
        with m.If(scaling != 0):
            m.d.sync += scaling.eq(scaling - 1)
        operation = Value.cast(payload.operation)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [counter.eq(0) for counter in (round_, group, step)]
                with m.If(self.begin):
                    m.next = "START_RING"
            # The ring starts to write the inputs of the first columns.
            with m.State("START_RING"):
                m.d.comb += ring.start.eq(1)
                m.next = "SPECIAL_VALUES"
            # The special values of a set of groups, from a column into the units.
            with m.State("SPECIAL_VALUES"):
                m.d.comb += [commands.valid.eq(1), operation.eq(ColumnOperation.FILL_METADATA)]
                with m.If(moves):
                    m.next = "SCALES"
            # The 8-bit scales of a pair of groups.
            with m.State("SCALES"):
                m.d.comb += [commands.valid.eq(1), operation.eq(ColumnOperation.FILL_SCALES)]
                with m.If(moves):
                    m.next = "COLUMNS"
            # The columns of a group.
            with m.State("COLUMNS"):
                m.d.comb += [
                    commands.valid.eq(ring.ready & ~(last_step & (scaling != 0))),
                    operation.eq(ColumnOperation.MULTIPLY),
                    ring.taken.eq(moves),
                    self.done.eq(moves & ends & last_round),
                ]
                with m.If(moves):
                    m.d.sync += step.eq(step + 1)
                with m.If(moves & last_step):
                    m.d.sync += [step.eq(0), group.eq(group + 1), scaling.eq(interval - 1)]
                    with m.If(last_group):
                        m.d.sync += [group.eq(0), round_.eq(round_ + 1)]
                    # What the next group needs first.
                    with m.If(self.done):
                        m.next = "IDLE"
                    with m.Elif(last_group | last_of_set):
                        m.next = "SPECIAL_VALUES"
                    with m.Elif(last_of_pair):
                        m.next = "SCALES"
        return m

    def _connect_ring(self, m: Module, ring: InputRing) -> None:
        """Connect the ring to the instruction and to `inputs`."""
        given, inputs = self.instruction, self.inputs
        words = given.steps // self.parameters.channel.unit.steps_a_word
        # To the ring, each pass over the inputs is a round of its own.
        passes, groups = given.rounds, given.groups
        if self.parameters.vocabulary_passes > 1:
            passes, groups = passes << given.twice, groups >> given.twice
        m.d.comb += [
            ring.both.eq(given.both),
            ring.rounds.eq(passes),
            ring.words.eq(groups * words),
            ring.shared.eq(given.shared),
            ring.shared_words.eq(((given.groups + 1) >> 1) * words),
            ring.first_0.eq(given.inputs[0]),
            ring.first_1.eq(given.inputs[1]),
            inputs.valid.eq(ring.wants),
            inputs.payload.word.eq(ring.word),
            inputs.payload.address.eq(ring.address),
            inputs.payload.half.eq(ring.half),
            inputs.payload.upper.eq(ring.upper),
            ring.grant.eq(inputs.valid & inputs.ready),
        ]

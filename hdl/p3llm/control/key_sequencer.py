"""The FSM of Q K^T in the compute units."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from hdl.p3llm.control.input_writer import InputWriter
from hdl.p3llm.control.product_command import product_members
from hdl.p3llm.control.scale_fetch import ScaleFetch
from hdl.p3llm.instructions import MemoryBits
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.p3llm.pim.pim_channel import ColumnOperation
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class KeySequencer(Unit):
    """Multiply one or two queries by all keys of a head, round by round of tokens.

    The inputs, which are the queries, are written first. A set of `KEY_SET` rounds has a column of
    zero points, positions of scales that the NPU reads, and the columns of its rounds.

    **Latency** 1 cycle from `begin` to the first command. **Throughput** one column every second
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
        `inputs` and `columns`, places in the NPU; `scales_held`: the NPU holds the scales; stable
        until `done`.
    token : In
        Position of the last token.
    commands : Out(stream)
        See `product_command`.
    done : Out(1)
        The last column is multiplied in this cycle.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        super().__init__(product_members(p, token=In(range(p.slots))))

    def elaborate(self, platform: object) -> Module:
        """Nested loops over rounds and columns."""
        m = Module()
        p, commands = self.parameters, self.commands
        m.submodules.writer = writer = InputWriter(parameters=p)
        m.submodules.scales = scales = ScaleFetch(parameters=p)
        steps = p.head_size // PE_LANES
        round_, step = Signal(MemoryBits(p).rounds), Signal(range(p.channel.unit.steps))
        final_round = Signal.like(round_)
        # A register, which shortens the path to the scheduler.
        m.d.sync += final_round.eq(self.token >> ceil_log2(p.block))
        last_round, last_step = Signal(), Signal()
        last_of_set = round_[: ceil_log2(KEY_SET)].all()
        moves = commands.valid & commands.ready
        m.d.comb += [
            last_round.eq(round_ == final_round),
            last_step.eq(step == steps - 1),
            writer.begin.eq(self.begin),
            writer.instruction.eq(self.instruction),
            writer.final_step.eq(steps - 1),
            scales.begin.eq(self.begin),
            scales.instruction.eq(self.instruction),
            scales.rounds.eq(final_round - round_ + 1),
        ]
        payload = commands.payload
        operation = Value.cast(payload.operation)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [round_.eq(0), step.eq(0)]
                with m.If(self.begin):
                    m.next = "INPUTS"
            # Queries are written to the units.
            with m.State("INPUTS"):
                m.d.comb += writer.enable.eq(1)
                connect_streams(m, writer.commands, commands)
                with m.If(writer.done):
                    m.next = "ZERO_POINTS"
            # The zero points of a set, from a column into the units.
            with m.State("ZERO_POINTS"):
                m.d.comb += [
                    commands.valid.eq(1),
                    operation.eq(ColumnOperation.FILL_METADATA),
                    # The head's first pair has read the scales: they are skipped.
                    payload.stride.eq(Mux(self.instruction.scales_held, 1 + 2 * KEY_SET, 1)),
                    scales.starts.eq(moves & ~self.instruction.scales_held),
                ]
                with m.If(moves):
                    m.next = "SCALES"
                    with m.If(self.instruction.scales_held):
                        m.next = "COLUMNS"
            # The scales of a set, for the NPU.
            with m.State("SCALES"):
                connect_streams(m, scales.commands, commands)
                with m.If(scales.done):
                    m.next = "COLUMNS"
            # The columns of a round.
            with m.State("COLUMNS"):
                m.d.comb += [
                    commands.valid.eq(1),
                    operation.eq(ColumnOperation.MULTIPLY),
                    payload.stride.eq(1),
                    payload.step.eq(step),
                    payload.group.eq(round_[: ceil_log2(KEY_SET)]),
                    payload.first.eq(step == 0),
                    payload["last"].eq(last_step),
                    payload.completes.eq(last_step),
                    payload.round.eq(round_),
                    self.done.eq(moves & last_step & last_round),
                ]
                with m.If(moves):
                    m.d.sync += step.eq(Mux(last_step, 0, step + 1))
                with m.If(moves & last_step):
                    m.d.sync += round_.eq(round_ + 1)
                    with m.If(last_round):
                        m.next = "IDLE"
                    with m.Elif(last_of_set):
                        m.next = "ZERO_POINTS"
        return m

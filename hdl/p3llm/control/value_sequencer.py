"""The FSM of P V in the compute units."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from hdl.p3llm.control.input_writer import InputWriter
from hdl.p3llm.control.product_command import product_members
from hdl.p3llm.instructions import MemoryBits
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.p3llm.pim.pim_channel import ColumnOperation
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class ValueSequencer(Unit):
    """Multiply the probabilities of one or two query heads by all values of a head.

    The input registers hold the probabilities of `chunk` tokens: they are filled and used in turn.
    A set of ``elements`` columns, of `PE_LANES` tokens each, is preceded by a column of zero
    points. One sum extends over all tokens. The scales of values are contained in the
    probabilities.

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
        `inputs`, the places of the probabilities in the NPU; held until `done`.
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
        """Nested loops over fillings of the registers and their columns."""
        m = Module()
        p, commands = self.parameters, self.commands
        m.submodules.writer = writer = InputWriter(parameters=p)
        full = p.channel.unit.steps
        filling, step = Signal(MemoryBits(p).groups), Signal(range(full))
        final_filling, final_step = Signal.like(filling), Signal.like(step)
        # Registers, which shorten the path to the scheduler.
        m.d.sync += [
            final_filling.eq(self.token >> ceil_log2(p.chunk)),
            final_step.eq(self.token[ceil_log2(PE_LANES) :] % full),
        ]
        last_filling, last_step = Signal(), Signal()
        in_set = step[: ceil_log2(p.elements)]
        moves = commands.valid & commands.ready
        m.d.comb += [
            last_filling.eq(filling == final_filling),
            last_step.eq(step == writer.final_step),
            writer.begin.eq(self.begin),
            writer.instruction.eq(self.instruction),
            writer.final_step.eq(Mux(last_filling, final_step, full - 1)),
        ]
        payload = commands.payload
        operation = Value.cast(payload.operation)
        completes = last_step & last_filling
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [filling.eq(0), step.eq(0)]
                with m.If(self.begin):
                    m.next = "INPUTS"
            # Probabilities are written to the units; a filling starts with a set.
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
                    payload.stride.eq(1),
                ]
                with m.If(moves):
                    m.next = "COLUMNS"
            # The columns of a set.
            with m.State("COLUMNS"):
                m.d.comb += [
                    commands.valid.eq(1),
                    operation.eq(ColumnOperation.MULTIPLY),
                    payload.stride.eq(1),
                    payload.step.eq(step),
                    payload.group.eq(in_set),
                    payload.first.eq((step == 0) & (filling == 0)),
                    payload["last"].eq(completes),
                    payload.completes.eq(completes),
                    self.done.eq(moves & completes),
                ]
                with m.If(moves):
                    m.d.sync += step.eq(Mux(last_step, 0, step + 1))
                    with m.If(last_step):
                        m.d.sync += filling.eq(filling + 1)
                    with m.If(completes):
                        m.next = "IDLE"
                    with m.Elif(last_step):
                        m.next = "INPUTS"
                    with m.Elif(in_set.all()):
                        m.next = "ZERO_POINTS"
        return m

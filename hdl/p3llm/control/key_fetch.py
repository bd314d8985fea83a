"""The FSM that reads a head's keys into the NPU, if they are quantised before RoPE."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from hdl.p3llm.control.product_command import next_unit, product_members, read_unit
from hdl.p3llm.control.scale_fetch import ScaleFetch
from hdl.p3llm.instructions import MemoryBits
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class KeyFetch(Unit):
    """Read the keys of a head for the NPU, unit by unit: `KeySequencer` with `pre_rope`.

    The columns have the order in which the units would use them: a set's zero points, the scales
    of its keys and values, its keys.

    **Latency** 1 cycle from `begin` to the first command. **Throughput** one column of one unit per
    command.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    begin : In(1)
        Start with `instruction`; not while keys are being read.
    instruction : In(struct)
        `inputs`, the places of keys and of zero points in the NPU; `columns`, those of scales; held
        until `done`.
    token : In
        Position of the last token.
    commands : Out(stream)
        See `product_command`.
    done : Out(1)
        The last column is read in this cycle.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        super().__init__(product_members(p, token=In(range(p.slots))))

    def elaborate(self, platform: object) -> Module:
        """Nested loops over rounds, positions and units."""
        m = Module()
        p, commands, given = self.parameters, self.commands, self.instruction
        m.submodules.scales = scales = ScaleFetch(parameters=p)
        round_, unit = Signal(MemoryBits(p).rounds), Signal(range(p.units))
        step = Signal(range(p.head_size // PE_LANES))
        keys, zeros = (
            Signal.like(given.inputs[i], name=n) for i, n in enumerate(("keys", "zeros"))
        )
        final_round = Signal.like(round_)
        # A register, which shortens the path to the scheduler.
        m.d.sync += final_round.eq(self.token >> ceil_log2(p.block))
        last_round = round_ == final_round
        last_step = step == p.head_size // PE_LANES - 1
        last_of_set = round_[: ceil_log2(KEY_SET)].all()
        payload = commands.payload
        # A column of keys or zero points is read in this cycle.
        moves = Signal()
        ends = next_unit(m, unit, moves, p.units)
        read = [commands.valid.eq(1), moves.eq(commands.ready)]
        m.d.comb += [
            scales.begin.eq(self.begin),
            scales.instruction.eq(given),
            scales.rounds.eq(final_round - round_ + 1),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [round_.eq(0), step.eq(0)]
                with m.If(self.begin):
                    m.d.sync += [keys.eq(given.inputs[0]), zeros.eq(given.inputs[1])]
                    m.next = "ZERO_POINTS"
            # The position with the zero points of a set.
            with m.State("ZERO_POINTS"):
                read_unit(m, payload, unit, p.units)
                m.d.comb += [*read, payload.reads.zeros.eq(1), payload.reads.place.eq(zeros)]
                with m.If(ends):
                    m.d.comb += scales.starts.eq(1)
                    m.d.sync += zeros.eq(zeros + p.units)
                    m.next = "SCALES"
            # The positions with the scales of a set.
            with m.State("SCALES"):
                connect_streams(m, scales.commands, commands)
                with m.If(scales.done):
                    m.next = "KEYS"
            # The positions of a round of keys.
            with m.State("KEYS"):
                read_unit(m, payload, unit, p.units)
                m.d.comb += [
                    *read,
                    payload.reads.keys.eq(1),
                    payload.reads.place.eq(keys),
                    self.done.eq(ends & last_step & last_round),
                ]
                with m.If(ends):
                    m.d.sync += [keys.eq(keys + p.units), step.eq(Mux(last_step, 0, step + 1))]
                with m.If(ends & last_step):
                    m.d.sync += round_.eq(round_ + 1)
                    with m.If(last_round):
                        m.next = "IDLE"
                    with m.Elif(last_of_set):
                        m.next = "ZERO_POINTS"
        return m

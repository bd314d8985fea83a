"""P3-LLM's PIM compute unit (PCU): 16 PEs and the registers of HBM-PIM (Figure 6 c, V-D)."""

from dataclasses import dataclass
from typing import Annotated

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.memory.memory import Memory
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.p3llm.pim.group_scaler import SCALE_BITS, GroupScaler
from hdl.p3llm.pim.operand_decoder import InputDecoder, Mode
from hdl.p3llm.pim.pim_processing_element import (
    PimProcessingElement,
    PimProcessingElementParameters,
)
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.unit import Unit

STEP_BITS = 8 * PE_LANES
"""Bits of the inputs that a column is multiplied by."""

ELEMENT_BITS = 4 * PE_LANES
"""Bits of a column per element."""


class Operation(enum.Enum, shape=3):
    """Operation of a compute unit's command.

    Members
    -------
    MULTIPLY
        Multiply the column that arrives one cycle later by one step of the inputs.
    WRITE_INPUT, WRITE_METADATA
        Write a word of the input register, or all metadata, from the command's data.
    FILL_METADATA
        Load the metadata from the column that arrives one cycle later.
    READ_RESULT
        Output half of the elements' finished sums, or a part of the totals.
    FILL_SCALES
        Load the scales of two groups from the column that arrives one cycle later, those of the
        even group first.
    """

    MULTIPLY = 0
    WRITE_INPUT = 1
    WRITE_METADATA = 2
    FILL_METADATA = 3
    READ_RESULT = 4
    FILL_SCALES = 7


@parameter_object
class PimComputeUnitParameters(Parameters):
    """Dimensions of a compute unit.

    Parameters
    ----------
    elements : int
        Processing elements (PEs); a column has 16 bits for each.
    pumps : int
        Inputs that share a column; each takes one cycle. 2 is the paper's throughput-enhanced PCU.
    steps : int
        Steps of the input register for each pump; a step holds the inputs of one column. At least
        two words.
    """

    elements: Annotated[int, PowerOfTwo(4, 16, "elements")] = 16
    pumps: Annotated[int, Range(1, 2, "inputs a column")] = 2
    steps: Annotated[int, PowerOfTwo(4, 64, "columns")] = 32

    def __post_init__(self) -> None:
        """Check that an input register has at least two words."""
        super().__post_init__()
        least = 2 * self.steps_a_word
        require(self.steps >= least, f"steps must be at least the elements, {least}", self.steps)

    @property
    def column_bits(self) -> int:
        """Bits of a DRAM column, of a word of inputs, and of the metadata."""
        return ELEMENT_BITS * self.elements

    @property
    def steps_a_word(self) -> int:
        """Steps per word of the input register."""
        return self.column_bits // STEP_BITS

    @property
    def words(self) -> int:
        """Words of the input register, for all pumps."""
        return self.pumps * self.steps // self.steps_a_word

    @property
    def command_layout(self) -> data.StructLayout:
        """Payload of a command.

        ``operation``. For `MULTIPLY`: ``mode``; ``step`` of the inputs; ``group`` of the metadata;
        ``pump``, the last one that has inputs; ``first`` and ``last`` column of a sum;
        the group ``begins`` or ``ends`` the totals of a linear layer's outputs. For `WRITE_INPUT`:
        ``word``. For `READ_RESULT`: the ``upper`` half; ``advance`` to the sums of the next pump;
        or read a ``total`` of ``pump``. It is the lower 32 bits
        of half of the elements, or with ``high`` the upper 16 bits of all of them. For both writes:
        ``data``.
        """
        return data.StructLayout(
            {
                "operation": Operation,
                "mode": Mode,
                "step": ceil_log2(self.steps),
                "group": 4,
                "pump": 1,
                "first": 1,
                "last": 1,
                "word": ceil_log2(self.words),
                "upper": 1,
                "advance": 1,
                "begins": 1,
                "ends": 1,
                "total": 1,
                "high": 1,
                "data": data.ArrayLayout(8, self.column_bits // 8),
            }
        )


@dataclass(frozen=True)
class Column:
    """A column and its metadata, which the elements use in the cycles of all pumps.

    Members
    -------
    codes : Signal
        The codes of all elements.
    group_bits : list[list[Value]]
        Metadata of each code, by element and lane.
    mode : enum.EnumView[Mode]
        The product.
    """

    codes: Signal
    group_bits: list[list[Value]]
    mode: "enum.EnumView[Mode]"


class PimComputeUnit(Unit):
    """The paper's PCU: multiply columns of 4-bit codes by inputs that are held in registers.

    Commands are executed in order: a result includes all earlier commands. `MULTIPLY` is accepted
    only in cycles that are a multiple of `pumps` after a reset; the cycles in between serve all
    other commands. A column arrives at `column` in the cycle after its command was accepted, which
    is the latency of the DRAM.

    **Latency** ``pumps + 4`` cycles from the command that completes a sum to the first result.
    **Throughput** one column every `pumps` cycles, ``4 * elements`` multiply-adds per cycle; reads
    and writes in between take no extra cycles. **Numerics** exact integers, see
    `PimProcessingElement`.

    Parameters
    ----------
    parameters : PimComputeUnitParameters
        Elements, inputs and registers of the unit.

    Members
    -------
    commands : In(stream)
        See `PimComputeUnitParameters.command_layout`.
    column : In
        The code of element e, lane l is in the four bits from ``16 * e + 4 * l`` up.
    results : Out(stream)
        Half of the elements' finished sums, 32 bits each, lowest element first. Sums that are not
        read before the next ones are complete are lost.
    flags : Out(struct)
        `nan`: an input of a multiplication was a NaN and was treated as 0. Sticky.
    clear_flags : In(1)
        Clear the flag, unless a NaN arrives in the same cycle.

    Raises
    ------
    ValueError
        If `PimComputeUnitParameters` rejects a value.
    """

    def __init__(self, *, parameters: PimComputeUnitParameters) -> None:
        self.parameters = parameters
        bits = parameters.column_bits
        super().__init__(
            {
                "commands": In(stream.Signature(parameters.command_layout)),
                "column": In(bits),
                "results": Out(stream.Signature(data.ArrayLayout(32, parameters.elements // 2))),
                "flags": Out(data.StructLayout({"nan": 1})),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Decode commands; align inputs and column at the elements."""
        m = Module()
        p = self.parameters
        command = self.commands.payload
        takes = {one: Signal(name=f"takes_{one.name.lower()}") for one in Operation}
        # A command takes effect only in the cycle in which it is accepted.
        taken = self.commands.valid & self.commands.ready
        m.d.comb += [takes[one].eq(taken & (command.operation == one)) for one in Operation]
        multiply = takes[Operation.MULTIPLY]

        # The active pump; the elements' rings of sums rotate with it.
        pump = Signal(range(p.pumps), name="pump")
        if p.pumps > 1:
            m.d.sync += pump.eq(pump + 1)
        # A multiplication starts in the first pump's cycle; its command is held for the others.
        held = Signal(p.command_layout, reset_less=True)
        with m.If(multiply):
            m.d.sync += Cat(self._kept(held)).eq(Cat(self._kept(command)))
        begun = delay_line(m, multiply, p.pumps, name="begun", reset=True)
        # The second pump reads its own word of the same step.
        step = Mux(multiply, command.step, held.step)

        inputs = self._inputs(m, takes[Operation.WRITE_INPUT], pump, step)
        works = Signal()
        m.d.comb += works.eq(multiply | (begun[-2] & held.pump if p.pumps > 1 else 0))
        decoded = self._decoders(m, inputs, works, held)
        column = self._column(m, takes, held, begun[1])

        turn = multiply | (begun[-2] if p.pumps > 1 else 0)
        # Both pumps of a column start or complete their sums.
        current = Mux(multiply, Cat(command.first, command.last), Cat(held.first, held.last))
        first_last = delay_line(m, current & turn.replicate(2), 4, name="ends", reset=True)
        # A result waits for all earlier sums, so that `results.valid` is not withdrawn.
        idle = ~Cat(value[1] for value in first_last[1:]).any()
        scaler = self._scaler(m, takes, held, begun[1])
        # Only the scaler reads the group sums of a linear layer.
        reads_sum = takes[Operation.READ_RESULT] & command.advance & ~command.total
        advance = scaler.advance | reads_sum
        begins = (pump == 0) & (~command["last"] | scaler.free)
        idle = Mux(command.total, ~scaler.completing, idle & ~scaler.scaling)
        finished = self._elements(m, column, decoded, first_last[4], advance)
        self._results(m, finished, scaler, idle)
        with m.Switch(command.operation):
            # A column takes one cycle per pump and starts with the first pump.
            with m.Case(Operation.MULTIPLY):
                m.d.comb += self.commands.ready.eq(begins)
            with m.Case(Operation.READ_RESULT):
                m.d.comb += self.commands.ready.eq(self.results.ready & idle)
            with m.Default():
                m.d.comb += self.commands.ready.eq(1)
        return m

    def _results(self, m: Module, finished: list[Value], scaler: GroupScaler, idle: Value) -> None:
        """Output one column's width: half of the elements' sums, or a part of the totals."""
        command, half = self.commands.payload, self.parameters.elements // 2
        reads = command.operation == Operation.READ_RESULT
        sums = Mux(command.upper, Cat(finished[half:]), Cat(finished[:half]))
        m.d.comb += [
            Value.cast(scaler.sums).eq(Cat(finished)),
            self.results.valid.eq(self.commands.valid & reads & idle),
            self.results.payload.eq(Mux(command.total, scaler.result, sums)),
        ]

    def _kept(self, command: data.View) -> list[Value]:
        """Return the fields of a command that are used after the cycle in which it is accepted."""
        names = ["mode", "step", "group", "pump", "first", "last", "begins", "ends"]
        return [Value.cast(getattr(command, name)) for name in names]

    def _inputs(self, m: Module, writes: Value, pump: Signal, step: Value) -> Value:
        """Return four inputs, one cycle after their step; a word is striped across all memories."""
        p = self.parameters
        command = self.commands.payload
        read, written = [], Value.cast(command.data)
        bank_bits = ceil_log2(p.steps_a_word)
        # The step's upper bits and the pump select the word, the lower bits the memory.
        address = Cat(step[bank_bits:], pump)
        for bank in range(p.steps_a_word):
            m.submodules[f"inputs_{bank}"] = words = Memory(depth=p.words, width=STEP_BITS)
            m.d.comb += [
                words.write_enable.eq(writes),
                words.write_address.eq(command.word),
                words.write_data.eq(written.word_select(bank, STEP_BITS)),
                words.read_enable.eq(1),
                words.read_address.eq(address),
            ]
            read.append(words.read_data)
        chosen = delay_line(m, step[:bank_bits], 1, name="bank")[1]
        return Array(read)[chosen]

    def _decoders(
        self, m: Module, inputs: Value, works: Signal, held: data.View
    ) -> list[InputDecoder]:
        """Decode four inputs into registers; those of an idle cycle are 0."""
        decoders = []
        active = delay_line(m, works, 2, name="works", reset=True)
        nans = []
        for lane in range(PE_LANES):
            m.submodules[f"input_{lane}"] = decoder = InputDecoder(stages=1)
            m.d.comb += [
                decoder.mode.eq(held.mode),
                # The code 0 is zero in both formats.
                decoder.code.eq(inputs.word_select(lane, 8) & active[1].replicate(8)),
            ]
            nans.append(decoder.nan)
            decoders.append(decoder)
        with m.If(Cat(nans).any() & active[2]):
            m.d.sync += self.flags.nan.eq(1)
        with m.Elif(self.clear_flags):
            m.d.sync += self.flags.nan.eq(0)
        return decoders

    def _column(
        self, m: Module, takes: dict[Operation, Signal], held: data.View, begun: Value
    ) -> Column:
        """Hold the column and its metadata until the last pump has used them."""
        p = self.parameters
        metadata = Signal(p.column_bits, reset_less=True)
        fills = delay_line(m, takes[Operation.FILL_METADATA], 1, name="fills", reset=True)[1]
        # If both occur in one cycle, the write is the later command.
        with m.If(takes[Operation.WRITE_METADATA]):
            m.d.sync += metadata.eq(self.commands.payload.data)
        with m.Elif(fills):
            m.d.sync += metadata.eq(self.column)

        codes = Signal(p.column_bits, reset_less=True)
        mode = Signal(Mode, reset_less=True)
        of_element = [Signal(4, name=f"of_element_{i}", reset_less=True) for i in range(p.elements)]
        of_lane = [Signal(4, name=f"of_lane_{i}", reset_less=True) for i in range(PE_LANES)]
        # Metadata by mode: per output, per token (PEs are tokens), per token (lanes are tokens).
        linear = held.mode == Mode.LINEAR
        selects = metadata.word_select(held.group[:3], 2 * p.elements)
        zero_points = metadata.word_select(held.group[:2], 4 * p.elements)
        tokens = metadata.word_select(held.group[: ceil_log2(p.elements)], 4 * PE_LANES)
        # The bank's data arrive one cycle after the command and are held until the last pump.
        with m.If(begun):
            m.d.sync += [codes.eq(self.column), mode.eq(held.mode)]
            m.d.sync += [
                bits.eq(Mux(linear, selects.word_select(i, 2), zero_points.word_select(i, 4)))
                for i, bits in enumerate(of_element)
            ]
            m.d.sync += [bits.eq(tokens.word_select(i, 4)) for i, bits in enumerate(of_lane)]
        # In P V each lane is a token; otherwise an element has one group or one token.
        tokens_in_lanes = mode == Mode.PV
        group_bits = [
            [Mux(tokens_in_lanes, lane, element) for lane in of_lane] for element in of_element
        ]
        return Column(codes, group_bits, mode)

    def _scaler(
        self, m: Module, takes: dict[Operation, Signal], held: data.View, begun: Value
    ) -> GroupScaler:
        """Instantiate the scaler; connect the marks of a group's last column and its scales."""
        p, command = self.parameters, self.commands.payload
        m.submodules.scaler = scaler = GroupScaler(elements=p.elements, pumps=p.pumps)
        scales = Signal(p.column_bits, name="scales", reset_less=True)
        fills = delay_line(m, takes[Operation.FILL_SCALES], 1, name="fills_scales", reset=True)
        with m.If(fills[1]):
            m.d.sync += scales.eq(self.column)
        # A column has the scales of two groups.
        of_group = scales.word_select(held.group[0], SCALE_BITS * p.elements)
        m.d.comb += [
            scaler.group.valid.eq(begun & held["last"] & (held.mode == Mode.LINEAR)),
            scaler.group.begins.eq(held.begins),
            scaler.group.ends.eq(held.ends),
            Value.cast(scaler.group.scales).eq(of_group),
            scaler.read.pump.eq(command.pump),
            scaler.read.upper.eq(command.upper),
            scaler.read.high.eq(command.high),
        ]
        return scaler

    def _elements(
        self,
        m: Module,
        column: Column,
        decoded: list[InputDecoder],
        first_last: Value,
        advance: Value,
    ) -> list[Value]:
        """Return the elements' finished sums."""
        p = self.parameters
        parameters = PimProcessingElementParameters(pumps=p.pumps)
        # Products are shifted one cycle after the multiplication.
        shifts = delay_line(m, Cat(one.shift for one in decoded), 1, name="shifts")[1]
        finished = []
        for number in range(p.elements):
            element = PimProcessingElement(parameters=parameters)
            m.submodules[f"element_{number}"] = element
            m.d.comb += [
                element.mode.eq(column.mode),
                element.codes.eq(column.codes.word_select(number, ELEMENT_BITS)),
                element.group_bits.eq(Cat(column.group_bits[number])),
                element.significands.eq(Cat(one.significand for one in decoded)),
                element.shifts.eq(shifts),
                element.first.eq(first_last[0]),
                element.last.eq(first_last[1]),
                element.advance.eq(advance),
            ]
            finished.append(element.finished.as_unsigned())
        return finished

# amaranth: UnusedElaboratable=no
"""P3-LLM: decoder layers of a decode step on PIM compute units and an NPU (Figure 6 a to c)."""

import operator
from collections.abc import Iterable
from functools import reduce

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.p3llm.control.append_sequencer import AppendSequencer
from hdl.p3llm.control.bank_scheduler import BankScheduler
from hdl.p3llm.control.product_sequencer import ProductSequencer
from hdl.p3llm.control.program import Program
from hdl.p3llm.control.sequencer import InstructionIssuer
from hdl.p3llm.instructions import (
    MemoryBits,
    MemoryOperation,
    memory_instruction,
    npu_instruction,
    reads_running_sums,
)
from hdl.p3llm.npu.total_collector import TotalCollector
from hdl.p3llm.npu.vector_unit import VectorUnit
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.parts import place_parts
from hdl.p3llm.pim.pim_channel import STATUS, ColumnOperation, PimChannel
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

COLUMN_FIELDS = ("valid", "operation", "bank", "all", "column", "mask", "data")
"""Fields of a command that a read or write of a column uses; see
`PimChannelParameters.column_command_layout`."""

RESULT_LATENCY = 3
"""Cycles from a sequencer's command to its result: its register here, and two of the channel."""


class P3llm(Unit):
    """Decoder layers of a decode step; weights, keys and values are stored in DRAM banks.

    With a vocabulary, the step after the last layer applies the final norm and the LM head to a
    hidden state and outputs the argmax of the logits.

    The mapping of operators is that of the paper's Figure 6 (a): the compute units (PCUs) multiply
    matrices by vectors, the NPU computes norms, rotary embedding, smoothing, softmax, second-level
    scaling, SiLU, residual sums and all quantisers. One scale is in another place than in the
    paper: a compute unit multiplies group sums of a linear layer by 8-bit scales (`GroupScaler`).

    A `Program` holds one list of instructions for the memory side and one for the NPU side. An
    instruction waits until the instructions of the other side whose data it uses are complete, or
    with `chaining` until the last of them outputs its data in order. The token's key and value are
    written into the banks before its queries are multiplied by the cache. No token is evicted; the
    cache of a request holds up to `slots` tokens, which the host must not exceed.

    `ColumnOperation.MULTIPLY` reads a column, 64 codes of 4 bits, from one bank of each compute
    unit. In the first of two cycles the unit multiplies the 64 codes by the inputs of one request
    or query head. In the second it multiplies them by those of another request, or of another query
    head of the same key/value head, if there is one. The three products of Figure 6 (b) are the
    members of `operand_decoder.Mode`, which selects the formats.

    No port sets a threshold, and none writes weights: the host stores weights, their scales and the
    smoothing factors in the arrays of the banks (`golden.p3llm.dram_image`). The NPU computes the
    scales of activations, queries, keys and values when it quantises them.

    **Latency** two cycles per column of all units, and the time that banks and NPU add to it; see
    docs/p3llm/p3llm.md. **Throughput** one layer at a time. **Numerics**
    bit-identical to `golden.p3llm.p3llm`: products are exact integers, of 32 bits in the compute
    units and 48 bits after the group scales; all other operations are in binary32, FP16 or fixed
    point and round once.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    instructions : In(stream)
        `layer`, and for each request the `position` of its token: the number of cached tokens. The
        value after the last layer selects the LM head. Accepted when the last state or prediction
        of the previous instruction has been transferred.
    states_in, states_out : In, Out(stream)
        Hidden states in binary32, request by request, `lanes` elements per slice in ascending
        order; `last` with the last slice of each request. Of more than two requests, each pair is
        output before the next pair is input. A step of the LM head outputs no state.
    predictions : Out(stream)
        With a vocabulary, for each request in order: the `token` with the largest logit, and this
        logit as `sum` in binary32. Ties resolve to the lowest token; ``-0`` equals ``0``.
    bank_command, bank_command_1, ... : Out(struct)
        Commands for the arrays of the banks, as in `PimChannel`; one port per pseudo-channel.
    bank_data, bank_data_1, ... : In(ArrayLayout)
        For each unit, the column that one of its banks was commanded to read in the previous cycle.
        The arrays answer after one cycle; the scheduler keeps all times between commands.
    status : Out(struct)
        Violations as in `PimChannel`, of any pseudo-channel. Zero unless the RTL has an error: the
        scheduler issues legal commands only.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        channels = range(p.pseudo_channels)
        self.channel = [PimChannel(parameters=p.channel) for _ in channels]
        self.scheduler = BankScheduler(parameters=p.channel, position_bits=MemoryBits(p).position)
        self.products = ProductSequencer(parameters=p)
        self.appends = AppendSequencer(parameters=p)
        self.totals = [TotalCollector(parameters=p) for _ in channels]
        self.vectors = VectorUnit(parameters=p)
        program = Program(p)
        sides = zip(program.encoded, program.layouts, program.layer_counts, strict=True)
        self.memory_issuer, self.npu_issuer = (
            InstructionIssuer(
                program=instructions,
                width=layout.size,
                bits=program.bits,
                requests=p.batch,
                lm_head_start=end if p.vocabulary_size else 0,
            )
            # The instructions of the LM head follow those of the layer.
            for instructions, layout, end in sides
        )
        predictions = {"predictions": Out(stream.Signature(p.prediction_layout))}
        columns = data.ArrayLayout(p.channel.unit.column_bits, p.units)
        banks = {}
        for number in channels:
            banks[self.banks_port("bank_command", number)] = Out(p.channel.bank_command_layout)
            banks[self.banks_port("bank_data", number)] = In(columns)
        super().__init__(
            (predictions if p.vocabulary_size else {})
            | {
                "instructions": In(stream.Signature(p.instruction_layout)),
                "states_in": In(stream.Signature(p.state_layout)),
                "states_out": Out(stream.Signature(p.state_layout)),
                **banks,
                "status": Out(STATUS),
            }
        )

    @staticmethod
    def banks_port(name: str, number: int) -> str:
        """Return the name of a port to a pseudo-channel's banks."""
        return f"{name}_{number}" if number else name

    def elaborate(self, platform: object) -> Module:
        """Connect the memory side, the NPU side and the program."""
        m = Module()
        # Every unit that the constructor built becomes a submodule.
        place_parts(m, self)
        self._commands(m)
        self._results(m)
        self._program(m)
        vectors = self.vectors
        connect_streams(m, self.states_in, vectors.states_in)
        connect_streams(m, vectors.states_out, self.states_out)
        connect_streams(m, vectors.codes, self.appends.codes)
        if self.parameters.vocabulary_size:
            connect_streams(m, vectors.predictions, self.predictions)
        m.d.comb += [
            self.status.eq(self._any_of(channel.status for channel in self.channel)),
            vectors.sums.eq(Cat(totals.sums for totals in self.totals)),
            # All pseudo-channels execute the same commands, so one of them indicates completion for
            # all.
            vectors.complete.eq(self.totals[0].complete),
        ]
        for number, channel in enumerate(self.channel):
            m.d.comb += [
                getattr(self, self.banks_port("bank_command", number)).eq(channel.bank_command),
                channel.bank_data.eq(getattr(self, self.banks_port("bank_data", number))),
            ]
        for totals in self.totals:
            m.d.comb += [
                totals.linear_runs.eq(self.products.linear_runs & ~self.products.completes),
                totals.read_enable.eq(vectors.sums_read),
                totals.read_address.eq(vectors.sums_address),
            ]
        return m

    @staticmethod
    def _any_of(statuses: Iterable[data.View]) -> Value:
        """Return the violations of any pseudo-channel."""
        return reduce(operator.or_, map(Value.cast, statuses))

    def _commands(self, m: Module) -> None:
        """Check the column that either sequencer requests; register the command and its data."""
        products, appends, scheduler = self.products, self.appends, self.scheduler
        writes_input = Signal()
        command = Signal(self.parameters.channel.column_command_layout)
        # Instructions of the memory side are issued sequentially, so only one sequencer is active.
        appending = appends.writes
        quiet, memory = Signal(), self.memory_issuer
        coming = Signal.like(scheduler.coming)
        following = memory_instruction(self.parameters)(memory.instructions.payload)
        m.d.sync += [
            quiet.eq(memory.waits & products.requested & ~appending),
            # An append begins at other positions than its base.
            coming.valid.eq(
                memory.offered
                & products.requested
                & ~appending
                & (following.operation == MemoryOperation.PRODUCT)
            ),
            coming.position.eq(products.layer + following.base),
        ]
        m.d.comb += [
            scheduler.column.eq(Mux(appending, appends.column, products.column)),
            # A register: the path from the instruction to the banks' rules is long.
            scheduler.quiet.eq(quiet),
            scheduler.coming.eq(coming),
            products.taken.eq(scheduler.taken & ~appending),
            appends.taken.eq(scheduler.taken & appending),
            self.vectors.word_address.eq(products.word_address),
        ]
        if self.parameters.channel.timing.ccd_s > 1:
            m.d.comb += products.slot.eq(scheduler.slot)
        m.d.sync += [
            command.eq(products.command),
            writes_input.eq(products.command.operation == ColumnOperation.WRITE_INPUT),
        ]
        # An append has an operation and data of its own; reads and writes of columns ignore the
        # fields that control a computation.
        with m.If(appending):
            m.d.sync += [command[name].eq(appends.command[name]) for name in COLUMN_FIELDS]
        # The word of inputs was addressed with the command; it arrives when the command is
        # registered.
        of_inputs = writes_input & ~delay_line(m, appending, 1, name="appending")[1]
        bits = self.parameters.channel.unit.column_bits
        for number, channel in enumerate(self.channel):
            given = Value.cast(channel.column_command.data)
            m.d.comb += [
                channel.row_command.eq(scheduler.row_command),
                channel.column_command.eq(command),
            ]
            # Commands are the same; the data to write and the inputs differ per pseudo-channel.
            # `command` has the first one's column to write, `others` has those of the others.
            if number > 0:
                written = Signal(bits, name=f"written_{number}")
                m.d.sync += written.eq(appends.others.word_select(number - 1, bits))
                m.d.comb += given.eq(written)
            with m.If(of_inputs):
                m.d.comb += given.eq(self.vectors.word.word_select(number, bits))

    def _results(self, m: Module) -> None:
        """Route results to the destinations that their commands specified."""
        products, vectors = self.products, self.vectors
        results = [channel.result for channel in self.channel]
        # The collector gets the tag one cycle before the result. The last item of a delay line has
        # all cycles of delay, item 0 has none.
        tag = delay_line(m, products.tag, RESULT_LATENCY - 1, name="tag", reset=True)[-1]
        reads = delay_line(m, products.reads, RESULT_LATENCY, name="reads", reset=True)[-1]
        for totals, result in zip(self.totals, results, strict=True):
            m.d.comb += [totals.next_tag.eq(tag), totals.result.eq(result.data)]
        m.d.comb += [
            vectors.columns_write.eq(reads.factors),
            vectors.columns_address.eq(reads.place),
            vectors.columns_data.eq(Cat(result.data for result in results)),
            *(
                getattr(vectors, f"{name}_write").eq(getattr(reads, name))
                for name in (("keys", "zeros") if self.parameters.pre_rope else ())
            ),
            self.appends.arrived.eq(results[0].valid),
            self.appends.arrived_data.eq(Cat(result.data for result in results)),
        ]

    def _program(self, m: Module) -> None:
        """Start both instruction lists; the memory side's list has products and appends.

        `layer` is the DRAM position of a layer's first column, `position` the number of a token.
        """
        p, given = self.parameters, self.instructions.payload
        vectors, products, appends = self.vectors, self.products, self.appends
        memory, npu = self.memory_issuer, self.npu_issuer
        appended = delay_line(m, appends.writes, 1, name="wrote", reset=True)[1] & ~appends.writes
        operation = npu_instruction(p)(npu.instructions.payload).operation
        of_totals = Cat(operation == one for one in reads_running_sums(p)).any()
        position = Signal(data.ArrayLayout(range(p.slots), p.batch))
        layer = Signal(MemoryBits(p).position)
        for part, side in ((vectors, npu), (products, memory), (appends, memory)):
            request = side.request if p.batch > 1 else 0
            m.d.comb += part.position.eq(position[request])
        # Both lists of a layer start together: each side counts the completed instructions of the
        # other from 0.
        ends = memory.ended & npu.ended
        m.d.comb += [
            products.layer.eq(layer),
            appends.layer.eq(layer),
            self.instructions.ready.eq(ends),
            *(side.begin.eq(ends & self.instructions.valid) for side in (memory, npu)),
            *(
                side.lm_head.eq(given.layer == p.layers)
                for side in (memory, npu)
                if p.vocabulary_size
            ),
            memory.other_done.eq(npu.done),
            npu.other_done.eq(memory.done),
            # Either side may start on data that the instruction in flight on the other side outputs
            # in order.
            memory.chaining.eq(vectors.stores_inputs),
            npu.chaining.eq(products.linear_runs & of_totals),
            vectors.dependent.eq(npu.dependent),
            products.hold.eq(memory.dependent & (products.word_address >= vectors.stored_words)),
            npu.completes.eq(vectors.idle),
            memory.completes.eq(products.completes | appended),
        ]
        with m.If(ends & self.instructions.valid):
            m.d.sync += [
                position.eq(given.position),
                # Layers are stored back to back and have the same size.
                layer.eq(given.layer * p.layer_positions),
            ]
        m.d.comb += [
            vectors.instructions.valid.eq(npu.instructions.valid),
            Value.cast(vectors.instructions.payload).eq(npu.instructions.payload),
            npu.instructions.ready.eq(vectors.instructions.ready),
        ]
        issued = memory.instructions
        # One instruction list serves two sequencers.
        is_append = (
            memory_instruction(self.parameters)(issued.payload).operation == MemoryOperation.APPEND
        )
        # Appends and products share the command bus. Products may overlap.
        for side, chosen in (
            (products, ~is_append & ~appends.writes),
            (appends, is_append & products.idle),
        ):
            m.d.comb += [
                side.instructions.valid.eq(issued.valid & chosen),
                Value.cast(side.instructions.payload).eq(issued.payload),
            ]
        m.d.comb += issued.ready.eq(
            Mux(
                is_append,
                appends.instructions.ready & products.idle,
                products.instructions.ready & ~appends.writes,
            )
        )

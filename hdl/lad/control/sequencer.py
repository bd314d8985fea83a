"""Sequencer of the decoder layers: it moves slices between a memory and the modules of a tile."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.head_numbers import HeadNumbers
from hdl.lad.control.instruction_fetch import InstructionFetch
from hdl.lad.control.logit_argmax import LogitArgmax
from hdl.lad.control.operand_reader import OperandReader
from hdl.lad.control.result_writer import ResultWriter
from hdl.lad.instructions import Destination
from hdl.lad.linear.sum_slices import SumSlices
from hdl.lad.parameters import LadParameters
from hdl.memory.memory import Memory
from hdl.stream.connect import connect_handshake, connect_streams
from hdl.unit import Unit


class LayerSequencer(Unit):
    """Execute the instructions of a `LayerProgram` in order, for all samples of a batch.

    An instruction reads slices from the on-chip memory for the modules, and writes their results,
    or slices from outside. All operands of an instruction are in the memory when it begins. Within
    an instruction, a slice is overwritten only by the result computed from it.

    **Latency** 2 cycles from the last slice written to the first slice that the next instruction
    reads. **Throughput** one slice read and one written per cycle.

    Parameters
    ----------
    parameters : LadParameters
        Dimensions of model and tile.

    Members
    -------
    slices : In(stream)
        Slices from outside in the program's order: `values`; with cosines and sines the `length` of
        their sample and, with a vocabulary, `predicts`.
    sums, results, outputs : In(stream)
        Results of the linear module, the special function module and the attention pipeline.
    tasks, inputs, vectors, factors, addends, steps : Out(stream)
        Their operands.
    coming : Out(stream)
        The heads of all steps of a token, when the token arrives.
    states : Out(stream)
        Hidden states after the last layer, for each slice index all samples; `not_positive` if any
        denominator of the token so far was not above 0. With a vocabulary, the states after every
        layer.
    predictions : Out(stream)
        As in `LogitArgmax`; only with a vocabulary.
    """

    def __init__(self, *, parameters: LadParameters) -> None:
        self.parameters = p = parameters
        tile = p.tile
        taken = {
            "slices": p.slice_layout,
            "sums": tile.linear.output_layout,
            "results": tile.sfm.values_layout,
            "outputs": p.shared_tiles.named(tile.output_layout),
        }
        given = {
            "tasks": p.shared_tiles.task_layout,
            "inputs": tile.linear.input_layout,
            "vectors": tile.sfm.vector_layout,
            "factors": tile.sfm.values_layout,
            "addends": tile.sfm.values_layout,
            "steps": p.shared_tiles.named(tile.step_layout),
            "coming": p.shared_tiles.named(tile.head_layout),
            "states": p.state_layout,
        } | ({"predictions": p.prediction_layout} if p.vocabulary_size else {})
        super().__init__(
            {name: In(stream.Signature(layout)) for name, layout in taken.items()}
            | {name: Out(stream.Signature(layout)) for name, layout in given.items()}
        )

    def elaborate(self, platform: object) -> Module:
        """Read and write in parallel; the next instruction begins when both are complete."""
        m = Module()
        p = self.parameters
        m.submodules.memory = memory = Memory(
            depth=p.areas.end, width=p.tile.vector.vector_layout.size
        )
        m.submodules.fetch = fetch = InstructionFetch(parameters=p)
        m.submodules.reader = reader = OperandReader(parameters=p)
        m.submodules.writer = writer = ResultWriter(parameters=p)
        m.submodules.sum_slices = sums = SumSlices(parameters=p.sum_slices)
        instruction = fetch.instruction
        for part in (reader, writer):
            m.d.comb += [part.begin.eq(fetch.begin), part.instruction.eq(instruction)]
        m.d.comb += [
            memory.read_enable.eq(reader.read),
            memory.read_address.eq(reader.address),
            memory.write_enable.eq(writer.write),
            memory.write_address.eq(writer.address),
            memory.write_data.eq(Value.cast(writer.values)),
            writer.next_layer.eq(fetch.next_layer),
            fetch.attended.eq(writer.attended),
            sums.groups.eq(instruction.row_groups),
            sums.rest.eq(instruction.rest),
        ]
        for source, sink in (
            (self.slices, writer.slices),
            (sums.slices, writer.sums),
            (self.results, writer.results),
            (self.outputs, writer.outputs),
        ):
            m.d.comb += sink.payload["values"].eq(source.payload["values"])
            connect_handshake(m, source, sink)
        compares = self._route_sums(m, fetch, sums.sums)
        m.d.comb += fetch.busy.eq(reader.busy | writer.busy | compares)
        self._distribute(m, instruction, reader.operands, memory.read_data)
        self._number_steps(m, fetch, writer.busy)

        # The cosines and sines are the first slices of a token, which carry its lengths and flag.
        # Each sample's length arrives twice per token; the second value overwrites the first.
        lengths = [Signal(p.tile.length_shape, name=f"length_{i}") for i in range(p.batch)]
        predicts, not_positive = Signal(reset_less=True), Signal()
        with m.If(fetch.first & self.slices.valid & self.slices.ready):
            m.d.sync += Cat(lengths).eq(Cat(*lengths[1:], self.slices.payload.length))
            if p.vocabulary_size:
                m.d.sync += predicts.eq(self.slices.payload.predicts)
        with m.If(fetch.ended):
            m.d.sync += not_positive.eq(0)
        with m.Elif(self.outputs.valid & self.outputs.ready & self.outputs.payload.not_positive):
            m.d.sync += not_positive.eq(1)
        m.d.comb += [
            fetch.predicts.eq(predicts),
            self.steps.payload.length.eq(Array(lengths)[reader.operands.payload.sample]),
            self.states.payload.not_positive.eq(not_positive),
        ]
        return m

    def _route_sums(self, m: Module, fetch: InstructionFetch, slices: stream.Interface) -> Signal:
        """Send sums to the slices, or to the argmax; return whether logits are outstanding."""
        compares, sums = Signal(), self.sums
        m.d.comb += [
            slices.payload.eq(sums.payload.sums),
            slices.valid.eq(sums.valid & ~compares),
            sums.ready.eq(slices.ready),
        ]
        if self.parameters.vocabulary_size:
            m.submodules.logit_argmax = logits = LogitArgmax(parameters=self.parameters)
            connect_streams(m, logits.predictions, self.predictions)
            m.d.comb += [
                logits.sums.payload.eq(sums.payload.sums),
                logits.sums.valid.eq(sums.valid & compares),
                sums.ready.eq(Mux(compares, logits.sums.ready, slices.ready)),
            ]
            with m.If(fetch.begin):
                m.d.sync += compares.eq(fetch.instruction.compares)
            with m.Elif(sums.valid & sums.ready & sums.payload.last):
                m.d.sync += compares.eq(0)
        return compares

    def _distribute(
        self, m: Module, instruction: data.View, operands: stream.Interface, content: Value
    ) -> None:
        """Transfer the slice at the memory's output to its destination."""
        p, task, step = self.parameters, self.tasks.payload, self.steps.payload
        ports = {
            Destination.INPUTS: self.inputs,
            Destination.VECTORS: self.vectors,
            Destination.FACTORS: self.factors,
            Destination.ADDENDS: self.addends,
            Destination.QUERY: self.steps,
            Destination.STATES: self.states,
        }
        destination = operands.payload.destination
        with m.Switch(destination):
            for one, port in ports.items():
                with m.Case(one):
                    m.d.comb += [port.valid.eq(operands.valid), operands.ready.eq(port.ready)]
            # Tasks, keys and values are registered, and can always be accepted.
            with m.Default():
                m.d.comb += operands.ready.eq(1)
        # A task is valid until its last product begins; the instruction ends when its sums are
        # written.
        with m.If(operands.valid & (destination == Destination.TASK)):
            m.d.sync += self.tasks.valid.eq(1)
        with m.Elif(self.tasks.ready):
            m.d.sync += self.tasks.valid.eq(0)
        # Key and value are held for the steps of all their queries.
        for one, part in ((Destination.KEY, step.key), (Destination.VALUE, step.value)):
            held = Signal.like(part, name=f"held_{one.name.lower()}", reset_less=True)
            m.d.comb += part.eq(held)
            with m.If(operands.valid & (destination == one)):
                m.d.sync += held.eq(content)
        for port in (self.vectors, self.factors, self.addends, self.states):
            m.d.comb += Value.cast(port.payload["values"]).eq(content)
        m.d.comb += [
            Value.cast(step.query).eq(content),
            task.samples.eq(p.batch),
            task.slices.eq(instruction.slices),
            task.groups.eq(instruction.tile_groups),
            task.more.eq(instruction.more),
            Value.cast(self.inputs.payload["slice"]).eq(content),
            self.vectors.payload.function.eq(instruction.function),
            self.vectors.payload.epsilon.eq(p.epsilon),
        ]

    def _number_steps(self, m: Module, fetch: InstructionFetch, writing: Value) -> None:
        """Assign heads to the steps; announce all heads when a token has arrived."""
        m.submodules.step_heads = steps = HeadNumbers(parameters=self.parameters)
        m.submodules.announced_heads = announced = HeadNumbers(parameters=self.parameters)
        arrives, arrived, begins, announces = Signal(), Signal(), Signal(), Signal()
        coming = self.coming
        m.d.sync += arrived.eq(arrives)
        m.d.comb += [
            steps.restart.eq(fetch.ended),
            steps.advance.eq(self.steps.valid & self.steps.ready),
            self.steps.payload.head.eq(steps.step.head),
            self.steps.payload.tile.eq(steps.step.tile),
            # The first instruction of a token writes its cosines and sines.
            arrives.eq(fetch.first & writing),
            begins.eq(arrived & ~arrives),
            announced.restart.eq(begins),
            announced.advance.eq(announces & coming.ready),
            coming.valid.eq(announces),
            coming.payload.eq(announced.step),
        ]
        with m.If(begins):
            m.d.sync += announces.eq(1)
        with m.Elif(announced.advance & announced.last):
            m.d.sync += announces.eq(0)

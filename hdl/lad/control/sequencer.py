"""Sequencer of the decoder layers: it moves slices between a memory and the modules of a tile."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.logit_groups import LogitGroups
from hdl.lad.control.program import LayerProgram
from hdl.lad.control.slice_walk import SliceWalk, SliceWalkParameters
from hdl.lad.instructions import MOVES, Destination, Source, instruction_layout
from hdl.lad.linear.sum_slices import SumSlices
from hdl.lad.parameters import LadParameters
from hdl.memory.memory import Memory
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@dataclass(frozen=True)
class _Shown:
    """The slice at the memory's output.

    Members
    -------
    valid, taken : Signal
        It is valid; it is transferred.
    destination : Signal
        Its destination.
    sample : Signal
        Its sample, where the destination needs it.
    busy : Signal
        It is valid, or the operation has further slices to read.
    """

    valid: Signal
    taken: Signal
    destination: Any
    sample: Signal
    busy: Signal


class LayerSequencer(Unit):
    """Execute the operations of a `LayerProgram` in order, for all samples of a batch.

    An operation reads slices from the on-chip memory for the modules, and writes their results, or
    slices from outside. All operands of an operation are in the memory when it begins. Within an
    operation, a slice is overwritten only by the result computed from it.

    **Latency** 2 cycles from the last slice written to the first slice that the next operation
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
        As in `LogitGroups`; only with a vocabulary.
    """

    def __init__(self, *, parameters: LadParameters) -> None:
        self.parameters = p = parameters
        self.program = LayerProgram(p)
        self.layout = instruction_layout(p)
        self.places = SliceWalkParameters(bits=p.place_shape.width)
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
        """Run the address generators of an operation in parallel; then begin the next operation."""
        m = Module()
        p = self.parameters
        m.submodules.memory = memory = Memory(
            depth=p.areas.end, width=p.tile.vector.vector_layout.size
        )
        # The operation is registered, so that the table is read once per operation.
        operation = Signal(self.layout, reset_less=True)
        begin, writing = Signal(), Signal()
        shown = self._read(m, operation, begin, memory)
        starts, attended = Signal(), Signal()
        self._write(m, operation, begin, memory, writing, (starts, attended))
        busy = shown.busy | writing
        if p.vocabulary_size:
            busy |= self._predict(m, operation, begin)
        else:
            # All sums are written as slices.
            written = m.submodules.sum_slices.sums
            m.d.comb += [written.valid.eq(self.sums.valid), self.sums.ready.eq(written.ready)]
        # The cosines and sines are the first slices of a token; their flags apply to the whole
        # token.
        predicts = Signal(reset_less=True)
        first, ended = self._advance(m, operation, begin, busy, (starts, attended, predicts))
        self._name_heads(m, first & writing)
        self._hand_out(m, operation, shown, memory.read_data)
        self._begin_steps(m, shown, memory.read_data, ended)

        # Each sample's length arrives twice per token; the second value overwrites the first.
        lengths = [Signal(p.tile.length_shape, name=f"length_{i}") for i in range(p.batch)]
        with m.If(first & self.slices.valid & self.slices.ready):
            m.d.sync += Cat(lengths).eq(Cat(*lengths[1:], self.slices.payload.length))
            if p.vocabulary_size:
                m.d.sync += predicts.eq(self.slices.payload.predicts)
        not_positive = Signal()
        with m.If(ended):
            m.d.sync += not_positive.eq(0)
        with m.Elif(self.outputs.valid & self.outputs.ready & self.outputs.payload.not_positive):
            m.d.sync += not_positive.eq(1)
        m.d.comb += [
            self.steps.payload.length.eq(Array(lengths)[shown.sample]),
            self.states.payload.not_positive.eq(not_positive),
        ]
        return m

    def _advance(
        self,
        m: Module,
        operation: Any,
        begin: Value,
        busy: Value,
        course: tuple[Signal, Signal, Signal],
    ) -> tuple[Value, Signal]:
        """Advance through the table; return flags for its first operation and for a token's end."""
        p, layer, period = self.parameters, self.program.layer, self.program.period
        starts, attended, predicts = course
        lines = self.program.table
        table = Array(Const(bits, self.layout.size) for bits in lines)
        line, number, ended = Signal(range(len(lines))), Signal(range(p.layers)), Signal()
        part = Signal(range(p.periods))
        with m.FSM(name="operations"):
            # The table is a multiplexer of constants, and has a cycle of its own.
            with m.State("FETCH"):
                m.d.sync += Value.cast(operation).eq(table[line])
                m.next = "BEGIN"
            # The four address generators load their base; `joins` waits for all attention outputs.
            with m.State("BEGIN"), m.If(~operation.joins | attended):
                # At `joins` a layer's attention is complete: the next layer's outputs begin at the
                # base.
                m.d.comb += [begin.eq(1), starts.eq((line == 0) | operation.joins)]
                m.next = "MOVE"
            with m.State("MOVE"), m.If(~busy):
                m.d.sync += line.eq(line + 1)
                with m.If(line == period.stop - 1):
                    m.d.sync += part.eq(0)
                    with m.If(part != p.periods - 1):
                        m.d.sync += [part.eq(part + 1), line.eq(period.start)]
                # All layers use the same part of the table; they differ in the data from outside
                # only.
                with m.If(line == layer.stop - 1):
                    m.d.sync += number.eq(0)
                    with m.If(number != p.layers - 1):
                        m.d.sync += [number.eq(number + 1), line.eq(layer.start)]
                with m.If(self._last(m, line, number, predicts)):
                    m.d.sync += line.eq(0)
                    m.d.comb += ended.eq(1)
                m.next = "FETCH"
        return line == 0, ended

    def _last(self, m: Module, line: Signal, number: Value, predicts: Value) -> Value:
        """Return whether an operation is a token's last one."""
        p, last = self.parameters, len(self.program.instructions) - 1
        if not p.vocabulary_size:
            return line == last
        piece = Signal(range(p.pieces))
        layers_end = (line == self.program.layer.stop - 1) & (number == p.layers - 1)
        # The last operation computes one piece of the LM head; it is repeated once per piece.
        with m.If(line == last):
            m.d.sync += [piece.eq(piece + 1), line.eq(last)]
            with m.If(piece == p.pieces - 1):
                m.d.sync += piece.eq(0)
        return (layers_end & ~predicts) | ((line == last) & (piece == p.pieces - 1))

    def _predict(self, m: Module, operation: Any, begin: Value) -> Signal:
        """Connect the argmax; return whether sums of a piece of the LM head are outstanding."""
        comparing = Signal()
        m.submodules.logit_groups = logits = LogitGroups(parameters=self.parameters)
        connect_streams(m, logits.predictions, self.predictions)
        sums = self.sums
        written = m.submodules.sum_slices.sums
        m.d.comb += [
            logits.sums.payload.eq(sums.payload.sums),
            logits.sums.valid.eq(sums.valid & comparing),
            written.valid.eq(sums.valid & ~comparing),
            sums.ready.eq(Mux(comparing, logits.sums.ready, written.ready)),
        ]
        with m.If(begin):
            m.d.sync += comparing.eq(operation.compares)
        with m.Elif(sums.valid & sums.ready & sums.payload.last):
            m.d.sync += comparing.eq(0)
        return comparing

    def _read(self, m: Module, operation: Any, begin: Value, memory: Any) -> _Shown:
        """Read the operands of an operation; after each inner loop the next move continues."""
        p = self.parameters
        generators = [SliceWalk(parameters=self.places) for _ in range(MOVES)]
        # The moves share one read port, in the order in which the modules need the slices.
        turn, left, issue = Signal(range(MOVES)), Signal(), Signal()
        shown = _Shown(
            Signal(name="shown"),
            Signal(name="taken"),
            Signal(Destination, name="destination", reset_less=True),
            Signal(range(p.batch), name="sample", reset_less=True),
            Signal(name="reading"),
        )
        pauses, ends = (
            Array(getattr(generator, name) for generator in generators)[turn]
            for name in ("pauses", "ends")
        )
        m.d.comb += [
            # The memory's output is constant until the next read.
            issue.eq(left & (~shown.valid | shown.taken)),
            memory.read_enable.eq(issue),
            memory.read_address.eq(Array(generator.place for generator in generators)[turn]),
            shown.busy.eq(left | shown.valid),
        ]
        for index, generator in enumerate(generators):
            m.submodules[f"move_{index}"] = generator
            m.d.comb += [
                generator.loops.eq(operation.moves[index].loops),
                generator.start.eq(begin),
                generator.advance.eq(issue & (turn == index)),
            ]
        with m.If(begin):
            m.d.sync += [left.eq(operation.number != 0), turn.eq(0)]
        with m.If(issue):
            m.d.sync += [
                # The destination is registered with the slice, since the next slice can be another
                # move's.
                shown.destination.eq(Array(move.destination for move in operation.moves)[turn]),
                shown.sample.eq(Array(generator.middle for generator in generators)[turn]),
            ]
            with m.If(pauses):
                m.d.sync += turn.eq(turn + 1)
                with m.If(turn == operation.number - 1):
                    m.d.sync += [turn.eq(0), left.eq(~ends)]
        with m.If(issue | shown.taken):
            m.d.sync += shown.valid.eq(issue)
        return shown

    def _write(
        self,
        m: Module,
        operation: Any,
        begin: Value,
        memory: Any,
        writing: Signal,
        layers: tuple[Signal, Signal],
    ) -> None:
        """Write the slices of an operation's source, and the attention outputs.

        Attention outputs arrive while later operations run, and have an address generator of their
        own.
        """
        p = self.parameters
        starts, attended = layers
        m.submodules.target = target = SliceWalk(parameters=self.places)
        m.submodules.attended = outputs = SliceWalk(parameters=self.places)
        m.submodules.sum_slices = sums = SumSlices(parameters=p.sum_slices)
        m.d.comb += [
            sums.sums.payload.eq(self.sums.payload.sums),
            sums.groups.eq(operation.groups),
            sums.rest.eq(operation.rest),
            target.loops.eq(operation.target),
            target.start.eq(begin),
        ]
        sources = {
            Source.OUTSIDE: self.slices,
            Source.SUMS: sums.slices,
            Source.RESULTS: self.results,
        }
        # One write port: attention outputs use it in cycles in which the operation does not.
        m.d.comb += [
            outputs.loops.eq(outputs.loops.shape().const(self.program.outputs.record)),
            outputs.start.eq(starts),
            self.outputs.ready.eq(~target.advance),
            outputs.advance.eq(self.outputs.valid & self.outputs.ready),
            memory.write_data.eq(Value.cast(self.outputs.payload["values"])),
        ]
        with m.If(starts):
            m.d.sync += attended.eq(0)
        with m.Elif(outputs.advance & outputs.ends):
            m.d.sync += attended.eq(1)
        # The memory can always be written: a source waits only until its operation begins.
        with m.Switch(operation.source):
            for source, port in sources.items():
                with m.Case(source):
                    m.d.comb += [
                        port.ready.eq(writing),
                        target.advance.eq(port.valid & writing),
                    ]
                    with m.If(target.advance):
                        m.d.comb += memory.write_data.eq(Value.cast(port.payload["values"]))
        m.d.comb += [
            memory.write_enable.eq(target.advance | outputs.advance),
            memory.write_address.eq(Mux(target.advance, target.place, outputs.place)),
        ]
        with m.If(begin):
            m.d.sync += writing.eq(operation.writes)
        with m.Elif(target.advance & target.ends):
            m.d.sync += writing.eq(0)

    def _hand_out(self, m: Module, operation: Any, shown: _Shown, content: Value) -> None:
        """Transfer the slice at the memory's output to its destination."""
        p = self.parameters
        task = self.tasks.payload
        ports = {
            Destination.INPUTS: self.inputs,
            Destination.VECTORS: self.vectors,
            Destination.FACTORS: self.factors,
            Destination.ADDENDS: self.addends,
            Destination.QUERY: self.steps,
            Destination.STATES: self.states,
        }
        with m.Switch(shown.destination):
            for destination, port in ports.items():
                with m.Case(destination):
                    m.d.comb += [
                        port.valid.eq(shown.valid),
                        shown.taken.eq(shown.valid & port.ready),
                    ]
            # Tasks, keys and values are registered, and can always be accepted.
            with m.Default():
                m.d.comb += shown.taken.eq(shown.valid)
        # A task is valid until its last product begins; the operation ends when its sums are
        # written.
        with m.If(shown.valid & (shown.destination == Destination.TASK)):
            m.d.sync += self.tasks.valid.eq(1)
        with m.Elif(self.tasks.ready):
            m.d.sync += self.tasks.valid.eq(0)
        for payload in (self.vectors, self.factors, self.addends, self.states):
            m.d.comb += Value.cast(payload.payload["values"]).eq(content)
        m.d.comb += [
            task.samples.eq(p.batch),
            task.slices.eq(operation.slices),
            task.groups.eq(operation.rounds),
            task.more.eq(operation.more),
            Value.cast(self.inputs.payload["slice"]).eq(content),
            self.vectors.payload.function.eq(operation.function),
            self.vectors.payload.epsilon.eq(p.epsilon),
        ]

    def _name_heads(self, m: Module, arrives: Value) -> None:
        """Output the heads of all steps of a token when it arrives, in the order of the steps."""
        # The steps of all layers are known as soon as the token arrives.
        names, arrived, begins = Signal(), Signal(), Signal()
        m.d.sync += arrived.eq(arrives)
        m.d.comb += [self.coming.valid.eq(names), begins.eq(arrived & ~arrives)]
        goes = names & self.coming.ready
        last = self._number(m, self.coming.payload, begins, goes)
        with m.If(begins):
            m.d.sync += names.eq(1)
        with m.Elif(goes & last):
            m.d.sync += names.eq(0)

    def _number(self, m: Module, payload: Any, begins: Value, goes: Value) -> Value:
        """Assign a number and a tile to the head of each step; return whether it is the last."""
        p, shared = self.parameters, self.parameters.tile.shared
        head, tile = Signal.like(payload.head), Signal.like(payload.tile)
        turn, final = Signal(range(shared)), Signal()
        m.d.comb += [payload.head.eq(head), payload.tile.eq(tile)]
        m.d.comb += final.eq(turn == shared - 1)
        with m.If(begins):
            m.d.sync += [head.eq(0), tile.eq(0), turn.eq(0)]
        with m.Elif(goes & ~final):
            m.d.sync += [head.eq(head + 1), turn.eq(turn + 1)]
        with m.Elif(goes):
            # The next group belongs to the next tile; the number advances after the last tile.
            m.d.sync += [head.eq(head - (shared - 1)), tile.eq(tile + 1), turn.eq(0)]
            with m.If(tile == p.tiles - 1):
                m.d.sync += [tile.eq(0), head.eq(head + 1)]
        rounds, more = divmod(p.layers * p.heads * p.batch // shared - 1, p.tiles)
        return (head == rounds * shared + shared - 1) & (tile == more)

    def _begin_steps(self, m: Module, shown: _Shown, content: Value, ended: Value) -> None:
        """Hold key and value for the steps of their queries; number the heads of the steps."""
        step = self.steps.payload
        for destination, part in ((Destination.KEY, step.key), (Destination.VALUE, step.value)):
            held = Signal.like(part, name=f"held_{destination.name.lower()}", reset_less=True)
            m.d.comb += part.eq(held)
            with m.If(shown.valid & (shown.destination == destination)):
                m.d.sync += held.eq(content)
        m.d.comb += Value.cast(step.query).eq(content)
        # Heads of all layers are numbered in the order of their steps.
        self._number(m, step, ended, self.steps.valid & self.steps.ready)

"""Lead a token through decoder layers: slices between one memory and the modules of a tile."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.largest_sum import LargestSum
from hdl.lad.control.layer_program import MOVES, LayerProgram, Source, Way
from hdl.lad.control.slice_walk import SliceWalk, SliceWalkParameters
from hdl.lad.control.sum_slices import SumSlices
from hdl.lad.lad_parameters import LadParameters
from hdl.memory.memory import Memory
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@dataclass(frozen=True)
class _Shown:
    """The slice at the memory's output.

    Members
    -------
    valid, taken : Signal
        There is one; it is handed over.
    way : Signal
        What it becomes.
    sample : Signal
        Whose it is, where that matters.
    busy : Signal
        It is there, or another one of the operation is to come.
    """

    valid: Signal
    taken: Signal
    way: Any
    sample: Signal
    busy: Signal


class LayerSequencer(Unit):
    """Do the operations of a `LayerProgram`, one behind the other, with all samples of a batch.

    An operation reads slices from the memory on chip for the modules that need them, and writes
    what these give, or what comes from outside. What an operation reads is there when it begins;
    within one, a slice is overwritten by what came of it, or not at all.

    **Latency** 2 cycles from the last slice written to the next operation's first one read.
    **Throughput** a slice a cycle in, and one out.

    Parameters
    ----------
    parameters : LadParameters
        Dimensions.

    Members
    -------
    slices : In(stream)
        What comes from outside, in the program's order: `values`; with angles their sample's
        `length`, and with a vocabulary whether the token `predicts`.
    sums, results, outputs : In(stream)
        From linear module, special function module and attention.
    tasks, inputs, vectors, factors, addends, steps : Out(stream)
        To them.
    coming : Out(stream)
        The head-samples of a token's steps, as soon as it is there.
    states : Out(stream)
        Hidden states behind the last layer, slice by slice, of all samples; and whether any
        denominator on the way was `not_positive`. With a vocabulary those behind every layer.
    predictions : Out(stream)
        As of `LargestSum`; only with a vocabulary.
    """

    def __init__(self, *, parameters: LadParameters) -> None:
        self.parameters = p = parameters
        self.program = LayerProgram(p)
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
        } | ({"predictions": p.prediction_layout} if p.vocabulary else {})
        super().__init__(
            {name: In(stream.Signature(layout)) for name, layout in taken.items()}
            | {name: Out(stream.Signature(layout)) for name, layout in given.items()}
        )

    def elaborate(self, platform: Any) -> Module:
        """Let the walks of an operation run beside each other; then the next one begins."""
        m = Module()
        p = self.parameters
        m.submodules.memory = memory = Memory(
            depth=p.areas.end, width=p.tile.vector.vector_layout.size
        )
        # The operation stands in registers: the table is read once for it.
        operation = Signal(self.program.layout, reset_less=True)
        begin, writing = Signal(), Signal()
        shown = self._read(m, operation, begin, memory)
        starts, attended = Signal(), Signal()
        self._write(m, operation, begin, memory, writing, (starts, attended))
        busy = shown.busy | writing
        if p.vocabulary:
            busy |= self._predict(m, operation, begin)
        else:
            # All sums become slices.
            written = m.submodules.sum_slices.sums
            m.d.comb += [written.valid.eq(self.sums.valid), self.sums.ready.eq(written.ready)]
        # Angles come first: what came with them stays for the token.
        predicts = Signal(reset_less=True)
        first, ended = self._advance(m, operation, begin, busy, (starts, attended, predicts))
        self._name_heads(m, first & writing)
        self._hand_out(m, operation, shown, memory.read_data)
        self._begin_steps(m, shown, memory.read_data, ended)

        # All samples' lengths come twice: those that came last stay.
        lengths = [Signal(p.tile.length_shape, name=f"length_{i}") for i in range(p.batch)]
        with m.If(first & self.slices.valid & self.slices.ready):
            m.d.sync += Cat(lengths).eq(Cat(*lengths[1:], self.slices.payload.length))
            if p.vocabulary:
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
        """Go through the table; return whether at the first line, and whether a token ends."""
        p, layer, period = self.parameters, self.program.layer, self.program.period
        starts, attended, predicts = course
        lines = self.program.table
        table = Array(Const(bits, self.program.layout.size) for bits in lines)
        line, number, ended = Signal(range(len(lines))), Signal(range(p.layers)), Signal()
        part = Signal(range(p.periods))
        with m.FSM(name="operations"):
            # The table is a multiplexer of constants: it has a cycle to itself.
            with m.State("FETCH"):
                m.d.sync += Value.cast(operation).eq(table[line])
                m.next = "BEGIN"
            # All four walks take their first place; what needs the attention waits for all of it.
            with m.State("BEGIN"), m.If(~operation.joins | attended):
                # All of a layer's attention is there then: the next one's begins at the front.
                m.d.comb += [begin.eq(1), starts.eq((line == 0) | operation.joins)]
                m.next = "MOVE"
            with m.State("MOVE"), m.If(~busy):
                m.d.sync += line.eq(line + 1)
                with m.If(line == period.stop - 1):
                    m.d.sync += part.eq(0)
                    with m.If(part != p.periods - 1):
                        m.d.sync += [part.eq(part + 1), line.eq(period.start)]
                # All layers are one part of the table: only what comes from outside differs.
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
        """Return whether a line is a token's last, when it is done."""
        p, last = self.parameters, len(self.program.operations) - 1
        if not p.vocabulary:
            return line == last
        piece = Signal(range(p.pieces))
        layers_end = (line == self.program.layer.stop - 1) & (number == p.layers - 1)
        # Its last line is a piece of the vocabulary, and is repeated as often as there are pieces.
        with m.If(line == last):
            m.d.sync += [piece.eq(piece + 1), line.eq(last)]
            with m.If(piece == p.pieces - 1):
                m.d.sync += piece.eq(0)
        return (layers_end & ~predicts) | ((line == last) & (piece == p.pieces - 1))

    def _predict(self, m: Module, operation: Any, begin: Value) -> Signal:
        """Let sums of the vocabulary be compared; return whether a piece's are still coming."""
        comparing = Signal()
        m.submodules.largest_sum = largest = LargestSum(parameters=self.parameters.largest_sum)
        connect_streams(m, largest.predictions, self.predictions)
        sums = self.sums
        written = m.submodules.sum_slices.sums
        m.d.comb += [
            largest.sums.payload.eq(sums.payload.sums),
            largest.sums.valid.eq(sums.valid & comparing),
            written.valid.eq(sums.valid & ~comparing),
            sums.ready.eq(Mux(comparing, largest.sums.ready, written.ready)),
        ]
        with m.If(begin):
            m.d.sync += comparing.eq(operation.compares)
        with m.Elif(sums.valid & sums.ready & sums.payload.last):
            m.d.sync += comparing.eq(0)
        return comparing

    def _read(self, m: Module, operation: Any, begin: Value, memory: Any) -> _Shown:
        """Let an operation's moves take turns wherever an inner loop ends."""
        p = self.parameters
        walks = [SliceWalk(parameters=self.places) for _ in range(MOVES)]
        # One read port: moves have it in turns, and the order of slices is theirs.
        turn, left, issue = Signal(range(MOVES)), Signal(), Signal()
        shown = _Shown(
            Signal(name="shown"),
            Signal(name="taken"),
            Signal(Way, name="way", reset_less=True),
            Signal(range(p.batch), name="sample", reset_less=True),
            Signal(name="reading"),
        )
        pauses, ends = (
            Array(getattr(walk, name) for walk in walks)[turn] for name in ("pauses", "ends")
        )
        m.d.comb += [
            # The memory's output is what is shown: it stands until the next read.
            issue.eq(left & (~shown.valid | shown.taken)),
            memory.read_enable.eq(issue),
            memory.read_address.eq(Array(walk.place for walk in walks)[turn]),
            shown.busy.eq(left | shown.valid),
        ]
        for index, walk in enumerate(walks):
            m.submodules[f"move_{index}"] = walk
            m.d.comb += [
                walk.walk.eq(operation.moves[index].walk),
                walk.start.eq(begin),
                walk.advance.eq(issue & (turn == index)),
            ]
        with m.If(begin):
            m.d.sync += [left.eq(operation.number != 0), turn.eq(0)]
        with m.If(issue):
            m.d.sync += [
                # The way goes with the slice: the next one may be another move's.
                shown.way.eq(Array(move.way for move in operation.moves)[turn]),
                shown.sample.eq(Array(walk.middle for walk in walks)[turn]),
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
        """Write what comes from an operation's source in the order of its walk, and the attention.

        A layer's outputs come while later operations are under way: they have a walk of their own.
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
            target.walk.eq(operation.target),
            target.start.eq(begin),
        ]
        sources = {
            Source.OUTSIDE: self.slices,
            Source.SUMS: sums.slices,
            Source.RESULTS: self.results,
        }
        # One write port: the attention's slices take it where nothing else does.
        m.d.comb += [
            outputs.walk.eq(outputs.walk.shape().const(self.program.outputs.record)),
            outputs.start.eq(starts),
            self.outputs.ready.eq(~target.advance),
            outputs.advance.eq(self.outputs.valid & self.outputs.ready),
            memory.write_data.eq(Value.cast(self.outputs.payload["values"])),
        ]
        with m.If(starts):
            m.d.sync += attended.eq(0)
        with m.Elif(outputs.advance & outputs.ends):
            m.d.sync += attended.eq(1)
        # The memory is always ready to write: sources wait only for their operation.
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
        """Give the slice that is shown to whom its way says."""
        p = self.parameters
        task = self.tasks.payload
        ports = {
            Way.INPUTS: self.inputs,
            Way.VECTORS: self.vectors,
            Way.FACTORS: self.factors,
            Way.ADDENDS: self.addends,
            Way.QUERY: self.steps,
            Way.STATES: self.states,
        }
        with m.Switch(shown.way):
            for way, port in ports.items():
                with m.Case(way):
                    m.d.comb += [
                        port.valid.eq(shown.valid),
                        shown.taken.eq(shown.valid & port.ready),
                    ]
            # Tasks, keys and values go into registers, which never wait.
            with m.Default():
                m.d.comb += shown.taken.eq(shown.valid)
        # A task stands until its last product has begun; the operation ends behind its sums.
        with m.If(shown.valid & (shown.way == Way.TASK)):
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
        """Name all head-samples of a token that has arrived, in the order of their steps."""
        # Steps of all layers are known as soon as the token is there.
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
        """Count groups, which tiles have in turns; return whether this is a token's last head."""
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
            # The next group is the next tile's, and begins there where this one began here.
            m.d.sync += [head.eq(head - (shared - 1)), tile.eq(tile + 1), turn.eq(0)]
            with m.If(tile == p.tiles - 1):
                m.d.sync += [tile.eq(0), head.eq(head + 1)]
        rounds, more = divmod(p.layers * p.heads * p.batch // shared - 1, p.tiles)
        return (head == rounds * shared + shared - 1) & (tile == more)

    def _begin_steps(self, m: Module, shown: _Shown, content: Value, ended: Value) -> None:
        """Keep key and value for the steps of their queries; number the head-samples."""
        step = self.steps.payload
        for way, part in ((Way.KEY, step.key), (Way.VALUE, step.value)):
            held = Signal.like(part, name=f"held_{way.name.lower()}", reset_less=True)
            m.d.comb += part.eq(held)
            with m.If(shown.valid & (shown.way == way)):
                m.d.sync += held.eq(content)
        m.d.comb += Value.cast(step.query).eq(content)
        # Heads of all layers are numbered in the order of their steps.
        self._number(m, step, ended, self.steps.valid & self.steps.ready)

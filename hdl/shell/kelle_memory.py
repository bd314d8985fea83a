"""Kelle with burst ports: its weights, inputs, outputs and placements are in memory."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.eviction.eviction_parameters import placement_layout, prefill_layout
from hdl.kelle.kelle import Kelle
from hdl.shell.kelle_axi_parameters import LOADS, KelleAxiParameters
from hdl.shell.kelle_commands import KelleCommands
from hdl.shell.layer_states import LayerStates
from hdl.shell.vector_rows import VectorRows
from hdl.shell.word_writer import WordWriter
from hdl.stream.connect import connect_handshake, connect_prioritised, connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class KelleMemory(Unit):
    """Kelle that executes instructions, and whose streams to memory are burst ports.

    The unit selects no tokens of a prefill and looks up no slots: `prefill` takes the tokens that a
    host has selected, whose slots are in the order of the tokens.

    **Latency**, **Throughput** those of `Kelle`, and 1 cycle per instruction; a token that becomes
    popular also takes a read of its input.

    Parameters
    ----------
    parameters : KelleAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    instructions : In(stream)
        The instructions, see `KelleAxiParameters.instruction_layout`.
    scales, prefill, rows : In(stream)
        As `scales`, `prefill` and `row_writes` of `Kelle`, for the loads among the instructions.
    states : In(stream)
        Slices of the hidden states of the steps that follow no other step.
    <port> : Out(BurstReadPort or BurstWritePort)
        The other ports of `KelleAxiParameters.ports`.
    written : In(1)
        All words written at `input_writes` are visible.
    restart : In(1)
        The next output and the next placement are at address 0.
    predictions : Out(stream)
        As in `Kelle`, with an LM head.
    errors : Out(struct)
        `layer`: the layer of an instruction does not exist. `no_victim`: see `Kelle`.
    clear_flags : In(1)
        Clear `layer`; only a reset clears `no_victim`.
    idle : Out(1)
        All results of all accepted instructions are output.
    """

    def __init__(self, *, parameters: KelleAxiParameters) -> None:
        self.parameters = p = parameters
        kelle = p.kelle
        predicting = {"predictions": Out(stream.Signature(kelle.prediction_layout))}
        super().__init__(
            {
                "instructions": In(stream.Signature(p.instruction_layout)),
                "scales": In(stream.Signature(kelle.array.scales_layout)),
                "prefill": In(stream.Signature(prefill_layout(kelle.eviction))),
                "rows": In(stream.Signature(kelle.row_write)),
                "states": In(stream.Signature(kelle.slice_layout)),
                **p.core_ports(),
                "written": In(1),
                "restart": In(1),
                **(predicting if kelle.vocabulary_size else {}),
                "errors": Out(data.StructLayout({"layer": 1, "no_victim": 1})),
                "clear_flags": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect Kelle to the address generators."""
        m = Module()
        p = self.parameters
        m.submodules.kelle = kelle = Kelle(parameters=p.kelle)
        m.submodules.commands = commands = KelleCommands(parameters=p)
        m.submodules.vectors = vectors = VectorRows(parameters=p)
        connect_streams(m, self.instructions, commands.instructions)
        connect_streams(m, commands.positions, kelle.positions)
        settings: dict[int | str, Any] = {**p.settings.payload}
        m.d.comb += [
            kelle.settings.eq(p.kelle.memory.refresh.settings_layout.const(settings)),
            kelle.layer.eq(commands.layer),
            kelle.epsilon.eq(commands.step.epsilon),
            commands.rests.eq(kelle.positions.ready),
            commands.clear_flags.eq(self.clear_flags),
            self.errors.layer.eq(commands.illegal),
            self.errors.no_victim.eq(kelle.no_victim),
        ]
        if p.kelle.vocabulary_size:
            m.d.comb += kelle.predicts.eq(commands.predicts)
            connect_streams(m, kelle.predictions, self.predictions)
        self._read_weights(m, kelle, commands)
        self._load(m, kelle, commands, vectors)
        self._write_states(m, kelle, commands)
        recorded = self._write_placements(m, kelle)
        m.d.comb += [
            commands.recorded.eq(recorded),
            # A step has ended when Kelle is ready for the next one; the rows that it has requested
            # are written then.
            self.idle.eq(kelle.positions.ready & recorded),
        ]
        return m

    def _read_weights(self, m: Module, kelle: Kelle, commands: KelleCommands) -> None:
        """Connect the weights, whose words have no padding."""
        port = self.weight_reads
        connect_streams(m, commands.requests, port.requests)
        connect_handshake(m, port.words, kelle.weights)
        m.d.comb += Value.cast(kelle.weights.payload).eq(Value.cast(port.words.payload.word))

    def _load(self, m: Module, kelle: Kelle, commands: KelleCommands, vectors: VectorRows) -> None:
        """Transfer the words of the present load; also write the rows that Kelle requests."""
        rows = stream.Signature(self.parameters.kelle.row_write).create(path=("loaded_rows",))
        connect_prioritised(m, [vectors.rows, rows], kelle.row_writes)
        taken = []
        for name, sink in zip(LOADS, (kelle.scales, kelle.prefill, rows), strict=True):
            source, permit = getattr(self, name), commands.loads[name]
            m.d.comb += [
                sink.payload.eq(source.payload),
                sink.valid.eq(source.valid & permit),
                source.ready.eq(sink.ready & permit),
            ]
            taken.append(source.valid & source.ready)
        connect_streams(m, kelle.vector_stores, vectors.stores)
        connect_streams(m, vectors.port.requests, self.input_reads.requests)
        connect_streams(m, self.input_reads.words, vectors.port.words)
        m.d.comb += [
            commands.loaded.eq(Cat(taken).any()),
            vectors.layer.eq(commands.step.layer),
            vectors.written.eq(self.written),
        ]

    def _write_states(self, m: Module, kelle: Kelle, commands: KelleCommands) -> None:
        """Write the inputs and outputs of steps, and give each step its hidden state."""
        p = self.parameters
        m.submodules.states = states = LayerStates(
            shape=p.kelle.slice_layout, slices=p.kelle.hidden_slices
        )
        connect_streams(m, self.states, states.states)
        connect_streams(m, states.hidden, kelle.hidden)
        bits = p.kelle.slice_layout.size
        outputs = self._writer(m, "output", bits, self.restart)
        connect_handshake(m, kelle.outputs, outputs.items)
        # An input's number of a slice is the address in its writer, which begins with each step.
        inputs = self._writer(m, "input", bits, commands.starts)
        connect_handshake(m, kelle.normalised, inputs.items)
        place = Cat(
            inputs.port.requests.payload.address[: p.slice_bits],
            commands.step.position[: p.recent_bits],
            commands.step.layer[: p.input_layout["layer"].width],
        )
        m.d.comb += [
            states.starts.eq(commands.starts),
            states.follows.eq(commands.follows),
            states.outputs.payload.eq(kelle.outputs.payload),
            states.outputs.valid.eq(kelle.outputs.valid & kelle.outputs.ready),
            outputs.items.payload.eq(kelle.outputs.payload.as_value()),
            inputs.items.payload.eq(kelle.normalised.payload.as_value()),
            self.input_writes.requests.payload.address.eq(place),
        ]

    def _write_placements(self, m: Module, kelle: Kelle) -> Value:
        """Write the placements of each step; return whether all of them are written."""
        p = self.parameters.kelle
        bits = placement_layout(p.eviction).size
        # The port of placements has no ready: a step begins when there is room for all of its own.
        m.submodules.placements = placements = Fifo(shape=bits, depth=p.kv_heads)
        writer = self._writer(m, "placement", bits, self.restart)
        connect_streams(m, placements.sink, writer.items)
        placement = Signal(placement_layout(p.eviction))
        evicted = kelle.placed.placement.evicted
        m.d.comb += [
            placement.eq(kelle.placed.placement),
            placements.source.payload.eq(placement.as_value()),
            placements.source.valid.eq(kelle.placed.valid),
        ]
        # What has no meaning is 0 in memory.
        with m.If(~placement.evicts):
            m.d.comb += placement.evicted.eq(0)
        with m.Elif(~evicted.recomputed):
            m.d.comb += placement.evicted.vector.eq(0)
        return ~placements.sink.valid

    def _writer(self, m: Module, name: str, bits: int, restart: Value) -> WordWriter:
        """Return the writer of a port."""
        p, port = self.parameters, getattr(self, f"{name}_writes")
        m.submodules[f"{name}_writer"] = writer = WordWriter(
            address_bits=p.address_bits, longest=p.longest, shape=bits
        )
        connect_streams(m, writer.port.requests, port.requests)
        connect_streams(m, writer.port.words, port.words)
        m.d.comb += writer.restart.eq(restart)
        return writer

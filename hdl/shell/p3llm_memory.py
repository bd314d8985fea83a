"""P3-LLM with burst ports: its banks and the hidden states that it outputs are in memory."""

from typing import Any

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.p3llm.p3llm import P3llm
from hdl.p3llm.pim.pim_channel import STATUS
from hdl.shell.coming_positions import ComingPositions
from hdl.shell.emulated_banks import EmulatedBanks
from hdl.shell.enabled import enabled
from hdl.shell.layer_states import LayerStates
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from hdl.shell.word_writer import WordWriter
from hdl.stream.connect import connect_handshake, connect_streams
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit


class P3llmMemory(Unit):
    """P3-LLM that executes instructions, and whose banks are emulated in memory.

    `EmulatedBanks` disables P3-LLM in each cycle in which its banks cannot answer in time. So the
    cycles between two commands of the banks are those of the memory and not those of DRAM: only
    the cycles that P3-LLM executes keep the times of the banks. A disabled P3-LLM transfers
    nothing: its streams are valid and ready in cycles that it executes only.

    **Latency**, **Throughput** those of `P3llm` in the cycles that it executes, see
    `EmulatedBanks`.

    Parameters
    ----------
    parameters : P3llmAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    instructions : In(stream)
        The instructions, see `P3llmAxiParameters.instruction_layout`.
    states : In(stream)
        Slices of the hidden states of the instructions that follow no other layer.
    <port> : Out(BurstReadPort or BurstWritePort)
        The other ports of `P3llmAxiParameters.ports`.
    written : In(1)
        All words written at `bank_writes` are visible.
    restart : In(1)
        The contents of memory have changed; the next output is at address 0.
    predictions : Out(stream)
        As in `P3llm`, with an LM head.
    errors : Out(struct)
        `layer`: the layer of an instruction does not exist. `status`: see `P3llm`.
    clear_flags : In(1)
        Clear `layer`; only a reset clears `status`.
    idle : Out(1)
        All results of all accepted instructions are output.
    """

    def __init__(self, *, parameters: P3llmAxiParameters) -> None:
        self.parameters = p = parameters
        predicting = {"predictions": Out(stream.Signature(p.p3llm.prediction_layout))}
        super().__init__(
            {
                "instructions": In(stream.Signature(p.instruction_layout)),
                "states": In(stream.Signature(p.p3llm.state_layout)),
                **p.core_ports(),
                "written": In(1),
                "restart": In(1),
                **(predicting if p.p3llm.vocabulary_size else {}),
                "errors": Out(data.StructLayout({"layer": 1, "status": STATUS})),
                "clear_flags": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect P3-LLM to the emulated banks, and each layer to the next one."""
        m = Module()
        p = self.parameters
        core: Any = enabled(P3llm)(parameters=p.p3llm)
        m.submodules.p3llm = core
        m.submodules.banks = banks = EmulatedBanks(parameters=p)
        enable = banks.enable
        m.d.comb += [core.clock_enable.eq(enable), self.errors.status.eq(core.status)]
        for number in range(p.p3llm.pseudo_channels):
            command, columns = (
                getattr(core, P3llm.banks_port(name, number))
                for name in ("bank_command", "bank_data")
            )
            if number == 0:
                m.d.comb += banks.command.eq(command)
            m.d.comb += [
                Value.cast(banks.data[number]).eq(Value.cast(command.data)),
                columns.eq(banks.columns[number]),
            ]
        connect_streams(m, banks.reads.requests, self.bank_reads.requests)
        connect_streams(m, self.bank_reads.words, banks.reads.words)
        connect_streams(m, banks.writes.requests, self.bank_writes.requests)
        connect_streams(m, banks.writes.words, self.bank_writes.words)
        m.d.comb += [banks.written.eq(self.written), banks.restart.eq(self.restart)]
        outputs = self._leaving(m, "output_stage", core.states_out, enable)
        rest = ~outputs.valid
        if p.p3llm.vocabulary_size:
            found = self._leaving(m, "prediction_stage", core.predictions, enable)
            connect_streams(m, found, self.predictions)
            rest &= ~found.valid
        m.submodules.coming = coming = ComingPositions(parameters=p)
        connect_streams(m, coming.positions, banks.announced)
        m.d.comb += coming.access.eq(banks.access)
        self._steps(m, core, coming, outputs, enable)
        # P3-LLM accepts an instruction when it has output all results of those before.
        m.d.comb += self.idle.eq(core.instructions.ready & banks.idle & rest)
        return m

    def _leaving(
        self, m: Module, name: str, source: stream.Interface, enable: Value
    ) -> stream.Interface:
        """Return a stream of P3-LLM's, whose items it transfers in cycles that it executes."""
        m.submodules[name] = stage = RegisterSlice(shape=source.payload.shape())
        connect_streams(m, source, stage.source)
        with m.If(~enable):
            m.d.comb += stage.source.valid.eq(0)
        return stage.sink

    def _steps(
        self,
        m: Module,
        core: Any,
        coming: ComingPositions,
        outputs: stream.Interface,
        enable: Value,
    ) -> None:
        """Give each step its hidden states, and write its outputs."""
        p, one = self.parameters, self.instructions.payload
        m.submodules.held = held = LayerStates(shape=p.p3llm.state_layout, slices=p.state_slices)
        m.submodules.output_writer = writer = WordWriter(
            address_bits=p.address_bits,
            longest=p.longest,
            shape=p.p3llm.state_layout.size,
        )
        connect_streams(m, writer.port.requests, self.output_writes.requests)
        connect_streams(m, writer.port.words, self.output_writes.words)
        connect_handshake(m, outputs, writer.items)
        layers = 1 << len(one.step.layer)
        legal = one.step.layer < p.steps if p.steps < layers else Const(1)
        starts = Signal()
        m.d.comb += [
            coming.step.eq(one.step),
            coming.starts.eq(starts),
            coming.follows.eq(self.instructions.valid & legal),
            core.instructions.payload.eq(one.step),
            # All outputs of the step before are stored.
            core.instructions.valid.eq(self.instructions.valid & legal & ~outputs.valid & enable),
            starts.eq(core.instructions.valid & core.instructions.ready),
            self.instructions.ready.eq(starts),
            held.starts.eq(starts),
            held.follows.eq(one.follows),
            Value.cast(writer.items.payload).eq(Value.cast(outputs.payload)),
            writer.restart.eq(self.restart),
            held.outputs.payload.eq(outputs.payload),
            held.outputs.valid.eq(outputs.valid & outputs.ready),
        ]
        connect_streams(m, self.states, held.states)
        connect_streams(m, held.hidden, core.states_in)
        with m.If(~enable):
            m.d.comb += held.hidden.ready.eq(0)
        with m.If(self.clear_flags):
            m.d.sync += self.errors.layer.eq(0)
        with m.Elif(self.instructions.valid & ~legal):
            m.d.sync += self.errors.layer.eq(1)

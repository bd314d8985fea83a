"""Operand feed of a processing element: pairs of inputs and weights, in the order of the passes."""

from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.meadow.tile.element_parameters import HYBRID, ElementParameters, ElementParts, Mode
from hdl.meadow.tile.filed_weights import FiledWeights
from hdl.meadow.tile.row_sources import FiledRows, HeldRow, operand_shape, row_layout
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class OperandFeed(Unit):
    """Source of operand pairs for the multipliers: an input and a word of weights per cycle.

    An element makes one pass over a block of weights for each row of inputs. In GEMM mode the rows
    are in the input register file (`FiledRows`), in pipelined mode in the pipeline register
    (`HeldRow`). The weights are a block in the register file (`FiledWeights`) or a stream, of which
    `last` ends a pass. The feed steps when both operands are valid.

    **Latency** 1 enabled cycle, 2 if scalars are selected from the words of an input register file.
    **Throughput** one step per enabled cycle, including from pass to pass.

    Parameters
    ----------
    parameters : ElementParameters
        Dimensions of register files and operands.
    broadcasting : bool
        Whether the multipliers receive inputs as scalars, one at a time.
    parts : ElementParts
        Register files and pipeline register.

    Members
    -------
    settings : In
        As in the elements.
    inputs, weights, pipeline : In(stream)
        As in the elements.
    move : In(1)
        Enable: the multipliers take the current operands.
    step : Out(1)
        The operands are valid.
    first, complete, last : Out(1)
        The operands are the first of a sum, the last of a sum, the last of a pass.
    operand : Out
        A word of inputs, or a scalar.
    weight : Out
        A word of weights, or one for each output.
    """

    def __init__(
        self, *, parameters: ElementParameters, broadcasting: bool, parts: ElementParts = HYBRID
    ) -> None:
        self.parameters, self.broadcasting, self.parts = parameters, broadcasting, parts
        p = parameters
        row = row_layout(p, broadcasting=broadcasting)
        super().__init__(
            {
                "settings": In(p.settings_layout(parts)),
                **{
                    name: In(stream.Signature(layout))
                    for name, layout in p.stream_layouts(parts, row).items()
                },
                "move": In(1),
                "step": Out(1),
                "first": Out(1),
                "complete": Out(1),
                "last": Out(1),
                "operand": Out(operand_shape(p, broadcasting=broadcasting)),
                "weight": Out(p.weight_layout(parts)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Step when both operands are valid."""
        m = Module()
        outputs = self._outputs(m)
        taken, first = Signal(), Signal(init=1)
        row_valid, row_last, complete = Signal(), Signal(), Signal()
        weight_valid, ends = Signal(), Signal()
        # Whether an operand is valid does not depend on the valid bit of the weights.
        ready = self.move & row_valid
        both = self.parts.input_file and self.parts.pipeline_register
        for source, mode in self._row_sources(m):
            used = self.settings.mode == mode if both else Const(1, 1)
            m.d.comb += [
                source.move.eq(self.move),
                source.taken.eq(taken & used),
                source.ends.eq(ends),
            ]
            with m.If(used):
                m.d.comb += [
                    row_valid.eq(source.valid),
                    row_last.eq(source.row_last),
                    complete.eq(source.complete),
                    outputs.operand.eq(source.operand),
                ]
        # Streamed weights have a register, as the register file has.
        streamed = Signal(self.parameters.weight_layout(self.parts), reset_less=True)
        with m.If(self.move):
            m.d.sync += streamed.eq(self.weights.payload.word)
        m.d.comb += [
            weight_valid.eq(self.weights.valid),
            ends.eq(self.weights.payload.last),
            self.weights.ready.eq(ready),
            outputs.weight.eq(streamed),
        ]
        if self.parts.weight_file:
            m.submodules.weights = file = FiledWeights(parameters=self.parameters)
            filed = ~self.settings.streamed
            m.d.comb += [
                file.weights.payload.eq(self.weights.payload),
                file.weights.valid.eq(self.weights.valid & filed),
                file.hold.eq(self.settings.hold),
                file.move.eq(self.move),
                file.taken.eq(taken & filed),
                file.row_last.eq(row_last),
            ]
            with m.If(filed):
                m.d.comb += [
                    weight_valid.eq(file.valid),
                    ends.eq(file.ends),
                    self.weights.ready.eq(file.weights.ready),
                    outputs.weight.eq(file.word),
                ]
        m.d.comb += taken.eq(ready & weight_valid)
        with m.If(taken):
            m.d.sync += first.eq(complete)
        with m.If(self.move):
            m.d.sync += [
                outputs.step.eq(taken),
                outputs.first.eq(first),
                outputs.complete.eq(complete),
                outputs.last.eq(ends),
            ]
        return m

    def _outputs(self, m: Module) -> Any:
        """Return the outputs, or where a scalar is selected the inputs of their registers.

        The selection of one scalar of a word takes most of a cycle.
        """
        if not (self.broadcasting and self.parts.input_file):
            return self
        outputs = SimpleNamespace()
        for name in ("step", "first", "complete", "last", "operand", "weight"):
            output = getattr(self, name)
            early = Signal.like(output, name=f"early_{name}")
            setattr(outputs, name, early)
            late = delay_line(
                m, early, 1, name=f"late_{name}", enable=self.move, reset=name == "step"
            )
            m.d.comb += output.eq(late[-1])
        return outputs

    def _row_sources(self, m: Module) -> list[tuple[FiledRows | HeldRow, Mode]]:
        """Add the sources of inputs; return each with the mode that uses it."""
        p, parts = self.parameters, self.parts
        sources: list[tuple[FiledRows | HeldRow, Mode]] = []
        if parts.input_file:
            m.submodules.rows = rows = FiledRows(parameters=p, broadcasting=self.broadcasting)
            m.d.comb += rows.last_word.eq(self.settings.last_word)
            connect_streams(m, self.inputs, rows.inputs)
            sources.append((rows, Mode.GEMM))
        if parts.pipeline_register:
            m.submodules.held = held = HeldRow(parameters=p, broadcasting=self.broadcasting)
            connect_streams(m, self.pipeline, held.pipeline)
            sources.append((held, Mode.PIPELINED))
        return sources

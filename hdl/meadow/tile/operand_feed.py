"""Operand feed of a processing element: register files, pipeline register, and their order."""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.meadow.tile.element_parameters import ElementParameters, Mode
from hdl.meadow.tile.register_file import RegisterFile
from hdl.stream.connect import buffered
from hdl.unit import Unit

PIPELINE_REGISTERS = 2
"""Pipeline registers: one in use, and one for the next row or scalar."""


class OperandFeed(Unit):
    """Source of operand pairs for the multipliers: an input and a word of weights per cycle.

    An element makes one pass over a block of weights for each row of inputs. A parallel element
    reads the words of the row again for each output; a broadcasting element reads one element of
    the row per word of weights. The weights are a block in the register file or a stream; `last` of
    the stream ends a pass.

    **Latency** 1 enabled cycle. **Throughput** one step per enabled cycle, including from pass to
    pass.

    Parameters
    ----------
    parameters : ElementParameters
        Dimensions of register files and operands.
    broadcasting : bool
        Whether the multipliers receive inputs as scalars, one at a time.

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
        A word of weights.
    """

    def __init__(self, *, parameters: ElementParameters, broadcasting: bool) -> None:
        self.parameters, self.broadcasting = parameters, broadcasting
        p = parameters
        passing = p.scalar_layout if broadcasting else p.vector_layout
        self.operand_shape = next(field.shape for _name, field in passing)
        super().__init__(
            {
                "settings": In(p.settings_layout),
                "inputs": In(stream.Signature(p.block_layout)),
                "weights": In(stream.Signature(p.block_layout)),
                "pipeline": In(stream.Signature(passing)),
                "move": In(1),
                "step": Out(1),
                "first": Out(1),
                "complete": Out(1),
                "last": Out(1),
                "operand": Out(self.operand_shape),
                "weight": Out(p.word_layout),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Step when both operands are valid."""
        m = Module()
        p, settings = self.parameters, self.settings
        gemm = settings.mode == Mode.GEMM
        step, ends, row_ends, input_valid = Signal(), Signal(), Signal(), Signal()
        # A second register accepts the next row while the current one is in use.
        pipeline = buffered(m, "pipeline", self.pipeline, depth=PIPELINE_REGISTERS)
        m.submodules.input_file = inputs = RegisterFile(width=8 * p.multipliers, depth=p.input_file)
        self._weights(m, step, ends, input_valid, step & ends & row_ends & ~settings.hold)
        row, chunk, place, chunk_ends = self._count(m, step, ends, row_ends)
        m.d.comb += [
            inputs.source.valid.eq(self.inputs.valid),
            Value.cast(inputs.source.payload).eq(Value.cast(self.inputs.payload)),
            self.inputs.ready.eq(inputs.source.ready),
            input_valid.eq(self.move & Mux(gemm, inputs.filled, pipeline.valid)),
            # A GEMM block and its weights are released after the pass of its last row.
            row_ends.eq(~gemm | (row + settings.chunks == inputs.end)),
            inputs.read_enable.eq(self.move),
            inputs.read_address.eq(row + chunk),
            inputs.release.eq(step & gemm & ends & row_ends),
            # A parallel element keeps its row for a pass; a broadcasting one takes a scalar at each
            # step.
            pipeline.ready.eq(step & ~gemm & (ends | self.broadcasting)),
        ]

        # The register file outputs a word one cycle after its address, at the same time as the
        # delayed word of the pipeline register.
        first, passed = Signal(init=1), Signal(self.operand_shape, reset_less=True)
        complete, selected = Signal(), Signal.like(place, reset_less=True)
        m.d.comb += complete.eq(ends if self.broadcasting else ~gemm | chunk_ends)
        with m.If(step):
            m.d.sync += first.eq(complete)
        with m.If(self.move):
            m.d.sync += [
                self.step.eq(step),
                self.first.eq(first),
                self.complete.eq(complete),
                self.last.eq(ends),
                Value.cast(passed).eq(Value.cast(pipeline.payload)),
                selected.eq(place),
            ]
        word: Any = data.View(p.word_layout, inputs.read_data)
        filed = Array(word)[selected] if self.broadcasting else inputs.read_data
        m.d.comb += Value.cast(self.operand).eq(Mux(gemm, filed, Value.cast(passed)))
        return m

    def _weights(self, m: Module, step: Signal, ends: Signal, ready: Value, release: Value) -> None:
        """Read words from the register file, or bypass it; drive `step` and `ends`.

        Parameters
        ----------
        step, ends : Signal
            A word is used; it is the last of its pass.
        ready : Value
            An input is valid and enabled; must not depend on the valid bit of the weights.
        release : Value
            The block in the register file is no longer needed.
        """
        p, streamed = self.parameters, self.settings.streamed
        m.submodules.weight_file = file = RegisterFile(width=8 * p.multipliers, depth=p.weight_file)
        address, passed = Signal(range(p.weight_file)), Signal(p.word_layout, reset_less=True)
        word = self.weights.payload
        m.d.comb += [
            file.source.valid.eq(self.weights.valid & ~streamed),
            Value.cast(file.source.payload).eq(Value.cast(word)),
            self.weights.ready.eq(Mux(streamed, ready, file.source.ready)),
            ends.eq(Mux(streamed, word.last, address == file.end)),
            file.read_enable.eq(self.move),
            file.read_address.eq(address),
            file.release.eq(release & ~streamed),
            step.eq(ready & Mux(streamed, self.weights.valid, file.filled)),
            Value.cast(self.weight).eq(Mux(streamed, Value.cast(passed), file.read_data)),
        ]
        with m.If(step & ~streamed):
            m.d.sync += address.eq(Mux(ends, 0, address + 1))
        # The latency is equal to that of a read from the register file.
        with m.If(self.move):
            m.d.sync += passed.eq(word.word)

    def _count(
        self, m: Module, step: Value, ends: Value, row_ends: Value
    ) -> tuple[Signal, Signal, Signal, Value]:
        """Count the first word of the row, the word in the row, and the element in the word."""
        p, settings = self.parameters, self.settings
        row, chunk = Signal(range(p.input_file)), Signal(range(p.input_file))
        place = Signal(exact_log2(p.multipliers))
        chunk_ends = chunk == settings.chunks
        with m.If(step & (settings.mode == Mode.GEMM)):
            if self.broadcasting:
                m.d.sync += place.eq(place + 1)
                with m.If(place == p.multipliers - 1):
                    m.d.sync += chunk.eq(chunk + 1)
            else:
                m.d.sync += chunk.eq(Mux(chunk_ends, 0, chunk + 1))
            # The next pass uses the next row of the block.
            with m.If(ends):
                m.d.sync += [place.eq(0), chunk.eq(0)]
                m.d.sync += row.eq(Mux(row_ends, 0, row + settings.chunks + 1))
        return row, chunk, place, chunk_ends

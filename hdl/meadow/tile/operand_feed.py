"""Operand feed of a processing element: register files, pipeline register, and their order."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.meadow.tile.element_parameters import HYBRID, ElementParameters, ElementParts, Mode
from hdl.meadow.tile.register_file import RegisterFile
from hdl.stream.connect import buffered
from hdl.unit import Unit

PIPELINE_REGISTERS = 2
"""Pipeline registers: one in use, and one for the next row or scalar."""


@dataclass(frozen=True)
class Step:
    """A use of one pair of operands; every source reads these signals.

    Members
    -------
    taken : Signal
        The operands are used in this cycle.
    ends : Signal
        They are the last ones of a pass.
    row_last : Signal
        The current row is the last one of its block.
    """

    taken: Signal
    ends: Signal
    row_last: Signal


@dataclass(frozen=True)
class RowSource:
    """A source of inputs.

    Members
    -------
    valid : Value
        A row, or a scalar, is available.
    row_last : Value
        The row is the last one of its block.
    complete : Value
        The step completes a sum.
    operand : Value
        The word or scalar of the previous enabled cycle.
    """

    valid: Value
    row_last: Value
    complete: Value
    operand: Value


@dataclass(frozen=True)
class WeightSource:
    """A source of weights.

    Members
    -------
    valid : Value
        A word is available.
    ends : Value
        The word is the last one of a pass.
    ready : Value
        The source accepts a word of the stream.
    word : Value
        The word of the previous enabled cycle.
    """

    valid: Value
    ends: Value
    ready: Value
    word: Value


Source = TypeVar("Source", RowSource, WeightSource)


def chosen(sources: Sequence[tuple[Value, Source]]) -> Source:
    """Return the source whose condition is 1; a single source needs no selection."""
    (_, found), *others = sources
    for condition, other in others:
        found = replace(
            found,
            **{
                one.name: Mux(condition, getattr(other, one.name), getattr(found, one.name))
                for one in fields(found)
            },
        )
    return found


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
        A word of weights.
    """

    def __init__(
        self, *, parameters: ElementParameters, broadcasting: bool, parts: ElementParts = HYBRID
    ) -> None:
        self.parameters, self.broadcasting, self.parts = parameters, broadcasting, parts
        p = parameters
        row = p.scalar_layout if broadcasting else p.vector_layout
        self.operand_shape = next(field.shape for _name, field in row)
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
                "operand": Out(self.operand_shape),
                "weight": Out(p.word_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Step when both operands are valid."""
        m = Module()
        parts, settings = self.parts, self.settings
        step = Step(Signal(name="taken"), Signal(name="ends"), Signal(name="row_last"))
        # Settings select between two sources; an element with one of them has no such setting.
        both = parts.input_file and parts.pipeline_register
        gemm = settings.mode == Mode.GEMM if both else Const(parts.input_file, 1)
        streamed = settings.streamed if parts.weight_file else Const(1, 1)
        rows: list[tuple[Value, RowSource]] = []
        if parts.input_file:
            rows.append((gemm, self._filed_rows(m, step, gemm)))
        if parts.pipeline_register:
            rows.append((~gemm, self._held_row(m, step, ~gemm)))
        row = chosen(rows)
        # Whether an operand is valid does not depend on the valid bit of the weights.
        ready = self.move & row.valid
        weights = [(streamed, self._streamed_weights(m, ready))]
        if parts.weight_file:
            weights.append((~streamed, self._filed_weights(m, step, ~streamed)))
        weight = chosen(weights)
        m.d.comb += [
            step.taken.eq(ready & weight.valid),
            step.ends.eq(weight.ends),
            step.row_last.eq(row.row_last),
            self.weights.ready.eq(weight.ready),
            Value.cast(self.operand).eq(row.operand),
            Value.cast(self.weight).eq(weight.word),
        ]
        first = Signal(init=1)
        with m.If(step.taken):
            m.d.sync += first.eq(row.complete)
        with m.If(self.move):
            m.d.sync += [
                self.step.eq(step.taken),
                self.first.eq(first),
                self.complete.eq(row.complete),
                self.last.eq(step.ends),
            ]
        return m

    def _filed_rows(self, m: Module, step: Step, used: Value) -> RowSource:
        """Add the input register file, which outputs a word one cycle after its address."""
        p = self.parameters
        m.submodules.input_file = file = RegisterFile(width=8 * p.multipliers, depth=p.input_file)
        row, chunk = Signal(range(p.input_file)), Signal(range(p.input_file))
        place = Signal(exact_log2(p.multipliers))
        chunk_ends = chunk == self.settings.chunks
        m.d.comb += [
            file.source.valid.eq(self.inputs.valid),
            Value.cast(file.source.payload).eq(Value.cast(self.inputs.payload)),
            self.inputs.ready.eq(file.source.ready),
            file.read_enable.eq(self.move),
            file.read_address.eq(row + chunk),
            # A block is released after the pass of its last row.
            file.release.eq(step.taken & used & step.ends & step.row_last),
        ]
        with m.If(step.taken & used):
            if self.broadcasting:
                m.d.sync += place.eq(place + 1)
                with m.If(place == p.multipliers - 1):
                    m.d.sync += chunk.eq(chunk + 1)
            else:
                m.d.sync += chunk.eq(Mux(chunk_ends, 0, chunk + 1))
            # The next pass uses the next row of the block.
            with m.If(step.ends):
                m.d.sync += [place.eq(0), chunk.eq(0)]
                m.d.sync += row.eq(Mux(step.row_last, 0, row + self.settings.chunks + 1))
        operand = file.read_data
        if self.broadcasting:
            selected = Signal.like(place, reset_less=True)
            with m.If(self.move):
                m.d.sync += selected.eq(place)
            word: Any = data.View(p.word_layout, file.read_data)
            operand = Array(word)[selected]
        return RowSource(
            valid=file.filled,
            row_last=row + self.settings.chunks == file.end,
            complete=step.ends if self.broadcasting else chunk_ends,
            operand=operand,
        )

    def _held_row(self, m: Module, step: Step, used: Value) -> RowSource:
        """Add the pipeline registers and a delay equal to that of the register file."""
        # A second register accepts the next row while the current one is in use.
        pipeline = buffered(m, "pipeline", self.pipeline, depth=PIPELINE_REGISTERS)
        passed = Signal(self.operand_shape, reset_less=True)
        # A parallel element keeps its row for a pass; a broadcasting one takes a scalar at each
        # step.
        m.d.comb += pipeline.ready.eq(step.taken & used & (step.ends | self.broadcasting))
        with m.If(self.move):
            m.d.sync += Value.cast(passed).eq(Value.cast(pipeline.payload))
        return RowSource(
            valid=pipeline.valid,
            row_last=Const(1, 1),
            complete=step.ends if self.broadcasting else Const(1, 1),
            operand=Value.cast(passed),
        )

    def _streamed_weights(self, m: Module, ready: Value) -> WeightSource:
        """Use each word of the stream once, with a delay equal to that of the register file."""
        word, passed = self.weights.payload, Signal(self.parameters.word_layout, reset_less=True)
        with m.If(self.move):
            m.d.sync += passed.eq(word.word)
        return WeightSource(
            valid=self.weights.valid, ends=word.last, ready=ready, word=Value.cast(passed)
        )

    def _filed_weights(self, m: Module, step: Step, used: Value) -> WeightSource:
        """Add the weight register file, whose block each row reads from its start."""
        p = self.parameters
        m.submodules.weight_file = file = RegisterFile(width=8 * p.multipliers, depth=p.weight_file)
        address, ends = Signal(range(p.weight_file)), Signal()
        m.d.comb += [
            ends.eq(address == file.end),
            file.source.valid.eq(self.weights.valid & used),
            Value.cast(file.source.payload).eq(Value.cast(self.weights.payload)),
            file.read_enable.eq(self.move),
            file.read_address.eq(address),
            # The weights of the last row are released with it, unless the next block uses them too.
            file.release.eq(step.taken & used & ends & step.row_last & ~self.settings.hold),
        ]
        with m.If(step.taken & used):
            m.d.sync += address.eq(Mux(ends, 0, address + 1))
        return WeightSource(
            valid=file.filled, ends=ends, ready=file.source.ready, word=file.read_data
        )

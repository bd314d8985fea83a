"""Sources of a processing element's inputs: the input register file and the pipeline register."""

from amaranth.hdl import Array, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Member, Out
from amaranth.utils import exact_log2

from hdl.meadow.tile.element_parameters import ElementParameters
from hdl.meadow.tile.register_file import RegisterFile
from hdl.stream.connect import buffered
from hdl.unit import Unit

PIPELINE_REGISTERS = 2
"""Pipeline registers: one in use, and one for the next row or scalar."""


def row_layout(parameters: ElementParameters, *, broadcasting: bool) -> data.StructLayout:
    """Return what the pipeline register holds: a scalar, or a word for a parallel element."""
    return parameters.scalar_layout if broadcasting else parameters.vector_layout


def operand_shape(parameters: ElementParameters, *, broadcasting: bool) -> ShapeLike:
    """Return the shape of an operand: a scalar, or a word for a parallel element."""
    return next(field.shape for _name, field in row_layout(parameters, broadcasting=broadcasting))


def row_members(parameters: ElementParameters, *, broadcasting: bool) -> dict[str, Member]:
    """Return the members that every source of inputs has.

    ``move``
        Enable of the operand's register.
    ``taken``, ``ends``
        The current input is used in this cycle; it is the last one of a pass.
    ``valid``
        An input is available.
    ``row_last``
        The current row is the last one of its block.
    ``complete``
        The current input completes a sum.
    ``operand``
        The word or scalar of the previous enabled cycle.
    """
    return {
        "move": In(1),
        "taken": In(1),
        "ends": In(1),
        "valid": Out(1),
        "row_last": Out(1),
        "complete": Out(1),
        "operand": Out(operand_shape(parameters, broadcasting=broadcasting)),
    }


class FiledRows(Unit):
    """Rows of GEMM mode from the input register file.

    A parallel element reads the words of a row again for each output. A broadcasting element reads
    one element of the row per word of weights.

    **Latency** 1 enabled cycle. **Throughput** one input per enabled cycle.

    Parameters
    ----------
    parameters : ElementParameters
        Dimensions of the register file.
    broadcasting : bool
        Whether an operand is a scalar.

    Members
    -------
    inputs, last_word : In
        As in the elements.
    move, taken, ends, valid, row_last, complete, operand
        As in `row_members`.
    """

    def __init__(self, *, parameters: ElementParameters, broadcasting: bool) -> None:
        self.parameters, self.broadcasting = parameters, broadcasting
        super().__init__(
            {
                "inputs": In(stream.Signature(parameters.block_layout)),
                "last_word": In(range(parameters.input_file)),
                **row_members(parameters, broadcasting=broadcasting),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Address the register file, which outputs a word one cycle later."""
        m = Module()
        p = self.parameters
        m.submodules.input_file = file = RegisterFile(width=8 * p.multipliers, depth=p.input_file)
        row, index = Signal(range(p.input_file)), Signal(range(p.input_file))
        element = Signal(exact_log2(p.multipliers))
        row_ends = index == self.last_word
        m.d.comb += [
            file.source.valid.eq(self.inputs.valid),
            Value.cast(file.source.payload).eq(Value.cast(self.inputs.payload)),
            self.inputs.ready.eq(file.source.ready),
            file.read_enable.eq(self.move),
            file.read_address.eq(row + index),
            # A block is released after the pass of its last row.
            file.release.eq(self.taken & self.ends & self.row_last),
            self.valid.eq(file.filled),
            self.row_last.eq(row + self.last_word == file.end),
        ]
        with m.If(self.taken):
            if self.broadcasting:
                m.d.sync += element.eq(element + 1)
                with m.If(element == p.multipliers - 1):
                    m.d.sync += index.eq(index + 1)
            else:
                m.d.sync += index.eq(Mux(row_ends, 0, index + 1))
            # The next pass uses the next row of the block.
            with m.If(self.ends):
                m.d.sync += [element.eq(0), index.eq(0)]
                m.d.sync += row.eq(Mux(self.row_last, 0, row + self.last_word + 1))
        if self.broadcasting:
            selected = Signal.like(element, reset_less=True)
            with m.If(self.move):
                m.d.sync += selected.eq(element)
            word = data.View(p.word_layout, file.read_data)
            elements = Array(word[number] for number in range(p.multipliers))
            m.d.comb += [self.complete.eq(self.ends), self.operand.eq(elements[selected])]
        else:
            m.d.comb += self.complete.eq(row_ends)
            m.d.comb += Value.cast(self.operand).eq(file.read_data)
        return m


class HeldRow(Unit):
    """Rows of pipelined mode from the pipeline register (PREG).

    A parallel element keeps its row of one word for a pass; a broadcasting element takes a scalar
    at each step.

    **Latency** 1 enabled cycle, equal to that of the register file. **Throughput** one input per
    enabled cycle.

    Parameters
    ----------
    parameters : ElementParameters
        Dimensions of a row.
    broadcasting : bool
        Whether an operand is a scalar.

    Members
    -------
    pipeline : In(stream)
        As in the elements.
    move, taken, ends, valid, row_last, complete, operand
        As in `row_members`.
    """

    def __init__(self, *, parameters: ElementParameters, broadcasting: bool) -> None:
        self.broadcasting = broadcasting
        row = row_layout(parameters, broadcasting=broadcasting)
        super().__init__(
            {
                "pipeline": In(stream.Signature(row)),
                **row_members(parameters, broadcasting=broadcasting),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Buffer rows, so that the next one is accepted while the current one is in use."""
        m = Module()
        row = buffered(m, "pipeline", self.pipeline, depth=PIPELINE_REGISTERS)
        m.d.comb += [
            row.ready.eq(self.taken & (self.ends | self.broadcasting)),
            self.valid.eq(row.valid),
            self.row_last.eq(1),
            self.complete.eq(self.ends if self.broadcasting else 1),
        ]
        with m.If(self.move):
            m.d.sync += Value.cast(self.operand).eq(Value.cast(row.payload))
        return m

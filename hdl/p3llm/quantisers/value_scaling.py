"""Second-level scaling: attention probabilities times the normalised scales of their values."""

from typing import Annotated

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_divide import FloatDivide
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.memory.row_buffer import RowBuffer, take_slices
from hdl.p3llm.quantisers.extreme import extreme, extreme_stages, higher
from hdl.p3llm.quantisers.quantiser_parameters import finite_magnitude
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.unit import Unit

TURNAROUND = 4
"""Margin in cycles after a row's largest scale, for the buffer's pointers."""


@parameter_object
class ValueScalingParameters(Parameters):
    """Dimensions of the second-level scaling.

    Parameters
    ----------
    lanes : int
        Tokens per slice.
    tokens : int
        Tokens of the longest row, a multiple of `lanes` and at least two slices.
    rows : int
        Maximum number of complete rows, in flight or stored.
    divide_stages, multiply_stages : int
        Pipeline stages of a lane's division and multiplication.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "tokens")] = 32
    tokens: Annotated[int, Range(2, 131072, "tokens")] = 4096
    rows: Annotated[int, Range(1, 16, "rows")] = 2
    divide_stages: Annotated[int, Range(1, 16, "stages")] = 8
    multiply_stages: Annotated[int, Range(1, 4, "stages")] = 2

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(self.tokens % self.lanes == 0, "tokens must be a multiple of lanes", self.tokens)
        require(self.tokens >= 2 * self.lanes, "tokens must be at least two slices", self.tokens)
        require(self.slices <= 4000, "tokens must be at most 4000 slices", self.tokens)

    @property
    def slices(self) -> int:
        """Number of slices of the longest row."""
        return self.tokens // self.lanes

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of scales, or of probabilities."""
        return data.StructLayout({"values": data.ArrayLayout(16, self.lanes), "last": 1})

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of products; every slice contains the largest scale of its row."""
        values = data.ArrayLayout(16, self.lanes)
        return data.StructLayout({"values": values, "largest": 16, "last": 1})


class ValueScaling(Unit):
    """Compute ``p[t] * (scale[t] / max(scale))`` and the maximum, in slices of `lanes`.

    The scale of each token's value vector, the paper's S_V, is multiplied into its probability, so
    that the product with the values needs only integers. After division by the maximum, no product
    is larger than its probability. The head's result is later multiplied by the maximum (P3-LLM,
    Section V-B).

    **Latency** ``extreme_stages(lanes) + divide_stages + multiply_stages + 2`` cycles from a row's
    last scales to its first products. **Throughput** one slice of each input and one of results per
    cycle, also across rows; while `rows` complete rows are in flight, the scales of the next one
    wait. A slice waits for its probabilities.

    **Numerics** ratio and product are FP16, each rounded to nearest, ties to even; including
    subnormal operands and results. Scales must not be negative; in the maximum an infinity is
    treated as 65504 and a NaN is ignored. If all scales are zero, so are the ratios.

    Parameters
    ----------
    parameters : ValueScalingParameters
        Lanes, length of a row and pipeline stages.

    Members
    -------
    scales : In(stream)
        `values` in FP16, `last` in a row's last slice; at most `tokens` per row.
    probabilities : In(stream)
        One slice per slice of scales; its `last` is not used.
    results : Out(stream)
        `values` in FP16, `largest` in FP16, `last`.

    Raises
    ------
    ValueError
        If `ValueScalingParameters` rejects a value.
    """

    def __init__(self, *, parameters: ValueScalingParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "scales": In(stream.Signature(parameters.slice_layout)),
                "probabilities": In(stream.Signature(parameters.slice_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the first pass, the buffer and the second pass."""
        m = Module()
        p = self.parameters
        m.submodules.buffer = buffer = RowBuffer(
            data_shape=data.ArrayLayout(16, p.lanes),
            result_shape=15,
            depth=p.slices + extreme_stages(p.lanes) + TURNAROUND,
            rows=p.rows,
        )
        self._first_pass(m, buffer)
        self._second_pass(m, buffer)
        return m

    def _first_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Compute the largest scale; this pass does not stall."""
        p = self.parameters
        scales = self.scales.payload
        take = take_slices(m, buffer, self.scales)
        magnitudes = [finite_magnitude(m, scales.values[i]) for i in range(p.lanes)]
        largest, complete = extreme(
            m, magnitudes, higher, take=take, last=scales.last, name="largest"
        )
        m.d.comb += [
            buffer.results.valid.eq(complete),
            buffer.results.payload.eq(largest),
        ]

    def _second_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Divide by the largest scale, then multiply by probabilities, which may arrive later."""
        p = self.parameters
        results, out = self.results, self.results.payload
        largest = Signal(15, reset_less=True)
        read, divided = Signal(), Signal()
        read_last = Signal(reset_less=True)
        # The multipliers may advance while the dividers wait for probabilities.
        free = ~results.valid | results.ready
        move = free & (~divided | self.probabilities.valid)
        m.d.comb += [buffer.enable.eq(move), self.probabilities.ready.eq(free & divided)]
        with m.If(move):
            m.d.sync += [
                largest.eq(buffer.result),
                read.eq(buffer.valid),
                read_last.eq(buffer.last),
            ]
        # Values delayed in parallel with the quotients, and then with the products.
        stages = {"enable": move, "cycles": p.divide_stages}
        beside = Cat(read_last, largest)
        quotients = delay_line(m, beside, name="beside_quotients", **stages)[-1]
        m.d.comb += divided.eq(delay_line(m, read, name="divided", reset=True, **stages)[-1])
        stages = {"enable": free, "cycles": p.multiply_stages}
        products = delay_line(m, quotients, name="beside_products", **stages)[-1]
        take = divided & self.probabilities.valid
        m.d.comb += [
            results.valid.eq(delay_line(m, take, name="taken", reset=True, **stages)[-1]),
            out.last.eq(products[0]),
            out.largest.eq(products[1:]),
        ]
        for i in range(p.lanes):
            divide = FloatDivide(stages=p.divide_stages, enable=True)
            multiply = FloatMultiply(stages=p.multiply_stages, enable=True)
            m.submodules[f"divide_{i}"], m.submodules[f"multiply_{i}"] = divide, multiply
            m.d.comb += [
                divide.enable.eq(move),
                divide.a.eq(buffer.data[i]),
                # If the largest scale is zero, divide by one instead: the quotients are zero.
                divide.b.eq(Mux(largest.any(), largest, BINARY16.one)),
                multiply.enable.eq(free),
                multiply.a.eq(divide.result),
                multiply.b.eq(self.probabilities.payload.values[i]),
                out.values[i].eq(multiply.result),
            ]

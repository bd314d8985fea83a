"""Argmax over rows of numbers that arrive in slices.

A row is for example the logits of one token: the LM head's argmax is the predicted next token.
"""

from collections.abc import Sequence
from typing import Annotated

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.arith.float_format import NAMED_FORMATS, FloatFormat
from hdl.arith.float_order import number_order, number_order_code, require_signed
from hdl.memory.memory import Memory
from hdl.parameters import Named, Parameters, Range, option, parameter_object, require
from hdl.unit import Unit

Operand = tuple[Value, Value]
"""Key of the largest value of some lanes, and its lane."""


@parameter_object
class ArgmaxParameters(Parameters):
    """Dimensions of an argmax, shared with its golden model and its testbench.

    Parameters
    ----------
    lanes : int
        Values per slice.
    length : int
        Values of the longest row.
    width : int
        Bits of a value.
    number_format : FloatFormat, optional
        Floating-point format of the values, of `width` bits; signed integers if omitted.
    contexts : int
        Rows in progress at a time; their slices may be interleaved.
    skewed : bool
        Lane i's value is input i cycles after its slice, as a systolic array outputs it. The
        comparators then form a chain, instead of a tree.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, Range(1, 64, "values")] = 16
    length: Annotated[int, Range(1, 1 << 24, "values")] = 49152
    width: Annotated[int, Range(2, 48, "bits")] = 32
    number_format: Annotated[FloatFormat | None, Named(NAMED_FORMATS)] = option(default=None)
    contexts: Annotated[int, Range(1, 64, "rows")] = option(default=1)
    skewed: bool = option(default=False)

    def __post_init__(self) -> None:
        """Check rules that involve several parameters."""
        super().__post_init__()
        if self.number_format is not None:
            require_signed("number_format", self.number_format)
            fits = self.number_format.width == self.width
            require(fits, f"number_format must have width's {self.width} bits", self.number_format)

    @property
    def index_bits(self) -> int:
        """Bits of an index: of the longest row, rounded up to whole slices."""
        slices = -(-self.length // self.lanes)
        return max(ceil_log2(slices * self.lanes), 1)

    @property
    def low_bits(self) -> int:
        """Low bits of an index that are those of its lane, as every slice has the same ones."""
        return (self.lanes & -self.lanes).bit_length() - 1

    @property
    def stages(self) -> int:
        """Register stages of the comparators of one slice."""
        return self.lanes if self.skewed else max(ceil_log2(self.lanes), 1)

    @property
    def latency(self) -> int:
        """Cycles from a slice to its result."""
        return self.stages + 1

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of a row; see `Argmax`."""
        value = signed(self.width) if self.number_format is None else unsigned(self.width)
        context = {"context": range(self.contexts)} if self.contexts > 1 else {}
        return data.StructLayout(
            {
                "values": data.ArrayLayout(value, self.lanes),
                "count": range(self.lanes + 1),
                **context,
                "first": 1,
                "last": 1,
            }
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """The argmax of a row up to a slice; see `Argmax`."""
        value = signed(self.width) if self.number_format is None else unsigned(self.width)
        return data.StructLayout({"index": self.index_bits, "value": value, "last": 1})

    @property
    def state_layout(self) -> data.StructLayout:
        """State of a row: its largest key, the index of it, and the next slice's first index."""
        above = max(self.index_bits - self.low_bits, 1)
        return data.StructLayout({"key": self.width, "index": self.index_bits, "base": above})


class Argmax(Unit):
    """Find the largest value of each row, and its index.

    The values become unsigned keys of the same order. A tree of comparators with one registered
    level per cycle finds the largest key of a slice; the last stage compares it with the largest
    key of the row so far.

    **Latency** ``max(ceil(log2(lanes)), 1) + 1`` cycles from a slice to its result; with `skewed`
    ``lanes + 1``. **Throughput** one slice per cycle, also across rows and contexts; a stalled
    result stalls the input in the same cycle.

    **Numerics** exact. Ties resolve to the lowest index. -0 equals +0, and the result is +0. A NaN
    is below every number; a row of NaNs only gives index 0 and the quiet NaN. A lane without a
    value compares as a NaN, and as the least integer in a row of integers.

    Parameters
    ----------
    parameters : ArgmaxParameters
        Lanes, length of a row, format of a value, contexts.

    Members
    -------
    slices : In(stream)
        `values` of a row; the first `count` lanes hold values. Lane i of slice n has index
        ``n * lanes + i``. `first` starts a row of `context` (only with several contexts); the first
        slice of a context must have it. `last` is copied to the result. With `skewed`, lane i's
        value is input in the i-th later cycle in which `ready` is 1.
    results : Out(stream)
        For each slice the argmax of its row up to this slice: `index`, `value`, `last`. The payload
        does not change before the next result, also after its transfer.

    Raises
    ------
    ValueError
        If `ArgmaxParameters` rejects a value.
    """

    def __init__(self, *, parameters: ArgmaxParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "slices": In(stream.Signature(p.slice_layout)),
                "results": Out(stream.Signature(p.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Find the largest key of a slice; compare it with the largest key of its row."""
        m = Module()
        p, slices, results = self.parameters, self.slices, self.results
        move = Signal()
        m.d.comb += [move.eq(~results.valid | results.ready), slices.ready.eq(move)]
        valid = delay_line(m, slices.valid, p.stages, name="valid", enable=move, reset=True)
        flags = Cat(slices.payload.first, slices.payload.last)
        first, last = delay_line(m, flags, p.stages, name="flags", enable=move)[-1]
        key, lane = self._chain(m, move) if p.skewed else self._tree(m, move)

        # `best` is the state of the latest result's row.
        best = Signal(p.state_layout, reset_less=True)
        base, updated = Signal.like(best.base), Signal(p.state_layout)
        state = best if p.contexts == 1 else self._stored(m, move, valid, best, updated)
        # Only a larger key replaces the largest one, so that ties resolve to the lowest index.
        better = first | (key > state.key)
        index = Cat(lane[: p.low_bits], base + lane[p.low_bits :])[: p.index_bits]
        m.d.comb += [
            base.eq(Mux(first, 0, state.base)),
            updated.key.eq(Mux(better, key, state.key)),
            updated.index.eq(Mux(better, index, state.index)),
            updated.base.eq(base + (p.lanes >> p.low_bits)),
            results.payload.index.eq(best.index),
            results.payload.value.eq(self._value(best.key)),
        ]
        with m.If(move):
            m.d.sync += results.valid.eq(valid[-1])
            with m.If(valid[-1]):
                m.d.sync += [best.eq(updated), results.payload.last.eq(last)]
        return m

    def _stored(
        self, m: Module, move: Value, valid: Sequence[Value], best: data.View, updated: data.View
    ) -> data.View:
        """Return the state of a slice's row; it is read one stage before its use."""
        p, state = self.parameters, Signal(self.parameters.state_layout)
        context = self.slices.payload.context
        contexts = delay_line(m, context, p.stages, name="context", enable=move)
        m.submodules.rows = rows = Memory(depth=p.contexts, width=p.state_layout.size)
        # A read of the address that is being written returns old data; the new data are in `best`.
        continues = Signal()
        with m.If(move):
            m.d.sync += continues.eq(valid[-1] & (contexts[-2] == contexts[-1]))
        m.d.comb += [
            rows.read_enable.eq(move & valid[-2]),
            rows.read_address.eq(contexts[-2]),
            rows.write_enable.eq(move & valid[-1]),
            rows.write_address.eq(contexts[-1]),
            rows.write_data.eq(updated),
            state.eq(Mux(continues, best, rows.read_data)),
        ]
        return state

    def _tree(self, m: Module, move: Value) -> Operand:
        """Return the largest key of a slice and its lane, from a tree of comparators."""
        p = self.parameters
        level: list[Operand] = [
            (self._key(m, lane, self.slices.payload.count), Const(0, 0)) for lane in range(p.lanes)
        ]
        for stage in range(p.stages):
            # The last of an odd number of operands is alone.
            pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
            level = [
                self._larger(m, move, pair, f"{stage}_{number}")
                for number, pair in enumerate(pairs)
            ]
        return level[0]

    def _larger(self, m: Module, move: Value, pair: list[Operand], name: str) -> Operand:
        """Register the larger one of two operands, or the only one; on a tie, the first.

        Operands are in the order of their lanes, so that each level adds the next bit of a lane.
        """
        (key, lane), *others = pair
        side: Value = Const(0, 1)
        for other_key, other_lane in others:
            side = other_key > key
            key, lane = Mux(side, other_key, key), Mux(side, other_lane, lane)
        larger = Signal(self.parameters.width, name=f"key_{name}", reset_less=True)
        bits = min(len(lane) + 1, ceil_log2(self.parameters.lanes))
        its_lane = Signal(bits, name=f"lane_{name}", reset_less=True)
        with m.If(move):
            m.d.sync += [larger.eq(key), its_lane.eq(Cat(lane, side))]
        return larger, its_lane

    def _chain(self, m: Module, move: Value) -> Operand:
        """Return the largest key of a slice and its lane, from a chain of one lane per stage."""
        p = self.parameters
        counts = delay_line(m, self.slices.payload.count, p.lanes - 1, name="count", enable=move)
        lane_bits = ceil_log2(p.lanes)
        best: Operand = self._key(m, 0, counts[0]), Const(0, lane_bits)
        for number, count in enumerate(counts):
            own = best[0] if number == 0 else self._key(m, number, count)
            better = own > best[0]
            key = Signal(p.width, name=f"key_{number}", reset_less=True)
            lane = Signal(lane_bits, name=f"lane_{number}", reset_less=True)
            with m.If(move):
                m.d.sync += [
                    key.eq(Mux(better, own, best[0])),
                    lane.eq(Mux(better, number, best[1])),
                ]
            best = key, lane
        return best

    def _key(self, m: Module, lane: int, count: Value) -> Signal:
        """Return the key of a lane's value; 0 if the lane holds none."""
        p, value = self.parameters, self.slices.payload["values"][lane]
        code = value.as_unsigned()
        if p.number_format is None:
            key = Cat(code[:-1], ~code[-1])
        else:
            key = number_order(p.number_format, code)
        compared = Signal(p.width, name=f"key_of_lane_{lane}")
        m.d.comb += compared.eq(Mux(count > lane, key, 0))
        return compared

    def _value(self, key: Value) -> Value:
        """Return the value of a key."""
        if self.parameters.number_format is None:
            return Cat(key[:-1], ~key[-1])
        return number_order_code(self.parameters.number_format, key)

"""Rotary embedding: rotation of each pair of channels by the angle of its position.

The angles are computed, not stored: the product of the position and a constant of the pair, in
units of a turn, addresses a table of a quarter of the circle.
"""

from functools import cache, partial
from typing import Annotated

import mpmath
from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import CarrySaveSum
from hdl.arith.delay_line import delay_line
from hdl.arith.multiply_add import divided_product, multiply_add
from hdl.arith.operator import Pipeline
from hdl.arith.saturating_add import saturate
from hdl.arith.table_interpolation import TableInterpolation, exact_breakpoints, look_up
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require, require_range
from hdl.unit import Unit

ELEMENT = signed(16)
"""An element of a query or key, in steps of any scale."""

PLACE_BITS = 16
"""Bits of the angle within a quarter turn."""

PHASE_BITS = 2 + PLACE_BITS
"""Bits of an angle: the quarter, and the angle in it."""

CIRCLE_FRACTION = 15
"""Fraction bits of sines and cosines."""

PIECES = 256
GUARD_BITS = 4


@parameter_object
class RotaryEmbeddingParameters(Parameters):
    """Dimensions of a rotary embedding, shared with its golden model and its testbench.

    Parameters
    ----------
    lanes : int
        Elements per slice, of adjacent channels.
    head_size : int
        Channels of a head, a multiple of `lanes`.
    base : int
        Base of the geometric series of angles.
    position_bits : int
        Bits of a position.
    stages : int
        Pipeline stages: angle, quarter, sine and cosine, and the products with their sums. With 5,
        the products have a stage of their own; with 6, the lookup of the turns has one too; with 7,
        the products have two.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(2, 64, "elements")] = 32
    head_size: Annotated[int, Range("lanes", 256, "channels")] = 128
    base: Annotated[int, Range(2, 10_000_000, "ratio")] = 10000
    position_bits: Annotated[int, Range(1, 20, "bits")] = 14
    stages: Annotated[int, Range(4, 7, "stages")] = 6

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        rule = "head_size must be a multiple of lanes"
        require(self.head_size % self.lanes == 0, rule, self.head_size)

    @property
    def slices(self) -> int:
        """Slices per head."""
        return self.head_size // self.lanes

    @property
    def turn_bits(self) -> int:
        """Fraction bits of a pair's turns per position, sufficient for the largest position."""
        return self.position_bits + PHASE_BITS

    @property
    def turns(self) -> tuple[int, ...]:
        """Turns per position of every pair of a head, in units of 2**-turn_bits."""
        return turns(self.head_size, self.base, self.turn_bits)

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of a query or key."""
        values = data.ArrayLayout(ELEMENT, self.lanes)
        return data.StructLayout({"values": values, "position": self.position_bits, "last": 1})

    @property
    def result_layout(self) -> data.StructLayout:
        """A rotated slice."""
        return data.StructLayout({"values": data.ArrayLayout(ELEMENT, self.lanes), "last": 1})


@cache
def turns(head_size: int, base: int, bits: int) -> tuple[int, ...]:
    """Return ``base**(-2 * i / head_size) / (2 * pi)`` for every pair i, in units of 2**-bits."""
    with mpmath.workprec(100):
        angles = (
            mpmath.mpf(base) ** (mpmath.mpf(-2 * i) / head_size) for i in range(head_size // 2)
        )
        return tuple(
            int(mpmath.nint(mpmath.ldexp(angle / (2 * mpmath.pi), bits))) for angle in angles
        )


@cache
def circle_breakpoints(function: str) -> tuple[int, ...]:
    """Return the table of ``"sin"`` or ``"cos"`` over a quarter turn."""
    scale = 1 << CIRCLE_FRACTION + GUARD_BITS
    quarter = getattr(mpmath, f"{function}pi")
    return exact_breakpoints(lambda turn: quarter(2 * turn), pieces=PIECES, width=0.25, scale=scale)


class RotaryEmbedding(Unit):
    """Queries and keys with each pair of channels rotated by position times the pair's angle.

    A pair consists of the adjacent channels 2i and 2i + 1. Models that pair channel i with channel
    i + head_size / 2 are supported by one permutation of the rows of their query and key weights in
    software, which does not change the scores.

    **Latency** `stages` cycles. **Throughput** one slice per cycle.

    **Numerics** the angle is rounded to 18 bits of a turn. Sine and cosine are interpolated in
    tables of 256 breakpoints over a quarter turn and rounded to 15 fraction bits. Each result is
    the sum of two products, rounded half up, and saturates. The error is at most ``0.5 + 5e-5 *
    (abs(x) + abs(y))`` steps for a pair x, y.

    Parameters
    ----------
    parameters : RotaryEmbeddingParameters
        Head size, number of lanes, angles and stages.

    Members
    -------
    vectors : In(stream)
        `values`; the vector's `position` with each slice; `last` with its last slice. A vector is
        one head of one token.
    rotated : Out(stream)
        `values` in the same steps, `last`.

    Raises
    ------
    ValueError
        If `RotaryEmbeddingParameters` rejects a value.
    """

    def __init__(self, *, parameters: RotaryEmbeddingParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "vectors": In(stream.Signature(parameters.slice_layout)),
                "rotated": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the slices of a head; instantiate one unit per pair, with a common enable."""
        m = Module()
        p = self.parameters
        move = ~self.rotated.valid | self.rotated.ready
        taken = self.vectors.payload
        m.d.comb += self.vectors.ready.eq(move)

        # Index of the slice in its head, which addresses the table of turns.
        index = Signal(range(p.slices))
        with m.If(move & self.vectors.valid):
            m.d.sync += index.eq(Mux(taken.last, 0, index + 1))
        flags = Cat(self.vectors.valid, taken.last)
        flags = delay_line(m, flags, p.stages, name="flags", enable=move, reset=True)[-1]
        m.d.comb += [self.rotated.valid.eq(flags[0]), self.rotated.payload.last.eq(flags[1])]

        pairs = p.lanes // 2
        for i in range(pairs):
            m.submodules[f"pair_{i}"] = pair = RotaryPair(
                position_bits=p.position_bits, stages=p.stages
            )
            m.d.comb += [
                pair.enable.eq(move),
                pair.position.eq(taken.position),
                pair.turn.eq(look_up(list(p.turns[i::pairs]), index)),
                self.rotated.payload.values[2 * i].eq(pair.x_rotated),
                self.rotated.payload.values[2 * i + 1].eq(pair.y_rotated),
                pair.x.eq(taken.values[2 * i]),
                pair.y.eq(taken.values[2 * i + 1]),
            ]
        return m


class RotaryPair(Unit):
    """Rotate two elements by position times turn.

    **Latency** `stages` enabled cycles. **Throughput** one pair per cycle. **Numerics** as in
    `RotaryEmbedding`.

    Parameters
    ----------
    position_bits : int
        Bits of a position.
    stages : int
        As in `RotaryEmbeddingParameters`.
    width : int
        Bits of an element, 16 to 48; wide elements are sums before requantisation.

    Members
    -------
    enable : In(1)
        The registers load only while it is 1.
    position, turn : In
        The position, and the pair's turns per position.
    x, y : In
        The elements.
    x_rotated, y_rotated : Out
        ``x * cos - y * sin`` and ``x * sin + y * cos``.
    """

    def __init__(self, *, position_bits: int, stages: int, width: int = ELEMENT.width) -> None:
        require_range("width", width, ELEMENT.width, 48)
        require_range("stages", stages, 4, 7)
        self.position_bits = position_bits
        self.stages = stages
        self.element = signed(width)
        super().__init__(
            {
                "enable": In(1),
                "position": In(position_bits),
                "turn": In(position_bits + PHASE_BITS),
                "x": In(self.element),
                "y": In(self.element),
                "x_rotated": Out(self.element),
                "y_rotated": Out(self.element),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compute the angle, rotate by whole quarters, rotate by the rest."""
        m = Module()
        # With six stages or more, register the inputs and the turn from the lookup.
        given = self.position, self.turn, self.x, self.y
        position, turn, own_x, own_y = (
            delay_line(m, one, int(self.stages > 5), name=name, enable=self.enable)[-1]
            for one, name in zip(given, ("own_position", "own_turn", "own_x", "own_y"), strict=True)
        )
        # Whole turns have no effect: the upper bits of the product are dropped.
        angle = CarrySaveSum(m, self.position_bits + PHASE_BITS)
        angle.add_product(turn, position)
        angle.add(1 << self.position_bits - 1)
        rounded = angle.result()
        # First stage: the angle as a quarter and the angle in it.
        phase = Signal(PHASE_BITS, reset_less=True)
        x, y = Signal(self.element, reset_less=True), Signal(self.element, reset_less=True)
        quarters = phase[PLACE_BITS:]
        straight = signed(self.element.width + 1)
        # Second stage: whole quarters are swaps and negations; -(-2**15) needs one more bit.
        turned = Mux(quarters[0], -y, x), Mux(quarters[0], x, y)
        x_straight, y_straight = (
            Signal(straight, name=f"{name}_straight", reset_less=True) for name in "xy"
        )
        # Third stage: the elements are delayed in parallel with sine and cosine.
        x_held, y_held = (Signal(straight, name=f"{name}_held", reset_less=True) for name in "xy")
        circle = []
        for name in ("cos", "sin"):
            m.submodules[name] = table = TableInterpolation(
                breakpoints=circle_breakpoints(name),
                offset_bits=PLACE_BITS - (PIECES.bit_length() - 1),
                guard_bits=GUARD_BITS,
                stages=2,
                enable=True,
            )
            m.d.comb += [table.enable.eq(self.enable), table.a.eq(phase[:PLACE_BITS])]
            circle.append(table.result)
        self._turn_rest(m, (x_held, y_held), *circle)
        with m.If(self.enable):
            m.d.sync += [
                phase.eq(rounded[self.position_bits :]),
                x.eq(own_x),
                y.eq(own_y),
                x_straight.eq(Mux(quarters[1], -turned[0], turned[0])),
                y_straight.eq(Mux(quarters[1], -turned[1], turned[1])),
                x_held.eq(x_straight),
                y_held.eq(y_straight),
            ]
        return m

    def _turn_rest(self, m: Module, held: tuple[Value, Value], cosine: Value, sine: Value) -> None:
        """Multiply, add, round, clamp in the fourth stage; with five, register the products."""
        pipeline = Pipeline(m, stages=min(self.stages, 5) - 3, cuts=2, enable=self.enable)
        x, y = held
        # With seven stages, the products have registers in their middle too.
        product = partial(divided_product, enable=self.enable) if self.stages > 6 else multiply_add
        x_cosine, y_sine, x_sine, y_cosine = pipeline.cut(
            product(m, "x_cosine", x, cosine),
            product(m, "y_sine", y, sine),
            product(m, "x_sine", x, sine),
            product(m, "y_cosine", y, cosine),
        )
        totals = [CarrySaveSum(m, len(x_cosine) + 2) for _ in "xy"]
        for total, first in zip(totals, (x_cosine, x_sine), strict=True):
            total.add(1 << CIRCLE_FRACTION - 1)
            total.add(first)
        totals[0].subtract(y_sine)
        totals[1].add(y_cosine)
        rotated = (total.result().as_signed() >> CIRCLE_FRACTION for total in totals)
        clamped = pipeline.cut(*(saturate(total, self.element)[0] for total in rotated))
        m.d.comb += [self.x_rotated.eq(clamped[0]), self.y_rotated.eq(clamped[1])]

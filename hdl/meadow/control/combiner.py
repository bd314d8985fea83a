"""Combine the results of a linear layer with hidden states or apply the activation (Figure 2a)."""

from typing import Annotated

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.multiply_add import multiply_add
from hdl.arith.rounding import Rounding, rounded_right
from hdl.arith.saturating_add import saturate
from hdl.meadow.instructions import Combine
from hdl.meadow.parameters import GATE_DROP, MOST_LIFT, STATE
from hdl.meadow.tile.element_parameters import OPERAND, SCALE_BITS
from hdl.meadow.tile.tile_parameters import BASE_EXPONENT, RESULT
from hdl.nonlinear.activation_functions import (
    VALUE,
    Activation,
    ActivationFunctionsParameters,
    ActivationLane,
)
from hdl.parameters import Parameters, Range, parameter_object, require
from hdl.unit import Unit

PRODUCT = signed(2 * RESULT.width)


@parameter_object
class CombinerParameters(Parameters):
    """Dimensions of the combiner; its testbench uses them too.

    Parameters
    ----------
    size : int
        Elements of a word.
    units : int
        Elements that are combined per cycle; a divisor of `size`.
    activation : Activation
        Function between the feed-forward matrices of a layer.
    gated : bool
        Whether the output of the activation multiplies the results, or is multiplied by a constant.
    wide : bool
        Whether products of activations have 24 bits instead of 8.

    Raises
    ------
    ValueError
        If a value breaks a rule; the message names the rule and the value.
    """

    size: Annotated[int, Range(1, 256, "elements")] = 64
    units: Annotated[int, Range(1, "size", "elements")] = 8
    activation: Activation = Activation.SILU
    gated: bool = True
    wide: bool = False

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        rule = f"units must divide size = {self.size}"
        require(self.size % self.units == 0, rule, self.units)

    @property
    def parts(self) -> int:
        """Cycles per word."""
        return self.size // self.units

    @property
    def result_layout(self) -> data.ArrayLayout:
        """A word of results."""
        return data.ArrayLayout(RESULT, self.size)

    @property
    def state_layout(self) -> data.ArrayLayout:
        """A word of hidden states, or of values that are stored in the same memory."""
        return data.ArrayLayout(STATE, self.size)

    @property
    def latency(self) -> int:
        """Cycles from the first part of a word of results to the combined word."""
        return self.stages + self.parts - 1

    @property
    def stages(self) -> int:
        """Pipeline stages of a part: selection, activation, two of the product, and rounding."""
        return 4 + self.activation_stages

    @property
    def activation_stages(self) -> int:
        """Stages of the activation; ReLU and the sum with a hidden state have one."""
        return 1 if self.activation is Activation.RELU else ActivationLane.STAGES


class Combiner(Unit):
    """Combination of results with the old words at their addresses in the activation memory.

    As Figure 2 (a), the unit has a few activation modules, not one per element of a word: a tile of
    a linear layer takes many cycles per word.

    **Latency** ``7 + size / units`` cycles, 3 fewer with ReLU. **Throughput** one word in ``size /
    units`` cycles.

    **Numerics** `KEEP`: the result. `ADD`: ``old + result * 2**lift``, clamped to 24 bits.
    `ACTIVATE` with a gate: the activation of the old value times the result; without a gate: the
    activation of the result times `scale`. The product is divided by ``2**GATE_DROP``, rounded half
    to even and clamped to INT8; with the parameter `wide` it is divided by ``2**(GATE_DROP - 8)``
    and has 24 bits. SiLU and GeLU are those of `ActivationFunctions`, with Q6.10 input and output;
    ReLU keeps the step of its input.

    Parameters
    ----------
    parameters : CombinerParameters
        Word size, activation, and number of activation modules.

    Members
    -------
    combine, lift : In
        Kind of combination and left shift of `ADD`; constant during an instruction.
    scale : In(16)
        Present without a gate: factor of an activated result; constant during an instruction.
    results : In(stream)
        Words of 16-bit results.
    old : In(stream)
        The old word for each word of results, unless results are kept or activated without a gate.
        An operand of the activation has 16 bits.
    combined : Out(stream)
        The new word.

    Raises
    ------
    ValueError
        If a rule of `CombinerParameters` is broken.
    """

    def __init__(self, *, parameters: CombinerParameters) -> None:
        self.parameters = p = parameters
        scale = {} if p.gated else {"scale": In(SCALE_BITS)}
        super().__init__(
            {
                "combine": In(Combine),
                "lift": In(range(MOST_LIFT + 1)),
                **scale,
                "results": In(stream.Signature(p.result_layout)),
                "old": In(stream.Signature(p.state_layout)),
                "combined": Out(stream.Signature(p.state_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Combine a word part by part; all elements of a part advance together."""
        m = Module()
        p = self.parameters
        kept, activates = self.combine == Combine.KEEP, self.combine == Combine.ACTIVATE
        # Combinations that do not use the old word.
        alone = kept if p.gated else kept | activates
        move, taken, part = Signal(), Signal(), Signal(range(p.parts))
        part_last = part == p.parts - 1
        m.d.comb += [
            move.eq(~self.combined.valid | self.combined.ready),
            taken.eq(self.results.valid & (alone | self.old.valid)),
            # Both words stay at the inputs until their last part is used.
            self.results.ready.eq(move & part_last & (alone | self.old.valid)),
            self.old.ready.eq(move & part_last & ~alone & self.results.valid),
        ]
        with m.If(move & taken):
            m.d.sync += part.eq(Mux(part_last, 0, part + 1))
        flags = Cat(taken & part_last, part)
        line = delay_line(m, flags, p.stages, name="flags", enable=move, reset=True)
        # The product register holds this part; the output register takes it next.
        written = line[-2][1:]
        m.d.comb += self.combined.valid.eq(line[-1][0])
        firsts = range(0, p.size, p.units)
        for i in range(p.units):
            # The selection of a part has registers of its own, since a word has many parts.
            result, old = (
                Signal(shape, name=f"{name}_{i}", reset_less=True)
                for name, shape in (("result", RESULT), ("old", STATE))
            )
            with m.If(move):
                for register, word in ((result, self.results), (old, self.old)):
                    choices = Array(word.payload[first + i] for first in firsts)
                    m.d.sync += register.eq(choices[part])
            activated = self._activated(m, i, (old if p.gated else result)[: VALUE.width], move)
            total, _saturated = saturate(old + (result << self.lift), STATE)
            # A delay line in parallel with the activation holds sums and unchanged results.
            beside = Mux(kept | activates, result, total)
            waits = p.activation_stages
            beside = delay_line(m, beside, waits + 1, name=f"beside_{i}", enable=move)
            factor = beside[waits][: RESULT.width].as_signed() if p.gated else self.scale
            # The products with both halves of the factor are added one cycle later.
            half = RESULT.width // 2
            lower = multiply_add(m, f"multiply_low_{i}", activated, factor[:half])
            rest = factor[half:].as_signed() if p.gated else factor[half:]
            upper = multiply_add(m, f"multiply_high_{i}", activated, rest)
            low = Signal(lower.shape(), name=f"low_{i}", reset_less=True)
            high = Signal(upper.shape(), name=f"high_{i}", reset_less=True)
            # All combinations share the register of the product; KEEP and ADD bypass the
            # multipliers.
            product = Signal(PRODUCT, name=f"product_{i}", reset_less=True)
            drop, shape = (GATE_DROP - BASE_EXPONENT, STATE) if p.wide else (GATE_DROP, OPERAND)
            narrow, _saturated = saturate(rounded_right(product, drop, Rounding.HALF_EVEN), shape)
            with m.If(move):
                m.d.sync += [
                    low.eq(lower),
                    high.eq(upper),
                    product.eq(Mux(activates, low + (high << half), beside[-1])),
                ]
                for number in range(p.parts):
                    with m.If(written == number):
                        combined = self.combined.payload[number * p.units + i]
                        m.d.sync += combined.eq(Mux(activates, narrow, product))
        return m

    def _activated(self, m: Module, number: int, value: Value, move: Signal) -> Value:
        """Return the activation of a value, `activation_stages` later."""
        activation = self.parameters.activation
        if activation is Activation.RELU:
            positive = Mux(value[-1], 0, value[:-1])
            return delay_line(m, positive, 1, name=f"activated_{number}", enable=move)[-1]
        pieces = ActivationFunctionsParameters().pieces
        m.submodules[f"activation_{number}"] = lane = ActivationLane(pieces=pieces)
        m.d.comb += [
            lane.enable.eq(move),
            lane.value.eq(value.as_signed()),
            lane.function.eq(activation.value),
        ]
        return Value.cast(lane.result)

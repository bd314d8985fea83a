"""VEDA's special function unit: every nonlinear function of a layer on the same operators."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_exp import Domain, FloatExp
from hdl.arith.float_multiply import FloatMultiply
from hdl.parameters import As, Parameters, Range, parameter_object
from hdl.stream.connect import connect_streams
from hdl.unit import Unit
from hdl.veda.functions.element_serial_activation import (
    ElementSerialActivation,
    ElementSerialActivationParameters,
)
from hdl.veda.functions.element_serial_layernorm import ElementSerialLayernorm
from hdl.veda.functions.element_serial_rotary import (
    ElementSerialRotary,
    ElementSerialRotaryParameters,
)
from hdl.veda.functions.lane_softmax import LaneSoftmax
from hdl.veda.functions.layernorm_parameters import ElementSerialLayernormParameters
from hdl.veda.functions.shared_operator import EXTRA_BITS, link_results
from hdl.veda.functions.softmax_parameters import ElementSerialSoftmaxParameters


@parameter_object
class SpecialFunctionUnitParameters(Parameters):
    """Dimensions of a special function unit; they also drive its golden model and testbench.

    Parameters
    ----------
    lanes : int
        Heads in lock-step. Each lane has a softmax; the first one's shares its operators.
    capacity, heads : int
        As in `ElementSerialSoftmaxParameters`.
    width : int
        Elements of a vector to normalise at most.
    rms : bool
        RMSNorm instead of layernorm.
    vectors : int
        As in `ElementSerialLayernormParameters`.
    exp_stages : int
        Pipeline stages of the exponential units.
    step_stages : int
        Register stages of adders and multipliers.
    divide_digits, divide_stages : int
        As in `ElementSerialActivationParameters`.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    lanes: Annotated[int, Range(1, 16, "heads")] = 1
    capacity: Annotated[int, As(ElementSerialSoftmaxParameters)] = 4096
    heads: Annotated[int, As(ElementSerialSoftmaxParameters)] = 4
    width: Annotated[int, Range(2, 65536, "elements")] = 4096
    rms: bool = True
    vectors: Annotated[int, As(ElementSerialLayernormParameters)] = 2
    exp_stages: Annotated[int, As(ElementSerialActivationParameters)] = 5
    step_stages: Annotated[int, Range(1, 4, "stages")] = 2
    divide_digits: Annotated[int, As(ElementSerialActivationParameters)] = 2
    divide_stages: Annotated[int, As(ElementSerialActivationParameters)] = 10

    @property
    def softmax(self) -> ElementSerialSoftmaxParameters:
        """Dimensions of a lane's softmax."""
        return ElementSerialSoftmaxParameters(
            capacity=self.capacity,
            heads=self.heads,
            # The softmax's exponentials have no multiplication, and three stages at most.
            exp_stages=min(self.exp_stages, 3),
            multiply_stages=self.step_stages,
        )

    @property
    def layernorm(self) -> ElementSerialLayernormParameters:
        """Dimensions of the layernorm."""
        return ElementSerialLayernormParameters(
            capacity=self.width,
            rms=self.rms,
            vectors=self.vectors,
            subtract_stages=self.step_stages,
            multiply_stages=self.step_stages,
        )

    @property
    def activation(self) -> ElementSerialActivationParameters:
        """Pipeline stages of the activation."""
        return ElementSerialActivationParameters(
            exp_stages=self.exp_stages,
            step_stages=self.step_stages,
            divide_digits=self.divide_digits,
            divide_stages=self.divide_stages,
            multiply_stages=self.step_stages,
        )

    @property
    def rotary(self) -> ElementSerialRotaryParameters:
        """Pipeline stages of the rotary embedding."""
        return ElementSerialRotaryParameters(
            multiply_stages=self.step_stages, add_stages=self.step_stages
        )


class SpecialFunctionUnit(Unit):
    """Softmax, layernorm, gated activation and rotary embedding, which share their operators.

    One exponential unit, one adder, two multipliers and one divider serve the normalisation of the
    first lane's softmax, the norm, the activation and the rotary embedding. They belong to one
    function at a time, which keeps them until it has nothing to begin, or another waits at the end
    of a vector (whatever ends with `last`: elements that are reduced or normalised, operands,
    pairs). When nothing is under way any more, the next one that waits gets them, in turn. Heads
    follow each other without a break. A softmax's reduction has operators of its own, so scores
    never wait for another function, and neither does what is serial in a norm.

    A function that comes second waits; nothing else happens to it. What leaves the unit has to be
    taken without waiting for another of its outputs, or both would wait for ever.

    **Latency** that of each function's own unit, and of two cycles when the operators change hands.
    **Throughput** that of each function's own unit while it has the operators.

    **Numerics** those of `ElementSerialSoftmax`, `ElementSerialLayernorm`,
    `ElementSerialActivation` and `ElementSerialRotary`, bit for bit.

    Parameters
    ----------
    parameters : SpecialFunctionUnitParameters
        Dimensions.

    Members
    -------
    lengths, scores : In(stream)
        The number of scores of each head, and one score for each lane, as in `LaneSoftmax`.
    probabilities : Out(stream)
        One probability for each lane; `last` with a head's last.
    elements, normalised : In, Out(stream)
        As in `ElementSerialLayernorm`.
    operands, activated : In, Out(stream)
        As in `ElementSerialActivation`.
    pairs, rotated : In, Out(stream)
        As in `ElementSerialRotary`.
    flags : Out(struct)
        Of all lanes' softmax: `nan`, `infinite`. They stay until `clear_flags`.
    undefined : Out(1)
        A vector had an infinity or a NaN. It stays until `clear_flags`.
    clear_flags : In(1)
        All flags fall, unless they are raised in the same cycle.

    Raises
    ------
    ValueError
        By `SpecialFunctionUnitParameters`.
    """

    def __init__(self, *, parameters: SpecialFunctionUnitParameters) -> None:
        self.parameters = p = parameters
        softmax, norm = p.softmax, p.layernorm
        super().__init__(
            {
                "lengths": In(stream.Signature(softmax.length_shape)),
                "scores": In(stream.Signature(softmax.lanes_layout(p.lanes))),
                "probabilities": Out(stream.Signature(softmax.beat_layout(p.lanes))),
                "elements": In(stream.Signature(norm.element_layout)),
                "normalised": Out(stream.Signature(norm.element_layout)),
                "operands": In(stream.Signature(p.activation.operands_layout)),
                "activated": Out(stream.Signature(p.activation.element_layout)),
                "pairs": In(stream.Signature(p.rotary.pair_layout)),
                "rotated": Out(stream.Signature(p.rotary.rotated_layout)),
                "flags": Out(softmax.flags_layout),
                "undefined": Out(1),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect the functions, and share the operators among them."""
        m = Module()
        p = self.parameters
        m.submodules.softmax = softmax = LaneSoftmax(
            parameters=p.softmax, lanes=p.lanes, shared=True
        )
        m.submodules.layernorm = layernorm = ElementSerialLayernorm(
            parameters=p.layernorm, shared=True
        )
        m.submodules.activation = activation = ElementSerialActivation(
            parameters=p.activation, shared=True
        )
        m.submodules.rotary = rotary = ElementSerialRotary(parameters=p.rotary, shared=True)
        for source, sink in (
            (self.lengths, softmax.lengths),
            (self.scores, softmax.scores),
            (softmax.probabilities, self.probabilities),
            (self.elements, layernorm.elements),
            (layernorm.normalised, self.normalised),
            (self.operands, activation.operands),
            (activation.activated, self.activated),
            (self.pairs, rotary.pairs),
            (rotary.rotated, self.rotated),
        ):
            connect_streams(m, source, sink)
        m.d.comb += [
            softmax.clear_flags.eq(self.clear_flags),
            layernorm.clear_undefined.eq(self.clear_flags),
            self.flags.eq(softmax.flags),
            self.undefined.eq(layernorm.undefined),
        ]

        # Their order is the arbiter's: behind the softmax the norm is the next to be granted.
        requesters = [unit.operators for unit in (softmax, layernorm, activation, rotary)]
        self._share(m, requesters, self._arbitrate(m, requesters))
        return m

    def _arbitrate(self, m: Module, requesters: Sequence[Any]) -> Signal:
        """Grant round robin; return whose the operators are, one bit for each function."""
        # One-hot. After reset the first function owns what nobody has requested yet.
        owner, leaving = Signal(len(requesters), init=1), Signal()
        requests, busy, ends = (
            Cat(getattr(requester, name) for requester in requesters)
            for name in ("request", "busy", "end")
        )
        # An owner that leaves begins nothing more, but what is in the operators has to come out.
        keeps = (owner & (busy | (requests & ~leaving.replicate(len(requesters))))).any()
        # An owner with something to begin in every cycle would starve the others: behind a
        # vector's end it leaves if anybody waits.
        with m.If((owner & ends).any()):
            m.d.sync += leaving.eq((requests & ~owner).any())
        with m.Elif(~keeps):
            m.d.sync += leaving.eq(0)
        for index, requester in enumerate(requesters):
            m.d.comb += requester.grant.eq(owner[index] & ~leaving)
            with m.If(owner[index] & ~keeps):
                # The nearest of those behind it is assigned last.
                for distance in reversed(range(1, len(requesters))):
                    other = (index + distance) % len(requesters)
                    with m.If(requests[other]):
                        m.d.sync += owner.eq(1 << other)
        return owner

    def _share(self, m: Module, requesters: Sequence[Any], owner: Signal) -> None:
        """Give each operator its owner's operands, and everybody its result."""
        p = self.parameters
        steps: dict[str, Any] = {"stages": p.step_stages, "enable": True}
        operators: dict[str, Any] = {
            "add": FloatAdd(**steps),
            "exp": FloatExp(domain=Domain.NONPOSITIVE, stages=p.exp_stages, enable=True),
            "multiply": FloatMultiply(extra_bits=EXTRA_BITS, **steps),
            "divide": p.activation.divider,
            "last_multiply": FloatMultiply(exact=True, **steps),
        }
        # All pipelines move together, as their owner does.
        enable = Signal()
        m.d.comb += enable.eq((owner & Cat(requester.enable for requester in requesters)).any())
        for name, operator in operators.items():
            m.submodules[name] = operator
            m.d.comb += operator.enable.eq(enable)
            users = [
                (getattr(requester, name), owns)
                for requester, owns in zip(requesters, owner, strict=True)
                if name in requester.signature.members
            ]
            # A result goes to all of them: only the owner has anything in its pipeline.
            for ports, _owns in users:
                link_results(m, operator, ports)
            for operand in ("a", "b"):
                if operand in operator.signature.members:
                    codes = [(owns, Value.cast(getattr(ports, operand))) for ports, owns in users]
                    # The owner is one-hot: masks need no priority.
                    chosen = reduce(or_, [Mux(owns, code, 0) for owns, code in codes])
                    m.d.comb += Value.cast(getattr(operator, operand)).eq(chosen)

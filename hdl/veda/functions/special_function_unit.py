"""VEDA's special function unit (SFU): every nonlinear function of a layer on shared operators."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Annotated

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_exp import Domain, FloatExp
from hdl.arith.float_multiply import FloatMultiply
from hdl.parameters import As, Parameters, Range, option, parameter_object
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
from hdl.veda.functions.shared_operator import (
    EXTRA_BITS,
    SharedOperators,
    link_results,
)
from hdl.veda.functions.softmax_parameters import ElementSerialSoftmaxParameters


@parameter_object
class SpecialFunctionUnitParameters(Parameters):
    """Dimensions of a special function unit, its golden model and its testbench.

    Parameters
    ----------
    lanes : int
        Heads in lock-step. Each lane has a softmax; only the first lane's shares its operators.
    scores, heads : int
        As in `ElementSerialSoftmaxParameters`.
    width : int
        Maximum number of elements of a vector to normalise.
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
    swiglu, rotates : bool
        Whether the unit has the SwiGLU activation and the rotary embedding.

    Raises
    ------
    ValueError
        If a value is outside its range; the message states rule and value.
    """

    lanes: Annotated[int, Range(1, 16, "heads")] = 1
    scores: Annotated[int, As(ElementSerialSoftmaxParameters)] = 4096
    heads: Annotated[int, As(ElementSerialSoftmaxParameters)] = 4
    width: Annotated[int, Range(2, 65536, "elements")] = 4096
    rms: bool = True
    vectors: Annotated[int, As(ElementSerialLayernormParameters)] = 2
    exp_stages: Annotated[int, As(ElementSerialActivationParameters)] = 5
    step_stages: Annotated[int, Range(1, 4, "stages")] = 2
    divide_digits: Annotated[int, As(ElementSerialActivationParameters)] = 2
    divide_stages: Annotated[int, As(ElementSerialActivationParameters)] = 10
    swiglu: bool = option(default=True)
    rotates: bool = option(default=True)

    @property
    def softmax(self) -> ElementSerialSoftmaxParameters:
        """Dimensions of a lane's softmax."""
        return ElementSerialSoftmaxParameters(
            scores=self.scores,
            heads=self.heads,
            # The softmax's exponentials contain no multiplication, and have at most three stages.
            exp_stages=min(self.exp_stages, 3),
            multiply_stages=self.step_stages,
        )

    @property
    def layernorm(self) -> ElementSerialLayernormParameters:
        """Dimensions of the layernorm."""
        return ElementSerialLayernormParameters(
            width=self.width,
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
    """Compute softmax, layernorm, SwiGLU activation and rotary embedding on shared operators.

    One exponential unit, one adder, two multipliers and one divider serve the normalisation of the
    first lane's softmax, the norm, the activation and the rotary embedding. An operator that no
    function of the unit uses is absent. They belong to one
    function at a time. The function keeps them until it has nothing to begin, or until an item with
    `last` begins (an element that is reduced or normalised, an operand, a pair) while another
    function waits. When no item is in flight in the operators, the next waiting function is
    granted, in round-robin order. Heads follow each other without a break. A softmax's reduction
    has operators of its own, so scores never wait for another function; nor do the serial steps of
    a norm.

    A function without a grant waits, without other effects. The consumer of each output must accept
    it without waiting for another output of the unit; otherwise both wait forever.

    **Latency** as each function's own unit, plus two cycles when the operators' owner changes.
    **Throughput** as each function's own unit while it owns the operators.

    **Numerics** bit-exact as `ElementSerialSoftmax`, `ElementSerialLayernorm`,
    `ElementSerialActivation` and `ElementSerialRotary`.

    Parameters
    ----------
    parameters : SpecialFunctionUnitParameters
        Dimensions of the unit.

    Members
    -------
    lengths, scores : In(stream)
        The number of scores of each head, and one score for each lane, as in `LaneSoftmax`.
    probabilities : Out(stream)
        One probability for each lane; `last` with a head's last.
    elements, normalised : In, Out(stream)
        As in `ElementSerialLayernorm`.
    operands, activated : In, Out(stream)
        As in `ElementSerialActivation`; only with `swiglu`.
    pairs, rotated : In, Out(stream)
        As in `ElementSerialRotary`; only with `rotates`.
    flags : Out(struct)
        Of all lanes' softmax: `nan`, `infinite`. Held until `clear_flags`.
    undefined : Out(1)
        A vector had an infinity or a NaN. Held until `clear_flags`.
    clear_flags : In(1)
        Clears all flags, unless they are set in the same cycle.

    Raises
    ------
    ValueError
        If `parameters` are illegal, see `SpecialFunctionUnitParameters`.
    """

    def __init__(self, *, parameters: SpecialFunctionUnitParameters) -> None:
        self.parameters = p = parameters
        softmax, norm = p.softmax, p.layernorm
        activation = {
            "operands": In(stream.Signature(p.activation.operands_layout)),
            "activated": Out(stream.Signature(p.activation.element_layout)),
        }
        rotary = {
            "pairs": In(stream.Signature(p.rotary.pair_layout)),
            "rotated": Out(stream.Signature(p.rotary.rotated_layout)),
        }
        super().__init__(
            {
                "lengths": In(stream.Signature(softmax.length_shape)),
                "scores": In(stream.Signature(softmax.lanes_layout(p.lanes))),
                "probabilities": Out(stream.Signature(softmax.beat_layout(p.lanes))),
                "elements": In(stream.Signature(norm.element_layout)),
                "normalised": Out(stream.Signature(norm.element_layout)),
                **(activation if p.swiglu else {}),
                **(rotary if p.rotates else {}),
                "flags": Out(softmax.flags_layout),
                "undefined": Out(1),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the functions, and share the operators among them."""
        m = Module()
        p = self.parameters
        m.submodules.softmax = softmax = LaneSoftmax(
            parameters=p.softmax, lanes=p.lanes, shared=True
        )
        m.submodules.layernorm = layernorm = ElementSerialLayernorm(
            parameters=p.layernorm, shared=True
        )
        # The order is that of the arbiter: the norm is granted next after the softmax.
        requesters = [softmax.operators, layernorm.operators]
        connected = [
            (self.lengths, softmax.lengths),
            (self.scores, softmax.scores),
            (softmax.probabilities, self.probabilities),
            (self.elements, layernorm.elements),
            (layernorm.normalised, self.normalised),
        ]
        if p.swiglu:
            m.submodules.activation = activation = ElementSerialActivation(
                parameters=p.activation, shared=True
            )
            requesters.append(activation.operators)
            connected += [
                (self.operands, activation.operands),
                (activation.activated, self.activated),
            ]
        if p.rotates:
            m.submodules.rotary = rotary = ElementSerialRotary(parameters=p.rotary, shared=True)
            requesters.append(rotary.operators)
            connected += [(self.pairs, rotary.pairs), (rotary.rotated, self.rotated)]
        for source, sink in connected:
            connect_streams(m, source, sink)
        m.d.comb += [
            softmax.clear_flags.eq(self.clear_flags),
            layernorm.clear_undefined.eq(self.clear_flags),
            self.flags.eq(softmax.flags),
            self.undefined.eq(layernorm.undefined),
        ]
        self._share(m, requesters, self._arbitrate(m, requesters))
        return m

    def _arbitrate(self, m: Module, requesters: Sequence[SharedOperators]) -> Signal:
        """Grant in round-robin order; return the owner of the operators, one bit per function."""
        # One-hot. After reset the first function owns the operators without a request.
        owner, leaving = Signal(len(requesters), init=1), Signal()
        requests, busy, ends = (
            Cat(getattr(requester, name) for requester in requesters)
            for name in ("request", "busy", "end")
        )
        # An owner that is being replaced begins nothing more, but its items in flight must
        # complete.
        keeps = (owner & (busy | (requests & ~leaving.replicate(len(requesters))))).any()
        # An owner that begins an item in every cycle would starve the others: after the end of a
        # vector it is replaced if another function waits.
        with m.If((owner & ends).any()):
            m.d.sync += leaving.eq((requests & ~owner).any())
        with m.Elif(~keeps):
            m.d.sync += leaving.eq(0)
        for index, requester in enumerate(requesters):
            m.d.comb += requester.grant.eq(owner[index] & ~leaving)
            with m.If(owner[index] & ~keeps):
                # Later assignments take precedence: the nearest function in round-robin order is
                # assigned last.
                for distance in reversed(range(1, len(requesters))):
                    other = (index + distance) % len(requesters)
                    with m.If(requests[other]):
                        m.d.sync += owner.eq(1 << other)
        return owner

    def _share(self, m: Module, requesters: Sequence[SharedOperators], owner: Signal) -> None:
        """Connect each operator's operands to its owner, and its results to all functions."""
        p = self.parameters
        stages = p.step_stages
        operators: dict[str, Callable[[], Unit]] = {
            "add": lambda: FloatAdd(stages=stages, enable=True),
            "exp": lambda: FloatExp(domain=Domain.NONPOSITIVE, stages=p.exp_stages, enable=True),
            "multiply": lambda: FloatMultiply(extra_bits=EXTRA_BITS, stages=stages, enable=True),
            "divide": lambda: p.activation.divider,
            "last_multiply": lambda: FloatMultiply(exact=True, stages=stages, enable=True),
        }
        # All pipelines advance together, as the owner enables them.
        enable = Signal()
        m.d.comb += enable.eq((owner & Cat(requester.enable for requester in requesters)).any())
        for name, built in operators.items():
            users = [
                getattr(requester, name)
                for requester in requesters
                if name in requester.signature.members
            ]
            if not users:
                continue
            m.submodules[name] = operator = built()
            m.d.comb += operator.enable.eq(enable)
            # Results are connected to all functions: only the owner has items in the pipelines.
            for ports in users:
                link_results(m, operator, ports)
            for operand in ("a", "b"):
                if operand in operator.signature.members:
                    codes = [(ports.valid, Value.cast(getattr(ports, operand))) for ports in users]
                    m.d.comb += Value.cast(getattr(operator, operand)).eq(_selected(codes))


def _selected(codes: Sequence[tuple[Value, Value]]) -> Value:
    """Return the operand of the one function that has an item there."""
    if len(codes) == 1:
        return codes[0][1]
    # Only the owner has items in the operators: AND-OR selection needs no priority. A bit per
    # function and operator selects, since the owner's bit would drive the operands of all.
    return reduce(or_, [Mux(valid, code, 0) for valid, code in codes])

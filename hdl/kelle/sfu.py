"""Kelle's special function unit (SFU): softmax, activations, norm and rotary embedding.

This is the stand-alone box of the paper's Figure 9; the accelerator does not contain it. Section 5
names the functions only. In the accelerator each function is in the unit whose results it converts:
`Softmax` in `SoftmaxRows`, `RotaryEmbedding` in `ResultRouter`, `ActivationFunctions` in
`GatedProducts` or `ActivatedProducts`, `RmsNorm` in `ResidualStream`. No results then pass through
a common unit, and a layer norm or ReLU can take a function's place.

Each function has its own streams, so that a scheduler can overlap them: the softmax of one head
runs while the next head's query is rotated.
"""

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.nonlinear.activation_functions import ActivationFunctions, ActivationFunctionsParameters
from hdl.nonlinear.rms_norm import RmsNorm, RmsNormParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbedding, RotaryEmbeddingParameters
from hdl.nonlinear.softmax import Softmax, SoftmaxParameters
from hdl.parameters import Parameters, parameter_object, require
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@parameter_object
class SfuParameters(Parameters):
    """Dimensions of a special function unit; all functions have the same number of lanes.

    Parameters
    ----------
    softmax : SoftmaxParameters
        Dimensions of the softmax.
    activation : ActivationFunctionsParameters
        Dimensions of SiLU and GeLU.
    norm : RmsNormParameters
        Dimensions of RMSNorm.
    rotary : RotaryEmbeddingParameters
        Dimensions of the rotary embedding.

    Raises
    ------
    ValueError
        If the lanes differ, with the rule and the values.
    """

    softmax: SoftmaxParameters
    activation: ActivationFunctionsParameters
    norm: RmsNormParameters
    rotary: RotaryEmbeddingParameters

    def __post_init__(self) -> None:
        """Check that all functions have the same number of lanes."""
        super().__post_init__()
        lanes = [part.lanes for part in (self.softmax, self.activation, self.norm, self.rotary)]
        require(len(set(lanes)) == 1, "all functions must have the same lanes", lanes)


class Sfu(Unit):
    """The special functions of a transformer layer, each with its own streams of slices.

    **Latency** 4 to 6 cycles, 10 from a row's last slice for softmax and RMSNorm. **Throughput**
    one slice per cycle and function; no function waits for another. **Numerics** as in `Softmax`,
    `ActivationFunctions`, `RmsNorm` and `RotaryEmbedding`.

    Parameters
    ----------
    parameters : SfuParameters
        Dimensions of the four functions.

    Members
    -------
    scores, probabilities : In, Out
        Streams of `Softmax`.
    activation_inputs, activation_outputs : In, Out
        Streams of `ActivationFunctions`.
    states, weights, normalised : In, In, Out
        Streams of `RmsNorm`.
    vectors, rotated : In, Out
        Streams of `RotaryEmbedding`.

    Raises
    ------
    ValueError
        If `SfuParameters` rejects the lanes.
    """

    def __init__(self, *, parameters: SfuParameters) -> None:
        self.parameters = p = parameters
        payloads = {
            "scores": In(stream.Signature(p.softmax.slice_layout)),
            "probabilities": Out(stream.Signature(p.softmax.result_layout)),
            "activation_inputs": In(stream.Signature(p.activation.slice_layout)),
            "activation_outputs": Out(stream.Signature(p.activation.result_layout)),
            "states": In(stream.Signature(p.norm.slice_layout)),
            "weights": In(stream.Signature(p.norm.weights_layout)),
            "normalised": Out(stream.Signature(p.norm.result_layout)),
            "vectors": In(stream.Signature(p.rotary.slice_layout)),
            "rotated": Out(stream.Signature(p.rotary.result_layout)),
        }
        super().__init__(payloads)

    def elaborate(self, platform: object) -> Module:
        """Connect each function to its streams."""
        m = Module()
        p = self.parameters
        m.submodules.softmax = softmax = Softmax(parameters=p.softmax)
        m.submodules.activation = activation = ActivationFunctions(parameters=p.activation)
        m.submodules.norm = norm = RmsNorm(parameters=p.norm)
        m.submodules.rotary = rotary = RotaryEmbedding(parameters=p.rotary)
        inwards = [
            (self.scores, softmax.scores),
            (self.activation_inputs, activation.inputs),
            (self.states, norm.states),
            (self.weights, norm.weights),
            (self.vectors, rotary.vectors),
        ]
        outwards = [
            (softmax.probabilities, self.probabilities),
            (activation.outputs, self.activation_outputs),
            (norm.results, self.normalised),
            (rotary.rotated, self.rotated),
        ]
        for outer, inner in inwards:
            connect_streams(m, outer, inner)
        for inner, outer in outwards:
            connect_streams(m, inner, outer)
        return m

"""Dimensions and payloads of LAD's attention score (EAS) module."""

from typing import Annotated

from amaranth.hdl import unsigned
from amaranth.lib import data

from hdl.arith.float_format import BINARY16
from hdl.lad.apid.apid_parameters import ActivePositionModuleParameters
from hdl.lad.fp16 import FP16
from hdl.lad.interval_table import COUNT_BITS, MODE_BITS
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters
from hdl.parameters import Parameters, Range, parameter_object

THRESHOLD = BINARY16.from_fraction(0.98)
"""Threshold of |cos| above which two keys count as collinear (Algorithm 1)."""

LEAST_NORM = 1 << BINARY16.mantissa_bits
"""Replaces a norm of 0: the smallest normal number."""

CENTRE_BITS = 16
"""Bits of a centre's position (cid) in G."""


@parameter_object
class AttentionScoreModuleParameters(Parameters):
    """Dimensions and pipeline stages of an attention score module.

    `docs/lad/eas/attention_score_module.md` lists the clock that the default stages reach.

    Parameters
    ----------
    vector : VectorProcessingUnitParameters
        Dimensions of the two vector units.
    apid : ActivePositionModuleParameters
        Dimensions of the APID module, which receives the scores: lanes, slots, recent positions,
        intervals.
    multiply_stages : int
        Register stages of a multiplier.
    root_stages : int
        Register stages of the square root.
    divide_stages : int
        Register stages of the divider.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    vector: VectorProcessingUnitParameters = VectorProcessingUnitParameters()
    apid: ActivePositionModuleParameters = ActivePositionModuleParameters()
    multiply_stages: Annotated[int, Range(1, 4, "stages")] = 2
    root_stages: Annotated[int, Range(1, 13, "stages")] = 6
    divide_stages: Annotated[int, Range(1, 16, "stages")] = 10

    @property
    def position_bits(self) -> int:
        """Bits of a position's index."""
        return (self.apid.slots - 1).bit_length()

    @property
    def cosine_stages(self) -> int:
        """Register stages from a dot product with the new key to its cosine."""
        # The root outputs the norm, the multiplier the divisor, the divider the cosine.
        return self.root_stages + self.multiply_stages + self.divide_stages

    @property
    def step_layout(self) -> data.StructLayout:
        """Payload of `steps`."""
        vector = self.vector.vector_layout
        length = range(self.apid.slots + 1)
        return data.StructLayout({"query": vector, "key": vector, "length": length})

    @property
    def key_layout(self) -> data.StructLayout:
        """Payload of `keys`."""
        return data.StructLayout(
            {
                "key": self.vector.vector_layout,
                "position": self.position_bits,
                "norm": FP16,
                "centre": 1,
                "last": 1,
            }
        )

    @property
    def item_layout(self) -> data.StructLayout:
        """What accompanies a key through the vector units."""
        return data.StructLayout(
            {"position": self.position_bits, "norm": FP16, "centre": 1, "newest": 1, "last": 1}
        )

    @property
    def group_layout(self) -> data.StructLayout:
        """Payload of `groups`: the fields of G but norm, of `lanes` positions."""
        lanes = self.apid.lanes
        return data.StructLayout(
            {
                "centres": data.ArrayLayout(unsigned(CENTRE_BITS), lanes),
                "ratios": data.ArrayLayout(FP16, lanes),
                "modes": data.ArrayLayout(MODE_BITS, lanes),
                "counts": data.ArrayLayout(COUNT_BITS, lanes),
            }
        )

    @property
    def centre_layout(self) -> data.StructLayout:
        """Payload of `centres`."""
        position = self.position_bits
        return data.StructLayout(
            {"position": position, "centre": position, "norm": FP16, "ratio": FP16}
        )

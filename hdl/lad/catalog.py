"""The units of LAD, with the dimensions at which each is built."""

from hdl.entry import Entry
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnit, VectorProcessingUnitParameters

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="dot products, element-wise products and scaled vectors of a head's size",
        source="Section IV-B (1), Figure 5 (b)",
        latency="2 cycles to a vector, 16 to a dot product (paper)",
        throughput="one operation a cycle",
        unit=VectorProcessingUnit,
        presets={
            "tiny": VectorProcessingUnitParameters(head_size=4, multiply_stages=1, add_stages=1),
            "tiny_odd": VectorProcessingUnitParameters(head_size=5),
            "smollm2": VectorProcessingUnitParameters(head_size=64),
            "paper": VectorProcessingUnitParameters(),
        },
        long=("paper",),
    ),
)
"""Every unit of the paper."""

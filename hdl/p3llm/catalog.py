"""The units of P3-LLM, with the dimensions at which each is built."""

from hdl.entry import Entry
from hdl.p3llm.pim.pim_processing_element import (
    PimProcessingElement,
    PimProcessingElementParameters,
)

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="multiplies four inputs by four 4-bit codes, and adds in fixed point",
        source="Section V-C, Figure 6 (c)",
        latency="3 cycles",
        throughput="4 multiply-adds a cycle",
        unit=PimProcessingElement,
        presets={
            "tiny": PimProcessingElementParameters(pumps=1),
            "smollm2": PimProcessingElementParameters(),
            "paper": PimProcessingElementParameters(),
        },
        long=("paper",),
    ),
)
"""Every unit of the paper."""

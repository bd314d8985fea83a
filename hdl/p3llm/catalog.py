"""The units of P3-LLM, with the dimensions at which each is built."""

from hdl.entry import Entry
from hdl.p3llm.pim.pim_compute_unit import PimComputeUnit, PimComputeUnitParameters
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
    Entry(
        summary="multiplies a DRAM column by the inputs it holds, twice while the column stands",
        source="Sections V-C and V-D, Figures 6 (c) and 7",
        latency="pumps + 4 cycles from the last column to its results",
        throughput="4 multiply-adds an element and cycle",
        unit=PimComputeUnit,
        presets={
            "tiny": PimComputeUnitParameters(elements=4, steps=4),
            "tiny_one_input": PimComputeUnitParameters(elements=4, pumps=1, steps=8),
            "smollm2": PimComputeUnitParameters(),
            "paper": PimComputeUnitParameters(),
        },
        long=("paper",),
    ),
)
"""Every unit of the paper."""

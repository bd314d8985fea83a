"""Form of a unit's Verilog to simulate where simulation time matters."""

from hdl.target import Target

COMPOSED = (
    "attention_computation_module",
    "hybrid_tile",
    "attention_score_module",
    "evicting_array",
    "eviction_controller",
    "kelle",
    "kelle_axi",
    "lad",
    "lad_axi",
    "lad_tile",
    "lad_tiles",
    "linear_module",
    "meadow",
    "meadow_axi",
    "mode_discrepancy_module",
    "p3llm",
    "p3llm_axi",
    "pim_channel",
    "sfu",
    "special_function_module",
    "special_function_unit",
    "veda",
    "veda_axi",
)
"""Units that are composed of other units of the catalog, which have testbenches of their own."""


def quick_form(top: str, preset: str) -> Target:
    """Return the form that the default test suite and the fault tests simulate.

    The tests of `arith`, and the testbenches of computing units at small dimensions, compare
    gate-level arithmetic for standard cells with `*` and `+`. The FPGA form compiles in half the
    time. For a composed unit, or for more lanes of the same arithmetic, both forms show the same.
    """
    small = preset.startswith("tiny")
    return Target.ASIC if small and top not in COMPOSED else Target.FPGA

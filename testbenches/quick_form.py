"""Which of its two forms of Verilog a unit is simulated in where time matters."""

from hdl.target import Target

COMPOSED = (
    "attention_computation_module",
    "attention_pipeline",
    "attention_score_module",
    "evicting_array",
    "eviction_controller",
    "kelle",
    "lad",
    "lad_tile",
    "lad_tiles",
    "linear_module",
    "meadow",
    "mode_discrepancy_module",
    "p3llm",
    "pim_channel",
    "sfu",
    "special_function_module",
    "special_function_unit",
    "veda",
)
"""Units that are put together from others of the catalog, which have benches of their own."""


def quick_form(top: str, preset: str) -> Target:
    """Return the form that the default suite and the search for faults simulate.

    Arithmetic made of gates, for standard cells, is held to `*` and `+` where it stands: in the
    tests of `arith`, and at small dimensions in the benches of the units that compute. The other
    form compiles in half the time; what a composed unit's bench is after, and what more lanes of
    the same arithmetic show, is the same in both.
    """
    small = preset.startswith("tiny")
    return Target.ASIC if small and top not in COMPOSED else Target.FPGA

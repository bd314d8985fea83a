"""Which of its two forms of Verilog a unit is simulated in where time matters."""

from hdl.target import Target

SYSTEMS = (
    "attention_pipeline",
    "kelle",
    "lad",
    "lad_tile",
    "lad_tiles",
    "meadow",
    "p3llm",
    "veda",
)
"""Units that are put together from others of the catalog, which have benches of their own."""


def quick_form(top: str) -> Target:
    """Return the form that the default suite and the search for faults simulate.

    Arithmetic made of gates, for standard cells, is held to `*` and `+` where it stands: in the
    tests of `arith` and the benches of the units that compute. A system of them compiles in half
    the time in the other form, and what its own bench is after is the same in both.
    """
    return Target.FPGA if top in SYSTEMS else Target.ASIC

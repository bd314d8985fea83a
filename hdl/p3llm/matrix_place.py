"""Positions of a linear layer in the banks."""

from dataclasses import dataclass

from hdl.p3llm.pim.dot_product import PE_LANES

LINEAR_SET = 8
"""Groups of a round that share one column of metadata."""

WEIGHT_BITS = 4
"""Bits of a stored weight."""

SCALE_SET = 2
"""Groups of a round that share one column of scales."""


@dataclass(frozen=True, kw_only=True)
class MatrixPlace:
    """Dimensions and positions of a linear layer in the banks; a round's groups are back to back.

    Members
    -------
    inputs, outputs, group : int
        Columns and rows of the matrix; weights per quantisation group.
    base : int
        Position of the first column, relative to the layer.
    rounds : int
        Tiles of `elements` outputs that each unit computes.
    passes : int
        Stored weights per weight of the matrix: a round has all groups of the first ones, then
        those of the second ones, and multiplies each by the same inputs.
    """

    inputs: int
    outputs: int
    group: int
    base: int
    rounds: int
    passes: int = 1

    @property
    def groups(self) -> int:
        """Groups per output, of all passes."""
        return self.passes * self.inputs // self.group

    @property
    def steps(self) -> int:
        """Columns per group."""
        return self.group // PE_LANES

    @property
    def tables(self) -> int:
        """Positions of a round's special values and 8-bit scales."""
        return -(-self.groups // LINEAR_SET) - (-self.groups // SCALE_SET)

    @property
    def positions(self) -> int:
        """Columns that the matrix occupies in every unit."""
        a_round = self.tables + self.groups * self.steps
        # A round's row scales take one position.
        return self.rounds * (1 + a_round)

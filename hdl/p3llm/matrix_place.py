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
    shared : bool
        The tiles of the last round occupy at most half of the units. The other units store the
        second half of their groups: two units compute each tile.
    """

    inputs: int
    outputs: int
    group: int
    base: int
    rounds: int
    passes: int = 1
    shared: bool = False

    @property
    def groups(self) -> int:
        """Groups per output, of all passes."""
        return self.passes * self.inputs // self.group

    @property
    def steps(self) -> int:
        """Columns per group."""
        return self.group // PE_LANES

    @property
    def shared_groups(self) -> int:
        """Groups per unit in a shared round; the last one of the upper units may be empty."""
        return -(-self.groups // 2)

    @property
    def groups_by_round(self) -> list[int]:
        """Groups per unit of each round."""
        whole = self.rounds - self.shared
        return [self.groups] * whole + [self.shared_groups] * self.shared

    @property
    def columns(self) -> int:
        """Columns that all units multiply."""
        return sum(self.groups_by_round) * self.steps

    @property
    def tables(self) -> int:
        """Positions of all special values and 8-bit scales."""
        sizes = (LINEAR_SET, SCALE_SET)
        return sum(-(-groups // size) for groups in self.groups_by_round for size in sizes)

    @property
    def positions(self) -> int:
        """Columns that the matrix occupies in every unit."""
        # A round's row scales take one position.
        return self.rounds + self.tables + self.columns

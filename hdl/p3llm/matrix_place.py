"""Positions of a linear layer in the banks."""

from dataclasses import dataclass

from hdl.p3llm.pim.dot_product import LANES

LINEAR_SET = 8
"""Rounds of a linear layer that share one column of metadata."""

SCALE_SET = 2
"""Groups of a round that share one column of scales, if the units scale groups."""


@dataclass(frozen=True, kw_only=True)
class MatrixPlace:
    """Dimensions and positions of a linear layer in the banks.

    Members
    -------
    inputs, outputs, group : int
        Columns and rows of the matrix; weights per quantisation group.
    base : int
        Position of the first column, relative to the layer.
    rounds : int
        Tiles of `elements` outputs that each unit computes.
    scaled : bool
        The units scale groups: the groups of a round are stored back to back.
    """

    inputs: int
    outputs: int
    group: int
    base: int
    rounds: int
    scaled: bool = False

    @property
    def outers(self) -> int:
        """Groups per output."""
        return self.inputs // self.group

    @property
    def steps(self) -> int:
        """Columns per group."""
        return self.group // LANES

    @property
    def tables(self) -> int:
        """Positions of a group's metadata and 8-bit scales."""
        # Per set of rounds: one column of special values, and one position of scales per two
        # rounds.
        whole, rest = divmod(self.rounds, LINEAR_SET)
        return whole * (1 + LINEAR_SET // 2) + (1 + (rest + 1) // 2 if rest else 0)

    @property
    def positions(self) -> int:
        """Columns that the matrix occupies in every unit."""
        tables = self.round_tables * self.rounds if self.scaled else self.tables * self.outers
        return tables + self.outers * self.rounds * self.steps + self.rounds

    @property
    def round_tables(self) -> int:
        """Positions of a round's special values and scales, where the units scale its groups."""
        return -(-self.outers // LINEAR_SET) - (-self.outers // SCALE_SET)

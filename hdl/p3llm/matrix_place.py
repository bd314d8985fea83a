"""Where a linear layer stands in the banks."""

from dataclasses import dataclass

from hdl.p3llm.pim.dot_product import LANES

LINEAR_SET = 8
"""Rounds of a linear layer that one column of metadata serves."""

SCALE_SET = 2
"""Groups of a round that one column of scales serves, where the units scale them."""


@dataclass(frozen=True, kw_only=True)
class MatrixPlace:
    """A linear layer's dimensions in the banks.

    Members
    -------
    inputs, outputs, group : int
        Of the matrix; weights of a group.
    base : int
        Position of its first column in a layer.
    rounds : int
        Tiles of a unit.
    scaled : bool
        The units scale groups: a round has all of its groups, one behind the other.
    """

    inputs: int
    outputs: int
    group: int
    base: int
    rounds: int
    scaled: bool = False

    @property
    def outers(self) -> int:
        """Groups of an output."""
        return self.inputs // self.group

    @property
    def steps(self) -> int:
        """Columns of a group."""
        return self.group // LANES

    @property
    def tables(self) -> int:
        """Positions of a group's metadata and 8-bit scales."""
        # A set's column of special values, and a position of scales for every two rounds.
        whole, rest = divmod(self.rounds, LINEAR_SET)
        return whole * (1 + LINEAR_SET // 2) + (1 + (rest + 1) // 2 if rest else 0)

    @property
    def positions(self) -> int:
        """Columns of every unit."""
        tables = self.round_tables * self.rounds if self.scaled else self.tables * self.outers
        return tables + self.outers * self.rounds * self.steps + self.rounds

    @property
    def round_tables(self) -> int:
        """Positions of a round's special values and scales, where the units scale its groups."""
        return -(-self.outers // LINEAR_SET) - (-self.outers // SCALE_SET)

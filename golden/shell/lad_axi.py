"""Model of LAD with the AXI shell: its programs, and the places of its words in memory."""

from collections.abc import Sequence
from typing import Any

from golden.lad.lad_tiles import place
from hdl.shell.lad_axi_parameters import LadAxiParameters


class LadProgram:
    """A program: tokens, and the slices of their angles and hidden states.

    Members
    -------
    words : dict[str, list[int]]
        Payloads of each part of the program.
    """

    def __init__(self, p: LadAxiParameters) -> None:
        self.p = p
        self.words: dict[str, list[int]] = {name: [] for name in p.program}

    def token(self, lengths: Sequence[int], slices: Sequence[int], *, predict: bool) -> None:
        """Compute a token of each sample.

        Parameters
        ----------
        lengths : Sequence[int]
            Positions of each sample, including this token.
        slices : Sequence[int]
            Cosines of all samples, then sines, then the hidden states: for each slice index all
            samples.
        predict : bool
            Whether the LM head follows.
        """
        fields: dict[int | str, Any] = {"lengths": list(lengths), "predicts": predict}
        self.words["tokens"].append(self.p.token_layout.const(fields).as_value().value)
        self.words["slices"] += slices


def first_word(p: LadAxiParameters, region: str, number: int) -> int:
    """Return the address of the first word of a head in a region of rows."""
    layout = {"positions": p.record_layout, "caches": p.column_layout}.get(region, p.row_layout)
    own = place(p.lad.shared_tiles, number)
    return own.tile << layout["tile"].offset | own.head << layout["head"].offset

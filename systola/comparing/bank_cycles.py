"""Cycles of a token by cause, from the commands of P3-LLM's banks.

``python -m systola.comparing.bank_cycles CACHED`` runs the token that follows a number of cached
tokens (`systola.comparing.contexts`). It prints the cycles of columns, and those between columns,
by the data that are accessed, summed over the layers, and those of the LM head.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import open_language_model
from golden.llm.texts import text_named
from golden.p3llm.dram_layout import row_number
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.pim_channel import COLUMN_BITS
from synth.comparison import kept
from systola.comparing.contexts import measured
from systola.comparing.design import Choice, Design, kept_commands

PORT = "bank_command"
"""The accelerator's output of the commands for the arrays of the banks."""

FIELDS = ("activate", "precharge", "refresh", "row", "read", "write", "column")
"""Fields of a command that decide the cause of a cycle; all precede the data."""

Bits = NDArray[np.uint8]
"""Recorded bits of a port, shape (cycles, bits)."""


def regions(p: P3llmParameters, *, lm_head: bool) -> Iterator[tuple[int, str]]:
    """Return the end of each region of a layer's positions, or of the LM head's, and its name."""
    norm = p.positions(p.hidden_size)
    if lm_head:
        yield norm, "final norm"
        for piece in p.projection:
            yield piece.base + piece.rounds, "row scales of the LM head"
            yield piece.base + piece.positions, "LM head"
        return
    yield norm, "first norm"
    yield 2 * norm, "second norm"
    yield p.matrices["qkv"].base, "smoothing factors"
    for name, matrix in p.matrices.items():
        yield matrix.base + matrix.rounds, f"row scales of {name}"
        yield matrix.base + matrix.positions, name
    yield p.value_base(0), "keys"
    yield p.layer_positions, "values"


class Causes:
    """Classifies the cycles of one layer after another.

    A cycle between two columns is counted for what ends the pause: a refresh of all banks lies in
    it, a row is opened in it, or neither. A column of all units takes two cycles.

    Parameters
    ----------
    p : P3llmParameters
        Parameters of the system.
    """

    def __init__(self, p: P3llmParameters) -> None:
        self.p = p
        self.rows = [0, 0]

    def of(self, bits: Bits, layer: int) -> Counter[tuple[str, str]]:
        """Return the cycles of a layer by cause and data."""
        p, lm_head = self.p, layer == self.p.layers
        banks, found = p.channel.timing.banks, Counter[tuple[str, str]]()
        values = self._values(bits)
        ends, names = zip(*regions(p, lm_head=lm_head), strict=True)
        accesses = values["read"] | values["write"]
        whole = values["refresh"] == (1 << banks) - 1
        free, last, before = 0, 0, "begin"
        for cycle in np.flatnonzero(accesses | values["activate"]):
            mask = int(accesses[cycle])
            if mask:
                side = mask.bit_length() - 1 & 1
                row = row_number(self.rows[side], side)
                position = (row << COLUMN_BITS) + int(values["column"][cycle])
                offset = position - layer * p.layer_positions
                name = names[int(np.searchsorted(ends, offset, side="right"))]
                together = mask.bit_count() == banks // 2
                found[("columns of all units" if together else "single columns", name)] += (
                    1 + together
                )
                where = name if name == before else f"{before} to {name}"
                cause = "refresh of all banks" if whole[last:cycle].any() else "other pause"
                if cause == "other pause" and values["activate"][last:cycle].any():
                    cause = "pause in which a row is opened"
                found[(cause, where)] += int(cycle) - free
                free, last, before = int(cycle) + 1 + together, int(cycle), name
            if values["activate"][cycle]:
                side = int(values["activate"][cycle]).bit_length() - 1 & 1
                self.rows[side] = int(values["row"][cycle])
        found[("other pause", f"{before} to end")] += len(bits) - free
        return found

    def _values(self, bits: Bits) -> dict[str, NDArray[np.int64]]:
        """Return the fields of each cycle's command."""
        layout = self.p.channel.bank_command_layout
        values = {}
        for name in FIELDS:
            field = layout[name]
            own = bits[:, field.offset : field.offset + field.width].astype(np.int64)
            values[name] = own @ (1 << np.arange(field.width, dtype=np.int64))
        return values


def main(cached: int) -> None:
    """Print the cycles of the layers, then those of the LM head."""
    system = kept()["systems"]["p3llm"]
    model = open_language_model(None)
    design = Design.open(Choice.of(kept_commands(system)["generate"]), model, system)
    design.system.prepare(lambda words: None)
    p: Any = design.dimensions
    steps: list[Bits] = []
    begin = design.system.begin

    def recorded(state: Any) -> None:
        begin(state)
        session = design.system.host._session
        run = session.run

        def traced(*arguments: Any, record: Any = (), **options: Any) -> Any:
            found = run(*arguments, record=[*record, PORT], **options)
            end = p.channel.bank_command_layout["mask"].offset
            steps.append(found.outputs.pop(PORT)[:, :end].copy())
            return found

        session.run = traced

    design.system.begin = recorded
    outcome = measured(design.system, model.tokens_of(text_named("news")), cached)
    recorded_cycles = sum(map(len, steps[-p.layers - 1 :]))
    print(f"{outcome.cycles:,} cycles, lower bound {outcome.bound:,}, {recorded_cycles:,} recorded")
    causes = Causes(p)
    counts = [causes.of(bits, layer) for layer, bits in enumerate(steps[-p.layers - 1 :])]
    for title, own in (("layers", counts[:-1]), ("LM head", counts[-1:])):
        total = sum(own, Counter[tuple[str, str]]())
        for (cause, where), cycles in sorted(total.items(), key=lambda one: -one[1]):
            print(f"{title}: {cycles:,} cycles, {cause}, {where}")


if __name__ == "__main__":
    main(int(sys.argv[1]))

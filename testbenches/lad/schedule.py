"""When a layer's projections and the stages of its head-samples were at work, cycle by cycle."""

from typing import Any

import numpy as np

from hdl.lad.lad_parameters import LadParameters
from testbenches.packing import from_integers, unpack


class Schedule:
    """Watch weights go in, and what each step sends to the memory.

    Parameters
    ----------
    bench : Any
        Has `weights`, `outside` and `bench`.
    p : LadParameters
        Dimensions.
    """

    def __init__(self, bench: Any, p: LadParameters) -> None:
        self.streams, self.p = bench, p
        self.weights: list[int] = []
        bench.bench.add(self)

    def clear(self) -> None:
        """Forget everything, as in a reset."""
        self.weights.clear()

    def drive(self) -> None:
        """Do nothing."""

    def sample(self) -> None:
        """Keep the cycle in which weights are taken."""
        if self.streams.weights.accepted:
            self.weights.append(self.streams.bench.cycle)

    def token(self, number: int) -> dict[str, Any]:
        """Return one token's projections and steps of the first layer, in cycles from its first.

        Each projection has its first and last transfer of weights; each step its tile, the
        cycles in which it begins, leaves stage 2, is first and last seen behind stage 5, and ends.
        """
        p = self.p
        units = p.tile.linear.units
        matrices = [
            -(-rows * p.head_size // units) * slices
            for rows, slices in (
                *[(p.projected, p.width)] * p.periods,
                (p.width, p.heads),
                (2 * p.gated, p.width),
                (p.width, p.gated),
            )
        ]
        ends = np.cumsum(matrices)
        first = number * p.layers * int(ends[-1])
        taken = [
            [self.weights[first + end - size], self.weights[first + end - 1]]
            for end, size in zip(ends[: p.periods], matrices[: p.periods], strict=True)
        ]
        start = taken[0][0]
        steps = range(number * p.layers * p.heads * p.batch, self._steps(number))
        return {
            "batch": p.batch,
            "projections": [[cycle - start for cycle in pair] for pair in taken],
            "steps": [
                [tile, *(cycle - start for cycle in rest)] for tile, *rest in self._of(steps)
            ],
        }

    def _steps(self, number: int) -> int:
        """Return the number of the step behind a token's first layer."""
        p = self.p
        return (number * p.layers + 1) * p.heads * p.batch

    def _events(self, name: str) -> dict[int, list[int]]:
        """Return the cycles in which a head-sample has sent something, since the last reset."""
        outside = self.streams.outside
        layout = outside.layouts[name]
        seen = outside.sinks[name].received[outside.before[name] :]
        rows = unpack(layout, from_integers([payload for _cycle, payload in seen], layout.size))
        events: dict[int, list[int]] = {}
        for (cycle, _payload), head in zip(seen, outside.number(rows), strict=True):
            events.setdefault(int(head), []).append(cycle)
        return events

    def _of(self, steps: range) -> list[list[int]]:
        """Return a row for each step, all heads of a token having one each."""
        p = self.p
        heads = p.layers * p.heads * p.batch
        begins, scored, columns, marked = (
            self._events(name) for name in ("appends", "centres", "columns", "counters")
        )
        rows = []
        for step in steps:
            head, token = step % heads, step // heads
            begin = begins[head][token]
            end = columns[head][(token + 1) * p.tile.ac.columns - 1]
            # A step's counters are those between its begin and its end: a head has one at a time.
            seen = [cycle for cycle in marked[head] if begin <= cycle <= end]
            tile = head % p.tiles
            rows.append([tile, begin, scored[head][token], seen[0], seen[-1], end])
        return rows

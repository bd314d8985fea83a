"""Recorder of a layer's schedule: cycles of its projections and of the stages of its steps."""

from typing import Any

import numpy as np

from hdl.lad.parameters import LadParameters
from testbenches.packing import from_integers, unpack


class Schedule:
    """Record the transfers of weights, and what each step writes to the memory.

    Parameters
    ----------
    bench : Any
        Bench with `weights`, `outside` and `bench`.
    p : LadParameters
        Dimensions of model and tiles.
    """

    def __init__(self, bench: Any, p: LadParameters) -> None:
        self.streams, self.p = bench, p
        self.weights: list[int] = []
        bench.bench.add(self)

    def clear(self) -> None:
        """Discard everything, as in a reset."""
        self.weights.clear()

    def drive(self) -> None:
        """Do nothing."""

    def sample(self) -> None:
        """Record the cycle of a transfer of weights."""
        if self.streams.weights.accepted:
            self.weights.append(self.streams.bench.cycle)

    def token(self, number: int) -> dict[str, Any]:
        """Return one token's projections and steps of the first layer, in cycles from its first.

        Each projection has its first and last transfer of weights. Each step has its tile, and the
        cycles in which it begins, completes stage 2, is first and last observed after stage 5, and
        ends.
        """
        p = self.p
        units = p.tile.linear.units
        matrices = [
            -(-rows * p.head_size // units) * slices
            for rows, slices in (
                *[(p.projected, p.hidden_slices)] * p.periods,
                (p.hidden_slices, p.heads),
                (2 * p.intermediate_slices, p.hidden_slices),
                (p.hidden_slices, p.intermediate_slices),
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
        """Return the number of the first step after a token's first layer."""
        p = self.p
        return (number * p.layers + 1) * p.heads * p.batch

    def _events(self, name: str) -> dict[int, list[int]]:
        """Return the cycles of a head's transfers on a stream since the last reset."""
        outside = self.streams.outside
        layout = outside.layouts[name]
        seen = outside.sinks[name].received[outside.before[name] :]
        rows = unpack(layout, from_integers([payload for _cycle, payload in seen], layout.size))
        events: dict[int, list[int]] = {}
        for (cycle, _payload), head in zip(seen, outside.number(rows), strict=True):
            events.setdefault(int(head), []).append(cycle)
        return events

    def _of(self, steps: range) -> list[list[int]]:
        """Return one row per step; all heads of a token have one step each."""
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
            # A step's counters are written between its begin and end: a head has one step at a
            # time.
            seen = [cycle for cycle in marked[head] if begin <= cycle <= end]
            tile = head % p.tiles
            rows.append([tile, begin, scored[head][token], seen[0], seen[-1], end])
        return rows

"""LAD's attention inside a `transformers` model: every token is a decoding step, in float64.

A head's modes depend only on its own earlier steps, so a given text is replayed layer by layer for
all its tokens, as in `golden.study.attention`. Generation continues from the same state.
`golden/lad/locality_aware_attention.py` is the same algorithm for one head, step by step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from golden.lad.piecewise_linear_exp import rounded_lines
from golden.study.lad_caches import RoundedCaches
from golden.study.lad_centres import KeyCentres
from hdl.lad.exp_intervals import IntervalParameters

BLOCK = 128
RECENT = 16
"""The latest positions, which the intermediate caches do not contain."""

STATISTICS = (
    "centres",
    "exact",
    "active",
    "changed",
    "hits",
    "missed",
    "needless",
    "nonpositive",
)
"""Counts of one step of one head: |C|; |M|; |J|; |U|; members of J that were in J in the previous
step; positions outside their mode interval that are not in J; positions inside it that are in J;
denominators that are not above 0."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """One variant of LAD's attention.

    Parameters
    ----------
    intervals : IntervalParameters
        The piecewise linear exponential; its coefficients are rounded to FP16.
    threshold : float, optional
        Value of |cos| above which another key's direction represents a key; if not given, all
        scores are exact.
    caches : torch.dtype, optional
        Type of the intermediate caches and of the sums that update them; if not given, the caches
        are computed exactly from the modes.
    period : int, optional
        Number of steps between recomputations of the caches from the modes.
    """

    intervals: IntervalParameters
    threshold: float | None = None
    caches: torch.dtype | None = None
    period: int | None = None


class LayerState:
    """The state of one layer's heads.

    Parameters
    ----------
    scheme : Scheme
        The variant.
    heads : tuple[int, int, int]
        Sequences, KV heads, query heads per KV head.
    capacity : int
        Maximum number of positions.
    size : int
        Head size d.

    Members
    -------
    modes : array [*heads, capacity]
        Mode interval of each position, whose coefficients the caches contain; 0 for the latest 16.
    counts : array [*heads, capacity, I]
        Number of steps in which a position was in an interval.
    """

    def __init__(
        self, scheme: Scheme, heads: tuple[int, int, int], capacity: int, size: int
    ) -> None:
        number = scheme.intervals.intervals
        self.modes = torch.zeros(*heads, capacity, dtype=torch.int64)
        self.counts = torch.zeros(*heads, capacity, number, dtype=torch.int32)
        self.centres = (
            None
            if scheme.threshold is None
            else KeyCentres(scheme.threshold, heads[:2], capacity, size)
        )
        self.caches = None if scheme.caches is None else RoundedCaches(scheme.caches, heads, size)
        self.before = torch.zeros(*heads, capacity, dtype=torch.bool)
        self.length = 0


class LadAttention:
    """An attention function for `transformers`.

    Parameters
    ----------
    scheme : Scheme
        The variant.
    capacity : int
        Maximum number of positions of a sequence.
    done : Callable, optional
        Called after each layer.
    observe : Callable, optional
        Called after each step of a layer with the layer, the step and its statistics
        [*heads, len(STATISTICS)].

    Members
    -------
    layers : dict[int, LayerState]
        The states by layer number.
    nonpositive : int
        Number of denominators that were not above 0; the output of such a head is 0.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        capacity: int,
        done: Callable[[], None] | None = None,
        observe: Callable[[int, int, Tensor], None] | None = None,
    ) -> None:
        self.scheme = scheme
        self.capacity = capacity
        self.layers: dict[int, LayerState] = {}
        self.nonpositive = 0
        self._done = done
        self._observe = observe
        lines = rounded_lines(scheme.intervals)
        self._bounds = torch.tensor(lines.lower[1:])
        self._slopes = torch.tensor(lines.slopes)
        self._intercepts = torch.tensor(lines.intercepts)

    def __call__(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        scaling: float,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Attend: query [lanes, heads, new tokens, size]; key, value with fewer."""
        lanes, kv_heads, tokens, size = key.shape
        new = query.shape[2]
        kind = query.dtype
        queries = (query.double() * scaling).view(lanes, kv_heads, -1, new, size)
        key, value = key.double(), value.double()
        heads = (lanes, kv_heads, queries.shape[2])
        if tokens == new:
            self.layers[module.layer_idx] = LayerState(self.scheme, heads, self.capacity, size)
        state = self.layers[module.layer_idx]
        if state.centres:
            state.centres.extend(key)
        outputs = [
            self._block(module.layer_idx, state, block, key, value)
            for block in queries.split(BLOCK, dim=-2)
        ]
        if self._done:
            self._done()
        output = torch.cat(outputs, -2).view(lanes, -1, new, size).transpose(1, 2)
        return output.to(kind), None

    def _block(
        self, layer: int, state: LayerState, block: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """Attend with a block of queries [*heads, queries, size] after the state's positions."""
        count = block.shape[-2]
        stop = state.length + count
        exact = block @ key[:, :, None, :stop].mT
        base: Tensor | float = 0.0
        if self._stateless:
            weights, state.length = self.exponentials(exact, state.length), stop
            total = weights.sum(-1)
        else:
            weights, base, total = self._steps(layer, state, block, exact, key, value)
        output = base + weights @ value[:, :, None, :stop]
        bad = ~(total > 0)
        self.nonpositive += int(bad.sum())
        return (output / total[..., None]).masked_fill(bad[..., None], 0)

    @property
    def _stateless(self) -> bool:
        """Whether the output is independent of the modes, because scores and caches are exact."""
        exact = self.scheme.threshold is None and self.scheme.caches is None
        return exact and self._observe is None

    def exponentials(self, scores: Tensor, length: int) -> Tensor:
        """Return the piecewise linear attention's weights (Equation 3), 0 after each query."""
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(length + 1)
        x = scores.masked_fill(later, -torch.inf)
        x -= x.amax(-1, keepdim=True)
        slope, intercept = self._coefficients(torch.bucketize(x, self._bounds))
        # Clamp, because infinity times the tail's slope 0 is NaN.
        return (slope * x.clamp(min=-1e3) + intercept).masked_fill_(later, 0.0)

    def _steps(
        self,
        layer: int,
        state: LayerState,
        block: Tensor,
        exact: Tensor,
        key: Tensor,
        value: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Decode token by token; return weights, the caches' numerators, and denominators."""
        known = state.centres.approximate(exact) if state.centres else exact
        weights, base = torch.zeros_like(exact), torch.zeros_like(block)
        total = block.new_zeros(block.shape[:-1])
        for row in range(block.shape[-2]):
            state.length = n = state.length + 1
            step = self._step(state, exact[..., row, :n], known[..., row, :n])
            weights[..., row, :n] = step.weights
            total[..., row] = step.weights.sum(-1)
            if state.caches:
                base[..., row, :], mass = state.caches.attend(block[..., row, :], step.maximum)
                total[..., row] += mass
                changes = (step.slopes, step.intercepts)
                state.caches.update(step.changed, changes, key[:, :, :n], value[:, :, :n])
                if self.scheme.period and n % self.scheme.period == 0:
                    served = state.modes[..., : max(n - RECENT + 1, 0)]
                    state.caches.rebuild(self._coefficients(served), key, value)
            if self._observe:
                self._observe(layer, n, self._statistics(state, step, total[..., row]))
        return weights, base, total

    def _step(self, state: LayerState, exact: Tensor, known: Tensor) -> "Step":
        """Decode one token: `exact` and approximate scores of all its positions."""
        n = exact.shape[-1]
        old = max(n - RECENT, 0)
        modes = state.modes[..., :n]
        # Scores of the two top intervals, of the first position and of the latest ones are exact.
        precise = modes >= self.scheme.intervals.intervals - 2
        precise[..., :1] = True
        precise[..., old:] = True
        known = torch.where(precise, exact, known)
        maximum = known.amax(-1, keepdim=True)
        x = exact - maximum
        interval = torch.bucketize(x, self._bounds)
        seen = torch.bucketize(known - maximum, self._bounds) if state.centres else interval
        active = seen != modes
        active[..., old:] = True
        counted = torch.where(active, interval, modes)
        counts = state.counts[..., :n, :]
        counts.scatter_add_(
            -1, counted[..., None], torch.ones_like(counted, dtype=torch.int32)[..., None]
        )
        risen = counts.gather(-1, counted[..., None]) > counts.gather(-1, modes[..., None])
        changed = active & risen[..., 0]
        changed[..., old:] = False
        if n >= RECENT:
            # The graduate's coefficients enter the caches regardless of its counters.
            changed[..., old] = True
        before, after = self._coefficients(modes), self._coefficients(interval)
        if state.caches:
            # Correct the caches' contribution by the difference of the coefficients.
            slope, intercept = (new - was for new, was in zip(after, before, strict=True))
            weights = torch.where(active, slope * x + intercept, 0.0)
        else:
            slope, intercept = self._coefficients(counted)
            weights = slope * x + intercept
        step = Step(
            weights=weights,
            maximum=maximum[..., 0],
            precise=precise,
            active=active,
            changed=changed,
            off=interval != modes,
            slopes=after[0] - before[0],
            intercepts=after[1] - before[1],
        )
        state.modes[..., :n] = torch.where(changed, interval, modes)
        return step

    def _coefficients(self, intervals: Tensor) -> tuple[Tensor, Tensor]:
        return self._slopes[intervals], self._intercepts[intervals]

    def _statistics(self, state: LayerState, step: "Step", total: Tensor) -> Tensor:
        """Return the statistics of a step, and store its active positions."""
        n = step.active.shape[-1]
        before = state.before[..., :n]
        centres = torch.full(step.maximum.shape, n)
        if state.centres:
            centres = state.centres.members[:, :, None, :n].sum(-1).expand(step.maximum.shape)
        counts = (
            centres,
            step.precise.sum(-1),
            step.active.sum(-1),
            step.changed.sum(-1),
            (step.active & before).sum(-1),
            (step.off & ~step.active).sum(-1),
            (step.active & ~step.off).sum(-1),
            ~(total > 0),
        )
        before.copy_(step.active)
        return torch.stack([count.to(torch.int32) for count in counts], -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """The result of one step of a layer, for each head and position.

    Members
    -------
    weights : array [*heads, n]
        Weight of each value, in addition to its weight in the intermediate caches.
    maximum : array [*heads]
        The maximum score.
    precise, active, changed : array [*heads, n]
        Membership in the sets M, J and U.
    off : array [*heads, n]
        Whether the exact score is outside the mode interval.
    slopes, intercepts : array [*heads, n]
        Changes alpha and beta of the coefficients.
    """

    weights: Tensor
    maximum: Tensor
    precise: Tensor
    active: Tensor
    changed: Tensor
    off: Tensor
    slopes: Tensor
    intercepts: Tensor

"""Policies that accumulate scores: StreamingLLM, H2O, and Kelle's AERP (Section 4.1)."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden.kelle.edram.refresh_controller import high_group
from golden.kelle.eviction.aerp import EMPTY, AerpParameters, replay
from golden.kelle.eviction.head_scores import HeadScores
from golden.policies.protocol import LONGEST, Attended, Hardware, Policy, Query
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.systolic_evictor import ScoreSource, SystolicEvictorParameters
from hdl.parameters import require, require_choice, require_range

SINKS = 10
STREAMING_SINKS = 4
SCORE_BITS, SCORE_FRACTION, SCORE_SHIFT = 16, 10, 2
"""Width and fraction bits of Kelle's scores, and the bits dropped before accumulation."""
EXPORTED_BITS = 4
"""Bits of an importance that Kelle's refresh controllers receive."""


class Source(Enum):
    """The quantity that is accumulated as a token's importance."""

    NONE = "nothing: a later token is more important"
    RAW = "raw scores"
    PROB = "probabilities"
    INTEGER = "raw scores in the accelerator's integers"
    CENTRED = "the same, from the tracked median of the head on"


INTEGERS = (Source.INTEGER, Source.CENTRED)
"""Sources with a bit-exact form."""


@dataclass(frozen=True, kw_only=True)
class ScorePolicy(Policy):
    """Evict the least important token outside sinks and window.

    Parameters
    ----------
    source : Source
        Quantity that the query heads of a cache add to importance.

    Members
    -------
    sinks, window : int
        First tokens of the text, and most recent tokens with the current one, that are protected.

    Raises
    ------
    ValueError
        If no slot could be evicted.
    """

    source: Source = Source.PROB
    moves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require_range("window", self.window, 1, LONGEST)
        require_choice("source", self.source, list(Source))
        least = self.sinks + self.window + 1
        require(self.budget >= least, f"budget must be at least {least}", self.budget)

    @property
    def sinks(self) -> int:
        """Number of first tokens of the text that are never evicted."""
        return 0

    @property
    def window(self) -> int:
        """Number of most recent tokens that are never evicted, with the current one."""
        return 1

    def score(self, importance: Tensor, query: Query) -> Tensor:
        """Add the query heads' scores to importance."""
        match self.source:
            case Source.NONE:
                return query.positions.to(importance.dtype)
            case Source.RAW:
                return importance + query.raw.sum(2)
            case Source.PROB:
                return importance + query.prob.sum(2)
            case Source.INTEGER | Source.CENTRED:
                return importance + accelerator_scores(query.raw).sum(2)

    def protect(self, query: Query) -> Tensor:
        """Protect sinks and window."""
        positions = query.positions
        return (positions < self.sinks) | (positions > query.now - self.window)

    def trim(self, importance: Tensor, protected: Tensor) -> Tensor:
        """Return protected slots and the most important others; ties keep the lowest slot."""
        order = importance.masked_fill(protected, torch.inf).sort(
            dim=-1, descending=True, stable=True
        )
        return order.indices[..., : self.budget].sort(-1).values

    def important(self, importance: Tensor, positions: Tensor) -> Tensor:
        """Return the more important half of each cache's tokens as a mask, for bit errors.

        Parameters
        ----------
        importance, positions : Tensor
            [lanes, caches, slots], before the query; the arriving token included.
        """
        return importance > importance.nanmedian(-1, keepdim=True).values

    def second_source(self, scores: NDArray[np.floating]) -> Attended:
        """Run `golden.kelle.eviction.aerp` in float64; without scores, count positions."""
        if self.source is Source.NONE:
            return self._by_position(scores.shape[1])
        source = ScoreSource.PROB if self.source is Source.PROB else ScoreSource.RAW
        if self.source in INTEGERS:
            # The bit-exact form of these sums is their only form.
            return self._replayed(*self._in_base_2(scores))
        return self._replayed(scores, source, None)

    def _by_position(self, tokens: int) -> Attended:
        for now in range(tokens):
            recent = max(now - (self.budget - self.sinks), 0)
            first = np.arange(min(self.sinks, recent))
            yield np.concatenate([first, np.arange(recent, now + 1)])

    def _in_base_2(
        self, scores: NDArray[np.floating]
    ) -> tuple[NDArray[Any], ScoreSource, SystolicEvictorParameters]:
        return scores * math.log2(math.e), ScoreSource.RAW, eviction_of(self).evictor

    def _replayed(
        self,
        scores: NDArray[Any],
        source: ScoreSource,
        evictor: SystolicEvictorParameters | None,
    ) -> Attended:
        tokens = scores.shape[1]
        first = min(self.prefill or self.budget, tokens)
        centre = None
        if self.source is Source.CENTRED:
            # The median is tracked from the second token on, as in the accelerator.
            first, centre = 1, HeadScores(eviction_of(self))
        for now in range(first):
            yield np.arange(now + 1)
        policy = AerpParameters(budget=self.budget, window=self.window, sinks=self.sinks)
        steps = tokens - first
        for step in replay(
            scores, policy, first=first, steps=steps, source=source, evictor=evictor, centre=centre
        ):
            cached = step.positions[step.positions != EMPTY]
            yield np.sort(np.append(cached, step.now))


@dataclass(frozen=True, kw_only=True)
class FullCache(ScorePolicy):
    """Keep every token; importance, if accumulated, only splits the tokens for bit errors."""

    budget: int = LONGEST
    source: Source = Source.NONE


@dataclass(frozen=True, kw_only=True)
class StreamingLLM(ScorePolicy):
    """Keep four sinks and the most recent tokens."""

    source: Source = Source.NONE

    @property
    def sinks(self) -> int:
        """Four tokens."""
        return STREAMING_SINKS


@dataclass(frozen=True, kw_only=True)
class H2O(ScorePolicy):
    """Keep heavy hitters by accumulated probability; half of the budget is the recent window."""

    @property
    def window(self) -> int:
        """Half of the budget."""
        return self.budget // 2


@dataclass(frozen=True, kw_only=True)
class Aerp(ScorePolicy):
    """Keep Kelle's selection: ten sinks, a recent half, and the most important other tokens.

    Equation 3 accumulates probabilities. The accelerator accumulates raw scores (Section 5.3) in
    integers, for which there is a bit-exact form.
    """

    @property
    def sinks(self) -> int:
        """Ten tokens, at most a quarter of the budget."""
        return min(SINKS, self.budget // 4)

    @property
    def window(self) -> int:
        """Half of the budget."""
        return self.budget // 2

    @property
    def exact(self) -> str | None:
        """The evictor's arithmetic in the golden model of AERP."""
        return "golden.kelle.eviction.aerp.replay" if self.source in INTEGERS else None

    @property
    def hardware(self) -> Hardware | None:
        """The eviction controller, which evicts after the step's scores are accumulated."""
        if self.source not in INTEGERS:
            return None
        centred = self.source is Source.CENTRED
        dimensions = {"slots": self.budget, "window": self.window, "sinks": self.sinks}
        words = [f"{name}={value}" for name, value in dimensions.items()]
        return Hardware(
            unit="eviction_controller",
            settings={"evictor.source": "raw", "evict_before": False, "centred": centred},
            accelerator={"TOP": "kelle", "SET": " ".join(words + ["centred=true"] * centred)},
        )

    def exact_form(self, scores: NDArray[np.floating]) -> Attended | None:
        """Run the golden model of AERP with the evictor's integers."""
        if self.source not in INTEGERS:
            return None
        return self._replayed(*self._in_base_2(scores))


@dataclass(frozen=True, kw_only=True)
class TrackedAerp(Aerp):
    """AERP whose more important half is that of the accelerator's refresh controllers.

    Tokens above the tracked median of their head are important, by four bits of an importance; an
    arriving token is important. Evictions are those of `Aerp`. With `Source.CENTRED` the importance
    of an arriving token starts at this median, so that it does not depend on the token's age.
    """

    source: Source = Source.INTEGER

    def __post_init__(self) -> None:
        """Check that importance is in integers, and that a centred cache has no prefill."""
        super().__post_init__()
        rule = "split by a tracked median needs the source INTEGER or CENTRED"
        require(self.source in INTEGERS, rule, self.source)
        prefills = self.prefill and self.source is Source.CENTRED
        require(not prefills, "prefill must be 0 with the source CENTRED", self.prefill)

    def begin(self, lanes: int, caches: int, tokens: int) -> "TrackedAerp":
        """Return the policy with new medians."""
        return _Tracking(self, lanes, caches, tokens)


class _Tracking(TrackedAerp):
    """The medians of one layer's heads, and the groups after the last query."""

    def __init__(self, policy: TrackedAerp, lanes: int, caches: int, tokens: int) -> None:
        super().__init__(
            budget=policy.budget, prefill=policy.prefill, unit=policy.unit, source=policy.source
        )
        parameters = eviction_of(policy)
        # A frozen dataclass: the state is set as its own fields are.
        object.__setattr__(
            self,
            "_scores",
            [[HeadScores(parameters) for _ in range(caches)] for _ in range(lanes)],
        )
        object.__setattr__(self, "_high", torch.zeros(lanes, caches, tokens, dtype=torch.bool))

    _scores: list[list[HeadScores]]
    _high: Tensor

    def score(self, importance: Tensor, query: Query) -> Tensor:
        """Add scores, and divide the tokens by the accelerator's bit-exact coarse scores."""
        updated = super().score(importance, query)
        if self.source is Source.CENTRED and query.now == 0:
            # The first token is a prefill: its score less the mean of one score.
            updated = torch.zeros_like(updated)
        for lane, heads in enumerate(self._scores):
            for head, scores in enumerate(heads):
                positions = query.positions[lane, head]
                # The current token takes part in the search only from the next query on.
                cached = positions != query.now
                sums = updated[lane, head][cached].numpy().astype(np.int64)
                high = torch.from_numpy(high_group(scores.coarse(sums), EXPORTED_BITS))
                self._high[lane, head, positions[cached]] = high
                self._high[lane, head, query.now] = True
                if self.source is Source.CENTRED:
                    updated[lane, head, ~cached] += scores.centre
                scores.learn(sums)
        return updated

    def important(self, importance: Tensor, positions: Tensor) -> Tensor:
        """Return the groups after the previous query."""
        return self._high.gather(-1, positions)


def accelerator_scores(raw: Tensor) -> Tensor:
    """Return the values that Kelle's evictor accumulates: Q6.10 in base 2, without dropped bits."""
    scores = (raw * (math.log2(math.e) * (1 << SCORE_FRACTION))).round()
    limit = 1 << SCORE_BITS - 1
    return (scores.clamp(-limit, limit - 1) / (1 << SCORE_SHIFT)).floor()


def eviction_of(policy: ScorePolicy) -> EvictionParameters:
    """Return the accelerator's parameters for a policy; its sums do not saturate."""
    evictor = SystolicEvictorParameters(
        rows=2,
        slots=policy.budget,
        index_width=12,
        shift=SCORE_SHIFT,
        score_width=32,
        source=ScoreSource.RAW,
    )
    return EvictionParameters(
        evictor=evictor, window=policy.window, sinks=policy.sinks, score_bits=EXPORTED_BITS
    )

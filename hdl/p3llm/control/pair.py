"""Pairs of query heads: the units that attention is divided into."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from hdl.p3llm.parameters import P3llmParameters


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One or two query heads of a key/value head, and their places in the NPU's memories.

    Each pseudo-channel processes its own key/value head at the same time, with as many query heads.

    Members
    -------
    request : int
        Request whose tokens they attend to.
    pump : int
        Index of the request among those that share the weights; selects the place of its queries.
    heads : range
        Key/value heads, one per pseudo-channel.
    first, count : int
        First query head of each key/value head, and number of query heads, 1 or 2.
    turn, side : int
        Which of two places is used: for the pair's vectors, and for the scales of its heads.
    opens : bool
        The pair is the first of its key/value heads.
    """

    request: int
    pump: int
    heads: range
    first: int
    count: int
    turn: int
    side: int
    opens: bool

    @property
    def queries(self) -> Iterator[tuple[int, int]]:
        """For each query, its key/value head and which input of a column it is."""
        return product(self.heads, range(self.count))


def all_pairs(p: P3llmParameters, requests: range) -> list[Pair]:
    """Return the pairs of the requests that share the weights, in order of execution."""
    channels = p.pseudo_channels
    rounds = [
        range(head, min(head + channels, p.kv_heads)) for head in range(0, p.kv_heads, channels)
    ]
    pairs: list[Pair] = []
    for pump, request in enumerate(requests):
        for number, heads in enumerate(rounds):
            for first in range(0, p.group_size, 2):
                pairs.append(
                    Pair(
                        request=request,
                        pump=pump,
                        heads=heads,
                        first=first,
                        count=min(2, p.group_size - first),
                        turn=len(pairs) % 2,
                        side=(pump * len(rounds) + number) % 2,
                        opens=first == 0,
                    )
                )
    return pairs


class Scores(Protocol):
    """The instructions of Q K^T and of the softmax: `UnitScores` or `NpuScores`."""

    def queries(self, pair: Pair) -> None:
        """Prepare the queries of a pair for `multiply`."""
        ...

    def multiply(self, pair: Pair) -> None:
        """Start Q K^T of a pair on the memory side."""
        ...

    def probabilities(self, pair: Pair) -> None:
        """Compute probabilities, quantised as inputs."""
        ...

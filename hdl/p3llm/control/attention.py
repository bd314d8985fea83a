"""The attention instructions: pairs of a group's query heads, request by request."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from hdl.p3llm.control.lines import (
    HEADS,
    PROBABILITIES,
    QUERIES,
    SCALES,
    SCORES,
    Lines,
    Shared,
)
from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.pim.operand_decoder import Mode


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Attention:
    """Attention instructions of the requests that share the weights.

    Pairs overlap: while the units multiply one pair's queries by the keys, the NPU computes the
    softmax of the previous pair, also across requests.

    Parameters
    ----------
    lines : Lines
        The instruction lists, to which the instructions are added.
    requests : range
        The requests, in order.
    """

    lines: Lines
    requests: range

    @property
    def pairs(self) -> list[Pair]:
        """All pairs, in order of execution."""
        members, kv_heads = self.lines.p.group_size, self.lines.p.kv_heads
        channels = self.lines.p.pseudo_channels
        rounds = [
            range(head, min(head + channels, kv_heads)) for head in range(0, kv_heads, channels)
        ]
        pairs: list[Pair] = []
        for pump, request in enumerate(self.requests):
            for number, heads in enumerate(rounds):
                for first in range(0, members, 2):
                    pairs.append(
                        Pair(
                            request=request,
                            pump=pump,
                            heads=heads,
                            first=first,
                            count=min(2, members - first),
                            turn=len(pairs) % 2,
                            side=(pump * len(rounds) + number) % 2,
                            opens=first == 0,
                        )
                    )
        return pairs

    def attend(self) -> None:
        """Add all pairs; the first pair's key and value are already quantised."""
        pairs = self.pairs
        # There are places for the vectors of two pairs: one pair's scores are computed while the
        # other's wait for the softmax.
        for number, pair in enumerate(pairs[:2]):
            if number > 0:
                self.codes(pair)
            self._queries(pair)
            self._append(pair)
            if number == 0:
                self._scores(pair)
        for number, pair in enumerate(pairs):
            for following in pairs[number + 1 : number + 2]:
                self._scores(following)
            # A new head's token is written while the NPU computes the probabilities that the next
            # product needs.
            for following in pairs[number + 2 : number + 3]:
                self.codes(following)
                self._append(following)
            self._shares(pair)
            # The queries of the pair after next use the place of this pair's queries.
            for following in pairs[number + 2 : number + 3]:
                self._queries(following)
            self._weighted(pair)
            # One pair late, so that the NPU does not wait for sums that have just been started.
            if number > 0:
                self._outputs(pairs[number - 1])
        self._outputs(pairs[-1])

    def factors(self, pump: int) -> None:
        """Load a request's smoothing factors into the smoothing unit."""
        p, places = self.lines.p, self.lines.places
        for head in range(p.kv_heads):
            first = places.spread(places.smoothing(pump))
            factors = first + places.slices(head * p.head_size)
            self.lines.operate(
                NpuOperation.FACTORS, p.head_size, [Shared.SMOOTHING], factors=factors, head=head
            )

    def codes(self, pair: Pair) -> None:
        """Smooth and quantise the keys of new heads; quantise their values."""
        p, places = self.lines.p, self.lines.places
        if not pair.opens:
            return
        # All queries of the previous request have been smoothed. The first request's factors were
        # loaded during its linear layer.
        if pair.pump > 0 and pair.heads.start == 0:
            self.factors(pair.pump)
        parts = ((NpuOperation.KEY, 0), (NpuOperation.VALUE, p.kv_heads))
        for head, (operation, skipped) in product(pair.heads, parts):
            source = places.projected(pair.pump)
            self.lines.operate(
                operation,
                p.head_size,
                (),
                [Shared.CODES],
                request=pair.request,
                source=source + places.slices((skipped + head) * p.head_size),
                head=head,
            )

    def _append(self, pair: Pair) -> None:
        """Append the keys and values of new heads, to which the token attends as well."""
        p = self.lines.p
        if pair.opens:
            self.lines.append(
                [Shared.CODES],
                request=pair.request,
                base=p.key_base(pair.heads.start, pair.request),
                values=p.value_base(pair.heads.start, pair.request),
            )

    def _queries(self, pair: Pair) -> None:
        """Rotate, smooth and quantise the queries."""
        p, places = self.lines.p, self.lines.places
        for head, pump in pair.queries:
            first = 2 * p.kv_heads + head * p.group_size + pair.first
            source = places.projected(pair.pump)
            self.lines.operate(
                NpuOperation.QUERY,
                p.head_size,
                (),
                [QUERIES[pair.turn]],
                request=pair.request,
                source=source + places.slices((first + pump) * p.head_size),
                target=places.query_inputs(pair.turn, pump),
                scalar=2 * pair.turn + pump,
                head=head,
            )

    def _scores(self, pair: Pair) -> None:
        """Multiply the queries by the keys."""
        places, turn, side = self.lines.places, pair.turn, pair.side
        # The scales remain for a head's other pairs; the next head's use the other place.
        again = not pair.opens
        self.lines.multiply(
            Mode.QK,
            [QUERIES[turn]],
            [SCORES[turn]] + [SCALES[side]] * (not again),
            request=pair.request,
            base=self.lines.p.key_base(pair.heads.start, pair.request),
            both=pair.count - 1,
            scaled=again,
            outers=1,
            inputs=[places.words(places.query_inputs(turn, pump)) for pump in range(2)],
            sums=[places.results(places.scores(turn, pump)) for pump in range(2)],
            columns=[
                places.columns(scales)
                for scales in (places.key_scales(side), places.value_scales(side))
            ],
        )

    def _shares(self, pair: Pair) -> None:
        """Compute probabilities from scores."""
        places, turn, side = self.lines.places, pair.turn, pair.side
        for head, pump in pair.queries:
            self.lines.operate(
                NpuOperation.SCORES,
                0,
                [SCORES[turn], SCALES[side]],
                [PROBABILITIES[turn]],
                request=pair.request,
                target=places.probability_inputs(turn, pump),
                sums=places.scores(turn, pump),
                factors=places.key_scales(side),
                value_scales=places.value_scales(side),
                scalar=2 * turn + pump,
                head=head % self.lines.p.pseudo_channels,
            )

    def _weighted(self, pair: Pair) -> None:
        """Multiply the probabilities by the values."""
        places, turn = self.lines.places, pair.turn
        self.lines.multiply(
            Mode.PV,
            [PROBABILITIES[turn]],
            [HEADS[turn]],
            request=pair.request,
            base=self.lines.p.value_base(pair.heads.start, pair.request),
            both=pair.count - 1,
            outers=1,
            rounds=1,
            inputs=[places.words(places.probability_inputs(turn, pump)) for pump in range(2)],
            sums=[places.results(places.heads(turn, pump)) for pump in range(2)],
        )

    def _outputs(self, pair: Pair) -> None:
        """Scale the heads' sums to numbers in binary32."""
        p, places = self.lines.p, self.lines.places
        for head, pump in pair.queries:
            first = head * p.group_size + pair.first + pump
            self.lines.operate(
                NpuOperation.HEAD,
                p.head_size,
                [HEADS[pair.turn]],
                (),
                sums=places.heads(pair.turn, pump),
                target=places.attended(pair.pump) + places.slices(first * p.head_size),
                scalar=2 * pair.turn + pump,
                head=head % p.pseudo_channels,
            )

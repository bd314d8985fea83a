"""The attention instructions: pairs of a group's query heads, request by request."""

from dataclasses import dataclass
from itertools import product

from hdl.p3llm.control.pair import Pair, Scores
from hdl.p3llm.control.schedule import HEAD_SUMS, PROBABILITIES, Buffer, Schedule
from hdl.p3llm.instructions import (
    MemoryInstruction,
    MemoryOperation,
    NpuInstruction,
    NpuOperation,
)
from hdl.p3llm.pim.operand_decoder import Mode


@dataclass(frozen=True)
class Attention:
    """Attention instructions of the requests that share the weights.

    Pairs overlap: while the units multiply one pair's queries by the keys, the NPU computes the
    softmax of the previous pair, also across requests.

    Parameters
    ----------
    schedule : Schedule
        The instruction lists, to which the instructions are added.
    pairs : list[Pair]
        All pairs, in order of execution.
    scores : Scores
        The instructions of Q K^T and softmax.
    """

    schedule: Schedule
    pairs: list[Pair]
    scores: Scores

    @property
    def early(self) -> list[Pair]:
        """Pairs whose queries have a place while those of other pairs are still computed."""
        return [pair for pair in self.pairs[:2] if pair.pump == 0]

    def attend(self) -> None:
        """Add all pairs; the first request's codes and `early` queries are already quantised."""
        pairs, scores = self.pairs, self.scores
        # There are places for the vectors of two pairs: one pair's scores are computed while the
        # other's wait for the softmax.
        for number, pair in enumerate(pairs[:2]):
            if pair not in self.early:
                self.codes(pair)
                scores.queries(pair)
            self._append(pair)
            if number == 0:
                scores.multiply(pair)
        for number, pair in enumerate(pairs):
            for following in pairs[number + 1 : number + 2]:
                scores.multiply(following)
            # A new head's token is written while the NPU computes the probabilities that the next
            # product needs.
            for following in pairs[number + 2 : number + 3]:
                self.codes(following)
                self._append(following)
            scores.probabilities(pair)
            # The queries of the pair after next use the place of this pair's queries.
            for following in pairs[number + 2 : number + 3]:
                scores.queries(following)
            self._weighted(pair)
            # One pair late, so that the NPU does not wait for sums that have just been started.
            if number > 0:
                self._outputs(pairs[number - 1])
        self._outputs(pairs[-1])

    def factors(self, pump: int) -> None:
        """Load a request's smoothing factors into the smoothing unit."""
        p, places = self.schedule.p, self.schedule.places
        for head in range(p.kv_heads):
            first = places.spread(places.smoothing(pump))
            self.schedule.operate(
                NpuInstruction(
                    operation=NpuOperation.SMOOTHING,
                    count=places.slices(p.head_size),
                    factors=first + places.slices(head * p.head_size),
                    head=head,
                ),
                reads=[Buffer.SMOOTHING],
            )

    def codes(self, pair: Pair) -> None:
        """At the first pair of a request, smooth and quantise its keys; quantise its values.

        Those of all heads, which wait in the append sequencer.
        """
        p, places = self.schedule.p, self.schedule.places
        if not pair.opens or pair.heads.start > 0:
            return
        # All queries of the previous request have been smoothed. The first request's factors were
        # loaded during its linear layer.
        if pair.pump > 0:
            self.factors(pair.pump)
        parts = ((NpuOperation.KEY, 0), (NpuOperation.VALUE, p.kv_heads))
        for head, (operation, skipped) in product(range(p.kv_heads), parts):
            source = places.projected(pair.pump)
            self.schedule.operate(
                NpuInstruction(
                    operation=operation,
                    count=places.slices(p.head_size),
                    source=source + places.slices((skipped + head) * p.head_size),
                    head=head,
                ),
                writes=[Buffer.CODES],
                request=pair.request,
            )

    def _append(self, pair: Pair) -> None:
        """Append the keys and values of new heads, to which the token attends as well."""
        p = self.schedule.p
        if pair.opens:
            self.schedule.access(
                MemoryInstruction(
                    operation=MemoryOperation.APPEND,
                    base=p.key_base(pair.heads.start, pair.request),
                    values=p.value_base(pair.heads.start, pair.request),
                ),
                reads=[Buffer.CODES],
                request=pair.request,
            )

    def _weighted(self, pair: Pair) -> None:
        """Multiply the probabilities by the values."""
        places, turn = self.schedule.places, pair.turn
        first, second = (places.probability_inputs(turn, pump) for pump in range(2))
        self.schedule.access(
            MemoryInstruction(
                mode=Mode.PV,
                base=self.schedule.p.value_base(pair.heads.start, pair.request),
                both=pair.count - 1,
                groups=1,
                rounds=1,
                inputs=(places.words(first), places.words(second)),
                sums=(
                    places.results(places.head_sums(turn, 0)),
                    places.results(places.head_sums(turn, 1)),
                ),
            ),
            reads=[PROBABILITIES[turn]],
            writes=[HEAD_SUMS[turn]],
            request=pair.request,
        )

    def _outputs(self, pair: Pair) -> None:
        """Scale the heads' sums to numbers in binary32."""
        p, places = self.schedule.p, self.schedule.places
        for head, pump in pair.queries:
            first = head * p.group_size + pair.first + pump
            self.schedule.operate(
                NpuInstruction(
                    operation=NpuOperation.HEAD_OUTPUT,
                    count=places.slices(p.head_size),
                    sums=places.head_sums(pair.turn, pump),
                    target=places.attended(pair.pump) + places.slices(first * p.head_size),
                    scale_index=2 * pair.turn + pump,
                    head=head % p.pseudo_channels,
                ),
                reads=[HEAD_SUMS[pair.turn]],
            )

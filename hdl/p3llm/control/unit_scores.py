"""The instructions of Q K^T in the compute units, and of the softmax."""

from dataclasses import dataclass

from hdl.p3llm.control.pair import Pair
from hdl.p3llm.control.schedule import PROBABILITIES, QUERIES, SCALES, SCORES, Schedule
from hdl.p3llm.instructions import MemoryInstruction, NpuInstruction, NpuOperation
from hdl.p3llm.pim.operand_decoder import Mode


@dataclass(frozen=True)
class UnitScores:
    """The NPU quantises queries, the units multiply them by the keys (Figure 6 (a, b)).

    Parameters
    ----------
    schedule : Schedule
        The instruction lists, to which the instructions are added.
    """

    schedule: Schedule

    def queries(self, pair: Pair) -> None:
        """Rotate, smooth and quantise the queries."""
        p, places = self.schedule.p, self.schedule.places
        for head, pump in pair.queries:
            first = 2 * p.kv_heads + head * p.group_size + pair.first + pump
            source = places.projected(pair.pump) + places.slices(first * p.head_size)
            self.schedule.operate(
                NpuInstruction(
                    operation=NpuOperation.QUERY,
                    count=places.slices(p.head_size),
                    source=source,
                    target=places.query_inputs(pair.turn, pump),
                    scale_index=2 * pair.turn + pump,
                    head=head,
                ),
                writes=[QUERIES[pair.turn]],
                request=pair.request,
            )

    def multiply(self, pair: Pair) -> None:
        """Multiply the queries by the keys; the head's first pair also reads the scales."""
        p, places, turn, side = self.schedule.p, self.schedule.places, pair.turn, pair.side
        first, second = (places.query_inputs(turn, pump) for pump in range(2))
        self.schedule.access(
            MemoryInstruction(
                mode=Mode.QK,
                base=p.key_base(pair.heads.start, pair.request),
                both=pair.count - 1,
                # The scales remain for a head's other pairs; the next head's use the other place.
                scales_held=not pair.opens,
                groups=1,
                inputs=(places.words(first), places.words(second)),
                sums=(
                    places.results(places.scores(turn, 0)),
                    places.results(places.scores(turn, 1)),
                ),
                columns=places.scale_columns(side),
            ),
            reads=[QUERIES[turn]],
            writes=[SCORES[turn]] + [SCALES[side]] * pair.opens,
            request=pair.request,
        )

    def probabilities(self, pair: Pair) -> None:
        """Compute scores and their softmax from the units' sums."""
        places, turn, side = self.schedule.places, pair.turn, pair.side
        for head, pump in pair.queries:
            self.schedule.operate(
                NpuInstruction(
                    operation=NpuOperation.SCORES,
                    target=places.probability_inputs(turn, pump),
                    sums=places.scores(turn, pump),
                    factors=places.key_scales(side),
                    value_scales=places.value_scales(side),
                    scale_index=2 * turn + pump,
                    head=head % self.schedule.p.pseudo_channels,
                ),
                reads=[SCORES[turn], SCALES[side]],
                writes=[PROBABILITIES[turn]],
                request=pair.request,
            )

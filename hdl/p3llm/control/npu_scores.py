"""The instructions of Q K^T in the NPU, if keys are quantised before the rotary embedding."""

from dataclasses import dataclass

from hdl.p3llm.control.pair import Pair
from hdl.p3llm.control.schedule import PROBABILITIES, SCALES, Buffer, Schedule
from hdl.p3llm.instructions import MemoryInstruction, NpuInstruction, NpuOperation
from hdl.p3llm.pim.operand_decoder import Mode


@dataclass(frozen=True)
class NpuScores:
    """The memory side reads a head's keys once for all its queries; the NPU rotates them.

    There are places for the keys of two heads: the next head's keys are read while the NPU rotates
    those of the current one (P3-LLM, Section V-A).

    Parameters
    ----------
    schedule : Schedule
        The instruction lists, to which the instructions are added.
    """

    schedule: Schedule

    def queries(self, pair: Pair) -> None:
        """Do nothing: each query is rotated immediately before its product with the keys."""

    def multiply(self, pair: Pair) -> None:
        """Read the keys of new heads, their zero points, and the scales of keys and values."""
        p, places, side = self.schedule.p, self.schedule.places, pair.side
        if pair.opens:
            self.schedule.access(
                MemoryInstruction(
                    mode=Mode.QK,
                    base=p.key_base(pair.heads.start, pair.request),
                    groups=1,
                    inputs=(places.keys(side), places.zeros(side)),
                    columns=places.scale_columns(side),
                ),
                writes=[SCALES[side]],
                request=pair.request,
            )

    def probabilities(self, pair: Pair) -> None:
        """Rotate each query, then compute scores from it and the keys, and their softmax."""
        p, places, turn, side = self.schedule.p, self.schedule.places, pair.turn, pair.side
        for head, pump in pair.queries:
            first = 2 * p.kv_heads + head * p.group_size + pair.first + pump
            factors = places.spread(places.smoothing(pair.pump))
            self.schedule.operate(
                NpuInstruction(
                    operation=NpuOperation.QUERY,
                    count=places.slices(p.head_size),
                    source=places.projected(pair.pump) + places.slices(first * p.head_size),
                    factors=factors + places.slices(head * p.head_size),
                    head=head,
                ),
                reads=[Buffer.SMOOTHING],
                request=pair.request,
            )
            self.schedule.operate(
                NpuInstruction(
                    operation=NpuOperation.SCORES,
                    target=places.probability_inputs(turn, pump),
                    source=places.keys(side),
                    sums=places.zeros(side),
                    factors=places.key_scales(side),
                    value_scales=places.value_scales(side),
                    scale_index=2 * turn + pump,
                    head=head % p.pseudo_channels,
                ),
                reads=[SCALES[side]],
                writes=[PROBABILITIES[turn]],
                request=pair.request,
            )

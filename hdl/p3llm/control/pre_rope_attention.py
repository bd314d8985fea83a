"""The attention instructions if keys are quantised before the rotary embedding."""

from dataclasses import dataclass

from hdl.p3llm.control.attention import Attention, Pair
from hdl.p3llm.control.lines import PROBABILITIES, SCALES, Shared
from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.pim.operand_decoder import Mode


@dataclass(frozen=True)
class PreRopeAttention(Attention):
    """`Attention`, with Q K^T in the NPU: a head's keys are read once for all its queries.

    There are places for the keys of two heads: the next head's keys are read while the NPU rotates
    those of the current one.
    """

    def _queries(self, pair: Pair) -> None:
        """Do nothing: each query is rotated immediately before its product with the keys."""

    def _scores(self, pair: Pair) -> None:
        """Read the keys of new heads, their zero points, and the scales of keys and values."""
        places, side = self.lines.places, pair.side
        if pair.opens:
            self.lines.multiply(
                Mode.QK,
                (),
                [SCALES[side]],
                request=pair.request,
                base=self.lines.p.key_base(pair.heads.start, pair.request),
                outers=1,
                inputs=[places.keys(side), places.zeros(side)],
                columns=[
                    places.columns(scales)
                    for scales in (places.key_scales(side), places.value_scales(side))
                ],
            )

    def _shares(self, pair: Pair) -> None:
        """Rotate each query, then compute probabilities from the query and the keys."""
        p, places, turn, side = self.lines.p, self.lines.places, pair.turn, pair.side
        for head, pump in pair.queries:
            first = 2 * p.kv_heads + head * p.group_size + pair.first + pump
            factors = places.spread(places.smoothing(pair.pump))
            self.lines.operate(
                NpuOperation.QUERY,
                p.head_size,
                [Shared.SMOOTHING],
                request=pair.request,
                source=places.projected(pair.pump) + places.slices(first * p.head_size),
                factors=factors + places.slices(head * p.head_size),
                head=head,
            )
            self.lines.operate(
                NpuOperation.SCORES,
                0,
                [SCALES[side]],
                [PROBABILITIES[turn]],
                request=pair.request,
                target=places.probability_inputs(turn, pump),
                source=places.keys(side),
                sums=places.zeros(side),
                factors=places.key_scales(side),
                value_scales=places.value_scales(side),
                scalar=2 * turn + pump,
                head=head % p.pseudo_channels,
            )

"""Attention's lines where keys are quantised before the rotary embedding."""

from dataclasses import dataclass

from hdl.p3llm.control.attention import Attention, Pair
from hdl.p3llm.npu.npu_instructions import NpuOperation
from hdl.p3llm.pim.operand_decoder import Mode


@dataclass(frozen=True)
class PreRopeAttention(Attention):
    """`Attention`, but that a head's keys are read, once, and all its queries meet them in the NPU.

    Keys of two heads have places: the next head's are read while the NPU turns those of one.
    """

    def _queries(self, pair: Pair) -> None:
        """Leave the queries: each is turned when it meets the keys."""

    def _scores(self, pair: Pair) -> None:
        """Read the keys of new heads, their zero points, and both scales of their tokens."""
        places, side = self.lines.places, pair.side
        if pair.opens:
            self.lines.multiply(
                Mode.QK,
                (),
                [f"scales_{side}"],
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
        """Turn each query, then make probabilities of it and the keys."""
        p, places, turn, side = self.lines.p, self.lines.places, pair.turn, pair.side
        for head, pump in pair.queries:
            first = 2 * p.kv_heads + head * p.members + pair.first + pump
            factors = places.spread(places.smoothing(pair.pump))
            self.lines.operate(
                NpuOperation.QUERY,
                p.head_size,
                ["smoothing"],
                request=pair.request,
                source=places.projected(pair.pump) + places.slices(first * p.head_size),
                factors=factors + places.slices(head * p.head_size),
                head=head,
            )
            self.lines.operate(
                NpuOperation.SCORES,
                0,
                [f"scales_{side}"],
                [f"probabilities_{turn}"],
                request=pair.request,
                target=places.probability_inputs(turn, pump),
                source=places.keys(side),
                sums=places.zeros(side),
                factors=places.key_scales(side),
                value_scales=places.value_scales(side),
                scalar=2 * turn + pump,
                head=head % p.pseudo_channels,
            )

"""Work for the array with its evictor: decode steps of SmolLM2 as loads, vectors and wavefronts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from golden.arith.requantiser import requantised
from golden.kelle.array.evicting_array import SCORE_FRACTION, quantised_scores
from golden.kelle.array.systolic_array import TilePass, tiles
from golden.kelle.array.tile_accumulator import TileAccumulatorModel
from golden.kelle.eviction.aerp import AerpParameters, DecodeStep, replay
from golden.kelle.eviction.systolic_evictor import Wavefront
from golden.llm import Trace, open_trace
from hdl.kelle.array.evicting_array import EvictingArrayParameters
from hdl.kelle.eviction.systolic_evictor import ScoreSource, SystolicEvictorParameters
from testbenches.kelle.array.tile_passes import pack_weights
from testbenches.kelle.eviction.evictor_wavefronts import policy_for, step_wavefronts
from testbenches.packing import pack, to_integers

LAYER = 14
GROUP = 3
"""Query heads per key/value head of SmolLM2."""

LONG = 1024
"""Number of slots from which on a budget needs a longer text than the prose."""


def open_layer(slots: int) -> Trace:
    """Return the tensors of one layer over a text that fills the slots."""
    if slots >= LONG:
        return open_trace(text="news", tokens=slots + 64, layers=(LAYER,))
    return open_trace(text="prose", tokens=640, layers=(0, LAYER, 29))


def few_slots(p: EvictingArrayParameters) -> int:
    """Return a budget that is searched quickly."""
    return min(p.evictor.slots, 4 * p.rows)


def workload(p: EvictingArrayParameters) -> tuple[int, tuple[int, ...]]:
    """Return how many decode steps of which heads take a few seconds."""
    return (6, (0,)) if p.evictor.slots >= LONG else (32, (0, 1, 2))


@dataclass
class Work:
    """Inputs of the streams and expected outputs, in the order of the vectors.

    Members
    -------
    beats, vectors : list[int]
        Packed payloads.
    scored : list[int]
        Numbers of the vectors that give scores to the evictor.
    wavefronts : list[Wavefront]
        Header and state of each of these vectors in the evictor.
    done : list[int]
        Numbers of the vectors that give results.
    values, indices : list
        Those results, [rows] each, and the vectors' numbers among their kind.
    scales : list[tuple[int, int]]
        Scale and shift of every result.
    """

    beats: list[int]
    vectors: list[int]
    scored: list[int]
    wavefronts: list[Wavefront]
    done: list[int]
    values: list[np.ndarray]
    indices: list[int]
    scales: list[tuple[int, int]]


class Builder:
    """Convert output tiles to loads and vectors, and model the accumulators' results."""

    def __init__(self, p: EvictingArrayParameters) -> None:
        self.p = p
        # Query heads per key/value head: SmolLM2's, or as many as there are accumulators.
        self.queries = min(GROUP, p.vectors)
        self.model = TileAccumulatorModel(p.accumulator, p.rows)
        self.work = Work([], [], [], [], [], [], [], [])

    def add(
        self,
        passes: list[TilePass],
        scale: int,
        shift: int,
        wavefronts: list[Wavefront] | None = None,
        *,
        indices: Sequence[int] | None = None,
    ) -> None:
        """Add the passes of one output tile; `wavefronts` belong to the vectors of the last pass.

        Each vector has accumulators of its own, unless `indices` assigns them.
        """
        p, work = self.p, self.work
        for number, item in enumerate(passes):
            work.beats += pack_weights(item.weights, p.array)
            first, last = number == 0, number == len(passes) - 1
            count = len(item.vectors)
            places = list(indices or range(count))
            for which, (index, sums) in enumerate(zip(places, item.sums, strict=True)):
                totals = self.model.add(sums, index=index, first=first, high=item.high)
                if last:
                    work.done.append(len(work.vectors) + which)
                    work.values.append(requantised(totals, scale, shift))
                    work.indices.append(index)
                    work.scales.append((scale, shift))
            if last and wavefronts:
                work.scored += [len(work.vectors) + index for index in range(count)]
                work.wavefronts += wavefronts
            with_last = wavefronts if last else None
            work.vectors += self._pack(item, first, last, places, with_last)

    def _pack(
        self,
        item: TilePass,
        first: bool,
        last: bool,
        places: list[int],
        wavefronts: list[Wavefront] | None,
    ) -> list[int]:
        p, count = self.p, len(item.vectors)
        names = [name for name, _field in p.evictor.wavefront_layout]
        tag = {
            "step": {
                "first": np.full(count, int(first)),
                "high": np.full(count, int(item.high)),
                "index": np.array(places),
            },
            "done": np.full(count, int(last)),
            "score": np.full(count, int(wavefronts is not None)),
            "wavefront": {
                name: np.array([int(getattr(wavefront, name)) for wavefront in wavefronts])
                if wavefronts
                else np.zeros(count, np.int64)
                for name in names
            },
        }
        fields = {
            "elements": item.vectors,
            "transposed": np.full(count, int(item.transposed)),
            "swap": (np.arange(count) == 0).astype(int),
            "unsigned_weights": np.full(count, int(item.unsigned_weights)),
            "tag": tag,
        }
        return to_integers(pack(p.vector_layout, fields))


def step_work(
    builder: Builder,
    step: DecodeStep,
    evictor: SystolicEvictorParameters,
    queries: np.ndarray,
    keys: np.ndarray,
    scale: int,
    shift: int,
) -> None:
    """Add one decode step: every tile of slots, then the arriving token's own score."""
    p = builder.p
    valid = step.positions >= 0
    cached = np.where(valid[:, np.newaxis], keys[step.positions], 0)
    arriving = np.zeros((p.rows, keys.shape[1]), np.int64)
    arriving[step.slot % p.rows] = keys[step.now]
    wavefronts = list(step_wavefronts(step, evictor))
    moving = queries[:, step.now]
    stationary = np.concatenate([cached, arriving])
    for first, passes in tiles(stationary, moving, p.array, transposed=True, wide=True):
        number = first // p.rows * len(moving)
        builder.add(passes, scale, shift, wavefronts[number : number + len(moving)])


@cache
def head_operands(
    kv_head: int, slots: int, channels: int, count: int
) -> tuple[np.ndarray, np.ndarray, int, int, np.ndarray]:
    """Return queries, keys, scale and shift of a key/value head, and its scores as real numbers.

    The queries are those of the first `count` query heads.
    """
    trace = open_layer(slots)
    group = trace.heads // trace.kv_heads
    heads = [trace.attention_trace(LAYER, kv_head * group + head) for head in range(count)]
    queries, keys, scale, shift, scores = quantised_scores(
        np.stack([head.q[:, :channels] for head in heads]), heads[0].k[:, :channels]
    )
    real = scores / float(1 << SCORE_FRACTION)
    real[:, *np.triu_indices(real.shape[1], k=1)] = -np.inf
    return queries, keys, scale, shift, real


def decode_work(
    builder: Builder, steps: int, kv_heads: tuple[int, ...], slots: int
) -> tuple[list[int], str]:
    """Add SmolLM2's decode steps; return the policy's victims, and a description of the work."""
    evictor, victims = replace(builder.p.evictor, slots=slots), []
    policy: AerpParameters = policy_for(evictor)
    for kv_head in kv_heads:
        # Two channel tiles for any array: all of a head's channels at 32 rows.
        operands = head_operands(kv_head, slots, 2 * builder.p.rows, builder.queries)
        queries, keys, scale, shift, real = operands
        first = slots - slots // 8
        for step in replay(
            real, policy, first=first, steps=steps, source=ScoreSource.RAW, evictor=evictor
        ):
            step_work(builder, step, evictor, queries, keys, scale, shift)
            victims.append(step.victim)
    return victims, f"SmolLM2 layer {LAYER}, {len(kv_heads)} KV heads, {steps} steps each"

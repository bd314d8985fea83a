"""LAD's tile, bit-exact: the decode steps of heads, through all modules, and their traffic."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.lad.ac.attention_computation_module import Corrections, attention
from golden.lad.apid.active_position_module import identify
from golden.lad.eas.attention_score_module import attention_scores, key_centre, large_modes
from golden.lad.md.mode_discrepancy_module import Positions, discrepancies
from hdl.lad.parameters import LadTileParameters

Codes = NDArray[np.uint16]
Integers = NDArray[np.int64]


@dataclass(kw_only=True, eq=False)
class Head:
    """Data of one head in the memory outside.

    Members
    -------
    keys, values : array [slots, d]
        FP16 codes of the KV cache.
    centres, norms, ratios, modes, counts : array [slots]
        The fields of G.
    counters : array [slots, intervals]
        CNT: number of steps in which a position was in each interval; the mode's counter is stale.
    caches : array [d + 1, d + 2]
        A to F in the layout of the attention computation module.
    length : int
        Number of positions.
    latest : array
        Active positions of the last step.
    """

    keys: Codes
    values: Codes
    centres: Integers
    norms: Codes
    ratios: Codes
    modes: Integers
    counts: Integers
    counters: Integers
    caches: NDArray[np.uint64]
    length: int = 0
    latest: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def empty(cls, p: LadTileParameters) -> "Head":
        """Return a head without positions."""
        size, slots = p.vector.head_size, p.slots
        return cls(
            keys=np.zeros((slots, size), np.uint16),
            values=np.zeros((slots, size), np.uint16),
            centres=np.zeros(slots, np.int64),
            norms=np.zeros(slots, np.uint16),
            ratios=np.zeros(slots, np.uint16),
            modes=np.zeros(slots, np.int64),
            counts=np.zeros(slots, np.int64),
            counters=np.zeros((slots, p.table.intervals), np.int64),
            caches=np.zeros((size + 1, size + 2), np.uint64),
        )


@dataclass(frozen=True)
class Moved:
    """Rows that a step reads and writes outside.

    Members
    -------
    groups : int
        Groups of G, read and written.
    keys : int
        Keys of C and M, read, without the new one.
    active : int
        Keys, values and counters of J, read; counters of J, written.
    caches : int
        Columns of the caches, read and written.
    """

    groups: int
    keys: int
    active: int
    caches: int


@dataclass(frozen=True)
class Step:
    """Result of a step.

    Members
    -------
    output : array [d]
        FP16 codes of the attention output.
    not_positive : bool
        The denominator was not above 0.
    maximum : int
        FP16 code of max_s.
    centres, precise : int
        Sizes of C, the key centres, and of M, the positions with exact scores.
    fetched, active, changed : array
        Positions whose keys stage 1 fetched; J; U. Ascending.
    moved : Moved
        Rows that the step moved.
    ahead, hits : int
        Positions to prefetch: in a group's first step the last J of all its heads. Positions of J
        that were on chip, prefetched or kept by a previous head.
    crowded : int
        Positions that the next heads of the group do not find on chip because there was no room.
    """

    output: Codes
    not_positive: bool
    maximum: int
    centres: int
    precise: int
    fetched: Integers
    active: Integers
    changed: Integers
    moved: Moved
    ahead: int
    hits: int
    crowded: int


def equation_7(p: LadTileParameters, step: Step) -> float:
    """Return the interval of steps by the paper's Equation 7, in cycles.

    The paper's 128 is the head size d, of which its vector units rescale as many scores per cycle.
    """
    n = int(step.active[-1]) + 1
    size, active, changed = p.vector.head_size, len(step.active), len(step.changed)
    return max(
        (2 * step.centres + n / size + step.precise) / 2,
        n / p.apid.lanes,
        active / p.md.lanes,
        (size + active + changed * size + 3 * changed) / 3,
    )


def schedule_bound(p: LadTileParameters, step: Step) -> int:
    """Return the least interval of steps in the hardware's schedule, in cycles.

    It differs from Equation 7 in each stage. A key is fetched and multiplied once, also if it is
    both a centre and in M. Active positions pass stages 4 and 5 one by one. An updated position
    takes a pass over all columns, and the columns of a step are loaded and written out one by one.
    """
    n = int(step.active[-1]) + 1
    active, changed = len(step.active), len(step.changed)
    return max(
        # Load, the new key, all other keys, and the division of the norms.
        len(step.fetched) + 3,
        -(-n // p.apid.lanes),
        active,
        p.ac.groups + -(-active // p.ac.lanes) + changed * p.ac.pass_cycles,
        p.ac.columns,
    )


@dataclass(kw_only=True, eq=False)
class LadTile:
    """A tile and its heads; also a model of several tiles.

    Parameters
    ----------
    parameters : LadTileParameters
        Dimensions of the tile.
    tiles : int
        Number of tiles to which the heads are assigned round-robin.

    Members
    -------
    heads : list of Head
        The data of each head.
    kept : dict[int, array]
        Per tile: positions whose rows a group's heads have kept on chip so far; ascending.
    """

    parameters: LadTileParameters
    heads: list[Head] = field(default_factory=list)
    tiles: int = 1
    kept: dict[int, Integers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create empty heads if none are given."""
        p = self.parameters
        self.heads = self.heads or [Head.empty(p) for _ in range(p.stored_heads)]

    def step(self, number: int, query: Codes, key: Codes, value: Codes) -> Step:
        """Compute one decode step of a head: stages 1 to 6, and the write-back.

        Parameters
        ----------
        number : int
            Index of the head.
        query, key, value : array [d]
            FP16 codes; the query is divided by the square root of d.
        """
        p, head = self.parameters, self.heads[number]
        new = head.length
        n = head.length = new + 1
        head.keys[new], head.values[new] = key, value
        head.modes[new] = head.counts[new] = 0
        head.counters[new] = 0
        intervals, recent = p.table.intervals, p.recent

        # Stages 1 and 2: the keys of C and M, scores, the centre of the new key.
        precise = large_modes(head.modes[:n], intervals=intervals, recent=recent)
        centres = np.nonzero(head.centres[:new] == np.arange(new))[0]
        fetched = np.union1d(centres, np.nonzero(precise[:-1])[0]).astype(np.int64)
        rows = np.append(fetched, new)
        scored = attention_scores(
            query, head.keys[rows], head.centres[:n], head.ratios[:n], precise, rows
        )
        found = key_centre(key, head.keys[centres], centres, head.norms[centres])
        head.centres[new] = new if found.centre < 0 else found.centre
        head.norms[new], head.ratios[new] = found.norm, found.ratio

        # Stage 3: active positions; the counts of all others are incremented.
        identified = identify(
            scored.scores,
            scored.maximum,
            head.modes[:n],
            head.counts[:n],
            table=p.table,
            recent=recent,
        )
        active = np.nonzero(identified.active)[0]
        head.counts[:n] = identified.counts

        # Stages 4 and 5: exact scores, counters, modes, coefficients.
        before = Positions(
            head.modes[active],
            head.counts[active],
            head.counters[active],
            active >= n - recent,
            active == n - recent,
        )
        changes = discrepancies(query, head.keys[active], scored.maximum, before, table=p.table)
        head.modes[active], head.counts[active] = changes.mode, changes.count
        head.counters[active] = changes.counters

        # Stage 6: the output, and the updated caches.
        corrections = Corrections(
            changes.alpha_score,
            changes.alpha,
            changes.beta,
            changes.update,
            head.keys[active],
            head.values[active],
        )
        computed = attention(
            head.caches,
            query,
            scored.maximum,
            corrections,
            cache_format=p.ac.cache_format,
            lanes=p.ac.lanes,
            interleaved=p.ac.cache_stages,
            updates=p.ac.updates,
        )
        head.caches = computed.caches
        ahead, hits, crowded = self._union(number, active)
        head.latest = active
        moved = Moved(-(-n // p.apid.lanes), len(fetched), len(active), p.ac.columns)
        return Step(
            computed.output,
            computed.not_positive,
            scored.maximum,
            len(centres),
            int(precise.sum()),
            fetched,
            active,
            active[changes.update],
            moved,
            ahead,
            hits,
            crowded,
        )

    def _union(self, number: int, active: Integers) -> tuple[int, int, int]:
        """Return the numbers of prefetched rows, of rows of J on chip, and of rows without room.

        Rows on chip are kept until the group's last head. Of the other rows the lowest positions
        are kept for which there is room.
        """
        p = self.parameters
        place, tile = number // self.tiles % p.shared, number % self.tiles
        kept = listed = self.kept.get(tile, np.zeros(0, np.int64))
        ahead = 0
        if place == 0:
            group = self.heads[number : number + p.shared * self.tiles : self.tiles]
            listed = np.unique(np.concatenate([head.latest for head in group]))
            ahead, kept = len(listed), kept[:0]
        new = np.setdiff1d(np.union1d(listed, active), kept)
        room, follows = p.kept - len(kept), place < p.shared - 1
        self.kept[tile] = np.union1d(kept, new[:room]) if follows else kept[:0]
        crowded = max(len(new) - room, 0) if follows else 0
        return ahead, len(np.intersect1d(active, listed)), crowded

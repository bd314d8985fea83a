"""The tile's model: against float64, against recomputed caches, its counters; parameters."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.arith.float_values import codes, values
from golden.lad.lad_tile import LadTile, Moved, Step, equation_7, schedule_bound
from golden.lad.locality_aware_attention import LocalityAwareHead
from golden.lad.traffic import traffic
from golden.study.lad_cycles import Pipeline, Sizes
from hdl.catalog import entry_named
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.apid.apid_parameters import ActivePositionModuleParameters
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.exp_intervals import IntervalParameters
from hdl.lad.interval_table import EIGHT, TWELVE
from hdl.lad.linear.linear_module import LinearModuleParameters
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.parameters import LadTileParameters
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters
from hdl.settings import with_values
from testbenches.lad.vectors import LAYERS, head_vectors
from testbenches.quick_form import quick_form
from testbenches.runner import Request, simulate

STEPS = 200


def parameters() -> LadTileParameters:
    """Return SmolLM2's head, with room for some hundred positions."""
    vector = VectorProcessingUnitParameters(head_size=64)
    apid = ActivePositionModuleParameters(slots=256, table=TWELVE)
    return LadTileParameters(
        stored_heads=1,
        eas=AttentionScoreModuleParameters(vector=vector, apid=apid),
        md=ModeDiscrepancyModuleParameters(vector=vector, slots=256, table=TWELVE),
        ac=AttentionComputationModuleParameters(vector=vector, updates=16),
        linear=LinearModuleParameters(vector=vector),
        sfm=SpecialFunctionModuleParameters(vector=vector, hidden_size=576, lanes=4),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stored_heads": 0}, "stored_heads must be an integer from 1 to 1024, not 0"),
        ({"waiting": 3}, "waiting must be an integer from 4 to 65536, not 3"),
        ({"prefetched": 1}, "prefetched must be 0 or at least 2, not 1"),
        (
            {"shared": 3, "kept": 2, "prefetched": 2},
            "shared must be a divisor of stored_heads, not 3",
        ),
        ({"shared": 2, "kept": 2}, "shared must be 1 without prefetched, not 2"),
        (
            {"shared": 2, "prefetched": 2},
            "kept must be at least 1 with shared heads, and 0 without, not 0",
        ),
        ({"kept": 2}, "kept must be at least 1 with shared heads, and 0 without, not 2"),
        (
            {"md": ModeDiscrepancyModuleParameters(table=EIGHT)},
            "md.table must be that of eas.apid",
        ),
        (
            {"md": ModeDiscrepancyModuleParameters(slots=64)},
            "md.slots must be that of eas.apid, not 64",
        ),
        (
            {"linear": LinearModuleParameters(units=6)},
            "linear.units must be those of all modules, 7, not 6",
        ),
    ],
)
def test_illegal_parameters_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LadTileParameters(**change)


def test_modules_share_the_vector_unit_and_recent_positions() -> None:
    p = parameters()
    other = VectorProcessingUnitParameters(head_size=32)
    with pytest.raises(ValueError, match=re.escape("ac.vector must be that of eas")):
        replace(p, ac=replace(p.ac, vector=other))
    apid = replace(p.apid, recent=1)
    with pytest.raises(ValueError, match=re.escape("eas.apid.recent must be at least 2, not 1")):
        replace(p, eas=replace(p.eas, apid=apid))


@pytest.mark.parametrize("layer", LAYERS)
def test_decoding_is_float64_s(layer: int) -> None:
    """Compare every step of SmolLM2's decoding: active positions, modes, centres, outputs."""
    p = parameters()
    tile = LadTile(parameters=p)
    exact = LocalityAwareHead(intervals=IntervalParameters(intervals=12), size=64)
    queries, keys, vectors = (head_vectors(name, 64, layer=layer) for name in "qkv")
    errors, differ, positions = [], 0, 0
    for now in range(STEPS):
        query = codes(values(queries[now]) / 8)
        step = tile.step(0, query, keys[now], vectors[now])
        truth = exact.step(values(query), values(keys[now]), values(vectors[now]))
        differ += len(np.setxor1d(step.active, truth.active))
        positions += now + 1
        size = np.abs(truth.output).max()
        errors.append(np.abs(values(step.output) - truth.output).max() / size)
        assert not step.not_positive
    head = tile.heads[0]
    same = head.centres[:STEPS] == np.array(exact.centres.centre)
    # A score within FP16's rounding of a bound can be in the other interval, and stay there.
    assert differ < 0.01 * positions
    assert same.mean() > 0.98
    assert np.mean(head.modes[:STEPS] == np.array(exact.modes)) > 0.97
    assert np.median(errors) < 0.01
    # A position's counters add up to its age, whatever its modes were.
    counters = head.counters[:STEPS].copy()
    kept = np.arange(STEPS) < STEPS - p.recent + 1
    rows = np.nonzero(kept)[0]
    counters[rows, head.modes[rows]] = head.counts[rows]
    assert np.array_equal(counters.sum(axis=1), STEPS - np.arange(STEPS))
    _check_caches(p, head)


def _check_caches(p: LadTileParameters, head: Any) -> None:
    """A to F are those of the modes, computed at once in float64; they exclude the latest."""
    # The graduate of the last step is in the caches, with its interval of that step.
    old = np.arange(STEPS) <= STEPS - p.recent
    modes = head.modes[:STEPS]
    slopes, intercepts = (
        np.where(old, values(np.array(line))[modes], 0) for line in (p.table.a, p.table.b)
    )
    keys = np.concatenate([values(head.keys[:STEPS]), np.ones((STEPS, 1))], axis=1)
    extended = np.concatenate([values(head.values[:STEPS]), np.ones((STEPS, 1))], axis=1)
    expected = np.concatenate(
        [
            np.einsum("n,nr,nk->rk", slopes, extended, keys),
            (intercepts @ extended)[:, np.newaxis],
        ],
        axis=1,
    )
    shown = head.caches.astype(np.uint32).view(np.float32).astype(np.float64)
    # Slopes and products are rounded to FP16 before they are added in FP32.
    bound = np.einsum("n,nr,nk->rk", np.abs(slopes), np.abs(extended), np.abs(keys)).max()
    assert np.abs(shown - expected).max() < 2.0**-8 * bound


def test_heads_are_independent() -> None:
    p = entry_named("lad_tile").parameters("tiny")
    rng = np.random.default_rng(4)
    work = codes(rng.standard_normal((2, 30, 3, p.vector.head_size)))
    alone = [LadTile(parameters=p) for _ in range(2)]
    both = LadTile(parameters=p)
    for now in range(30):
        for head in range(2):
            one = alone[head].step(head, *work[head, now])
            assert np.array_equal(one.output, both.step(head, *work[head, now]).output)


def test_all_positions_can_be_active() -> None:
    """Queries change the interval of every position: J is all positions, step after step."""
    p = entry_named("lad_tile").parameters("tiny")
    tile, rng = LadTile(parameters=p), np.random.default_rng(2)
    active = 0
    for now in range(p.slots):
        sign = 1 if now % 2 else -1
        query = codes(np.full(p.vector.head_size, 3.0 * sign))
        key = codes(rng.uniform(-1, 1, p.vector.head_size))
        step = tile.step(0, query, key, key)
        active = max(active, len(step.active))
        assert len(step.active) <= now + 1
    assert active > p.slots // 2


def test_all_steps_but_the_first_can_be_prefetched() -> None:
    """The active positions of a step can be prefetched for the next; nothing else is moved."""
    p = entry_named("lad_tile").parameters("tiny")
    tile, rng = LadTile(parameters=p), np.random.default_rng(3)
    active: set[int] = set()
    for _ in range(20):
        step = tile.step(0, *codes(rng.standard_normal((3, p.vector.head_size))))
        assert step.ahead == len(active)
        assert step.hits == len(active.intersection(step.active.tolist()))
        moved = [traffic(replace(p, prefetched=rows), [step])["K, V of J"] for rows in (0, 2)]
        vain = step.ahead - step.hits
        assert moved[1] - moved[0] == vain * 2 * p.vector.head_size * 16
        active = set(step.active.tolist())


def group(p: LadTileParameters, tokens: int) -> list[list[Any]]:
    """Return the steps of each token of SmolLM2's first group, head after head."""
    size, tile = p.vector.head_size, LadTile(parameters=p)
    keys, vectors = (head_vectors(name, size, head=0) for name in "kv")
    queries = [head_vectors("q", size, head=head) for head in range(p.shared)]
    return [
        [
            tile.step(head, codes(values(own[now]) / np.sqrt(size)), keys[now], vectors[now])
            for head, own in enumerate(queries)
        ]
        for now in range(tokens)
    ]


def test_a_group_fetches_the_union_of_its_active_positions() -> None:
    """Compare with sets: no row twice, and only rows of positions active now or a token before."""
    p = replace(parameters(), stored_heads=3, prefetched=256, shared=3, kept=256)
    before: set[int] = set()
    for token in group(p, 100):
        union = set[int]().union(*(step.active.tolist() for step in token))
        fetched = sum(len(step.active) + step.ahead - step.hits for step in token)
        assert fetched == len(union | before)
        assert not any(step.crowded for step in token)
        before = union


def test_a_full_chip_keeps_the_lowest_positions() -> None:
    """Follow the list position by position: kept rows stay, rows without room are discarded."""
    p = replace(parameters(), stored_heads=3, prefetched=256, shared=3, kept=20)
    crowded, ahead = 0, set[int]()
    for token in group(p, 60):
        kept: set[int] = set()
        for place, step in enumerate(token):
            # Only the first head uses prefetched rows.
            listed = kept if place else ahead
            active = set(step.active.tolist())
            assert step.ahead == (0 if place else len(ahead))
            assert step.hits == len(listed & active)
            lost = 0
            for position in sorted((listed | active) - kept):
                if len(kept) < p.kept:
                    kept.add(position)
                else:
                    lost += 1
            # After the last head nothing is kept.
            assert step.crowded == (lost if place < 2 else 0)
            crowded += step.crowded
        ahead = set[int]().union(*(step.active.tolist() for step in token))
    assert crowded > 0


def test_the_union_of_float64_s_sets_is_as_large() -> None:
    """The share of J that a group fetches once, from decodings in float64 only."""
    p = replace(parameters(), stored_heads=3, prefetched=256, shared=3, kept=256)
    heads = [
        LocalityAwareHead(intervals=IntervalParameters(intervals=12), size=64) for _ in range(3)
    ]
    keys, vectors = (values(head_vectors(name, 64, head=0)) for name in "kv")
    queries = [values(head_vectors("q", 64, head=head)) / 8 for head in range(3)]
    exact, ours = [0, 0], [0, 0]
    for now, token in enumerate(group(p, STEPS)):
        for counts, found in (
            (ours, token),
            (
                exact,
                [
                    head.step(own[now], keys[now], vectors[now])
                    for head, own in zip(heads, queries, strict=True)
                ],
            ),
        ):
            sets = [set(step.active.tolist()) for step in found]
            counts[0] += len(set[int]().union(*sets))
            counts[1] += sum(len(one) for one in sets)
    shares = [union / all_heads for union, all_heads in (exact, ours)]
    assert shares[1] == pytest.approx(shares[0], abs=0.01)
    assert shares[1] < 0.7


@pytest.mark.parametrize(
    ("sizes", "slowest"),
    [
        # Positions, |C|, |M|, |J|, |U|; the example of the paper's sheet is the first one.
        ((4096, 300, 80, 300, 2), 356),
        ((4096, 100, 80, 300, 2), 4096 / 12),
        ((600, 10, 10, 500, 1), 253),
        ((64, 60, 40, 64, 0), 80.25),
    ],
)
def test_equation_7_is_that_of_the_paper(sizes: tuple[int, ...], slowest: float) -> None:
    length, centres, precise, active, changed = sizes
    step = Step(
        output=np.zeros(128, np.uint16),
        not_positive=False,
        maximum=0,
        centres=centres,
        precise=precise,
        fetched=np.arange(max(centres, precise)),
        active=np.arange(length - active, length),
        changed=np.arange(changed),
        moved=Moved(-(-length // 12), max(centres, precise), active, 129),
        ahead=0,
        hits=0,
        crowded=0,
    )
    p = LadTileParameters()
    assert equation_7(p, step) == pytest.approx(slowest)
    names = ("length", "centres", "exact", "active", "changed", "hits")
    counts = zip(names, (*sizes, 0), strict=True)
    terms = Pipeline().formula(Sizes(**{name: np.array([float(one)]) for name, one in counts}))
    assert equation_7(p, step) == pytest.approx(max(float(term[0]) for term in terms.values()))
    # One key or active position per cycle; 43 groups of columns per pass, whatever |U| is. The 129
    # columns of a step are loaded while those of another one are written out.
    assert schedule_bound(p, step) == max(
        max(centres, precise) + 3,
        -(-length // 12),
        active,
        43 * (1 + changed) + -(-active // 3),
        129,
    )


def test_steps_count_centres_and_exact_scores() -> None:
    """A key that is both a centre and in M is fetched once; the newest key is not fetched."""
    p = parameters()
    model = LadTile(parameters=p)
    vectors = zip(*(head_vectors(name, 64)[:40] for name in "qkv"), strict=True)
    steps = [model.step(0, *step) for step in vectors]
    for number, step in enumerate(steps):
        centres = {int(one) for one in model.heads[0].centres[:number]}
        assert step.centres == len(centres) <= len(step.fetched) <= number
        # The recent positions, the newest among them, have exact scores.
        assert min(number + 1, p.recent) <= step.precise <= number + 1
        assert len(step.fetched) <= step.centres + step.precise - 1


@pytest.mark.full
def test_members_of_centres_after_position_40_equal_the_golden_model() -> None:
    """The presets `tiny` hold 40 positions, the larger ones take long."""
    entry = entry_named("lad_tile")
    changes = {"eas.apid.slots": 128, "md.slots": 128}
    request = Request(seed=1, target=quick_form(entry.top, "tiny"), only="members|any_counts")
    result = simulate(entry, with_values(entry.parameters("tiny"), changes), request)
    assert result.passed, result.first_failure
    # Counts of inactive positions, and all counters of active ones, are at their end.
    assert min(result.facts["saturated"].values()) > 0

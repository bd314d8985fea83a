"""Test the sequence of a block of tokens: slots, lengths, the order of queries, the votes."""

from typing import Any

import numpy as np
import pytest

from hdl.catalog import entry_named
from hdl.veda.control.sequencer import Scheduler
from hdl.veda.instructions import PassKind
from hdl.veda.parameters import VedaParameters
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.stream_trial import run_streams


def instruction(p: VedaParameters, **fields: int) -> int:
    """Return an instruction; omitted fields are 0."""
    names = {name: np.array([fields.get(name, 0)]) for name, _field in p.instruction_layout}
    return to_integers(pack(p.instruction_layout, names))[0]


def run(p: VedaParameters, blocks: list[dict[str, int]], seed: int) -> dict[str, Any]:
    """Execute instructions of attention alone; return the outputs by name."""
    tokens = [fields.get("last_token", 0) + 1 for fields in blocks]
    beats = 2 * p.kv_rounds + p.rounds
    vectors = list(range(1, sum(tokens) * beats + 1))
    counts = {
        "writes": sum(tokens) * 2 * p.kv_rounds,
        "queries": sum(tokens) * p.rounds,
        "reads": sum(tokens) * 2 * p.rounds,
        "passes": sum(tokens) * 2 * p.rounds,
        "steps": sum(tokens),
    }
    sources = {
        "instructions": [instruction(p, **fields) for fields in blocks],
        "vectors": vectors,
    }
    got = run_streams(Scheduler(parameters=p), sources, counts, seed=seed)
    layouts = {
        "writes": p.write_layout,
        "queries": p.query_layout,
        "reads": p.read_layout,
        "passes": p.decoded_pass_layout,
        "steps": p.voting.step_layout,
    }
    fields = {
        name: unpack(layout, from_integers(got[name], layout.size))
        for name, layout in layouts.items()
    }
    # The vectors are numbers: each output carries the number of its beat.
    for name in ("writes", "queries"):
        item = layouts[name]["words" if name == "writes" else "item"]
        fields[name]["number"] = np.array(
            [packed >> item.offset & (1 << 16) - 1 for packed in got[name]]
        )
    return fields


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("preset", ["tiny", "tiny_wide", "tiny_two_copies"])
def test_blocks_are_split_into_tokens(preset: str, seed: int) -> None:
    p: VedaParameters = entry_named("veda").parameters(preset)
    cached = 5
    last = p.block - 1
    blocks = [
        {"load": 1, "length": cached, "last_token": last, "vote": 1},
        {"last_token": last // 2},
        {"last_token": last, "vote": 1, "evictions": 3},
    ]
    got = run(p, blocks, seed)
    slots, numbers, places, lengths, finals = [], [], [], [], []
    votes, evictions = [], []
    length, number = cached, 1
    for fields in blocks:
        tokens = fields["last_token"] + 1
        own = list(range(length, length + tokens))
        # Each beat of keys, then of values, then of queries arrives for all tokens.
        slots += own * 2 * p.kv_rounds
        number += tokens * 2 * p.kv_rounds
        numbers += range(number, number + tokens * p.rounds)
        number += tokens * p.rounds
        places += [token * p.rounds + turn for turn in range(p.rounds) for token in range(tokens)]
        for token, slot in enumerate(own):
            lengths += [slot + 1] * 2 * p.rounds
            closes = token == tokens - 1
            finals.append(closes)
            votes.append(fields.get("vote", 0))
            evictions.append(fields.get("evictions", 0) if closes else 0)
        length += tokens

    address = got["writes"]["addresses"]["line"]
    assert (address & (1 << p.slot_bits) - 1 == np.array(slots)[:, np.newaxis]).all()
    first = got["reads"]["addresses"]["line"] & (1 << p.slot_bits) - 1
    assert not first.any()
    assert got["queries"]["number"].tolist() == numbers
    assert got["queries"]["place"].tolist() == places
    assert got["queries"]["last"].sum() == len(blocks)
    assert got["passes"]["beats"].tolist() == lengths
    assert got["reads"]["beats"].tolist() == lengths
    # `final` marks exactly the last pass of scores of a block.
    kinds = got["passes"]["kind"].reshape(-1, 2 * p.rounds)
    last_scores = np.zeros_like(kinds)
    for row, kind in enumerate(kinds):
        places_of_scores = np.flatnonzero(kind == PassKind.SCORES.value)
        last_scores[row, places_of_scores[-1]] = finals[row]
    assert got["passes"]["final"].tolist() == last_scores.reshape(-1).tolist()
    steps = got["steps"]
    assert steps["length"].tolist() == lengths[:: 2 * p.rounds]
    assert steps["new_slot"].tolist() == [own - 1 for own in lengths[:: 2 * p.rounds]]
    assert steps["vote"].tolist() == votes
    assert steps["evictions"].tolist() == evictions


def test_block_after_eviction_uses_victims_slot_first() -> None:
    """The other tokens fill free slots; one token too many sets `overflow`."""
    p: VedaParameters = entry_named("veda").parameters("tiny")
    unit = Scheduler(parameters=p)
    full = p.slots - 1
    layout = p.voting.victim_layout
    victim = {name: np.array([{"slot": 4, "found": 1}.get(name, 0)]) for name, _field in layout}
    sources = {
        "instructions": [
            instruction(p, load=1, length=full - 1, evictions=1, vote=1),
            instruction(p, last_token=2),
        ],
        "vectors": list(range(1, 4 * (2 * p.kv_rounds + p.rounds) + 1)),
        "victims": to_integers(pack(layout, victim)),
    }
    seen = []
    sinks = {"writes": 8 * p.kv_rounds, "steps": 4, "passes": 8 * p.rounds, "reads": 8 * p.rounds}
    sinks |= {"queries": 4 * p.rounds, "evictions": 1}

    def watch(ctx: Any) -> None:
        seen.append(ctx.get(unit.overflow))

    got = run_streams(unit, sources, sinks, seed=1, cycle=watch)
    steps = unpack(p.voting.step_layout, from_integers(got["steps"], p.voting.step_layout.size))
    assert steps["new_slot"].tolist() == [full - 1, 4, full, full]
    assert steps["length"].tolist() == [full, full, full + 1, full + 1]
    assert seen[-1]

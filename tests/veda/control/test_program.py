"""Test the sequence of a layer: beats of a matrix, bursts of a layer, lines of the memory."""

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.veda.control.beat_counter import BeatCounter
from hdl.veda.control.program import LayerSequencer
from hdl.veda.instructions import Leave, Operation, PassKind, Space
from hdl.veda.parameters import VedaParameters
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.stream_trial import run_streams
from testbenches.veda.layer_weights import weight_lines
from tests.veda.layers import random_weights

PRESETS = ("tiny", "tiny_wide", "tiny_two_copies", "tiny_opt", "tiny_vocabulary")
MATRICES = (
    PassKind.QUERY_KEY_VALUE,
    PassKind.OUTPUT_PROJECTION,
    PassKind.GATE_UP,
    PassKind.DOWN,
)


def beats_of(p: VedaParameters, kind: PassKind, tokens: int) -> list[dict[str, int]]:
    """Return the expected marks of each beat of a matrix, by the loops of its storage order."""
    marks = [{"hold": int(token < tokens - 1)} for token in range(tokens)]
    if kind in (PassKind.QUERY_KEY_VALUE, PassKind.GATE_UP):
        rows = p.projected_rows if kind == PassKind.QUERY_KEY_VALUE else p.gated_rows
        ends = p.biases + p.hidden_size - 1
        return [
            {"first": element == 0, "last": element == ends, "load": 0, **mark}
            | {"replay": mark["hold"] * (element == ends)}
            for _row in range(rows)
            for mark in marks
            for element in range(ends + 1)
        ]
    slices = p.biases + (p.activated_slices if kind == PassKind.DOWN else p.attended_slices)
    starts = range(0, p.array_outputs, p.array.partial_sums)
    return [
        {
            "first": part == 0,
            "last": part == slices - 1,
            "load": output == start,
            "release": start == starts[-1] and part == slices - 1 and not mark["hold"],
            "replay": mark["hold"] and part == slices - 1 and output == end - 1,
            **mark,
        }
        for start in starts
        for end in (min(start + p.array.partial_sums, p.array_outputs),)
        for mark in marks
        for part in range(slices)
        for output in range(start, end)
    ]


@pytest.mark.parametrize("preset", PRESETS)
def test_counter_follows_the_lines(preset: str) -> None:
    p = entry_named("veda").parameters(preset)
    counter = BeatCounter(parameters=p)

    async def bench(ctx: Any) -> None:
        for number, kind in enumerate((*MATRICES, *MATRICES)):
            tokens = 1 + number % p.block
            ctx.set(counter.header.last_token, tokens - 1)
            ctx.set(counter.header.kind, kind)
            inner = kind in (PassKind.OUTPUT_PROJECTION, PassKind.DOWN)
            ctx.set(counter.header.by.slice, inner)
            ctx.set(counter.header.by.element, not inner)
            ctx.set(counter.header.beats, p.beats[kind])
            beats = beats_of(p, kind, tokens)
            assert len(beats) == p.beats[kind] * tokens
            used = 0
            for beat in beats:
                last = used == p.beats[kind] - 1 and not beat["hold"]
                beat |= {"begins": used == 0, "ends": last, "spent": 0}
                ctx.set(counter.moves, 0)
                await ctx.tick()
                ctx.set(counter.moves, 1)
                for name, value in beat.items():
                    assert ctx.get(getattr(counter, name)) == value
                await ctx.tick()
                used += not beat["hold"]
            ctx.set(counter.moves, 0)
            assert ctx.get(counter.spent)
            ctx.set(counter.completes, 1)
            await ctx.tick()
            ctx.set(counter.completes, 0)

    simulator = Simulator(counter)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("preset", PRESETS)
def test_layer_has_a_burst_for_its_angles_and_for_each_matrix(preset: str) -> None:
    p = entry_named("veda").parameters(preset)
    unit = LayerSequencer(parameters=p)
    # Without rotary embedding the matrices are the only bursts.
    ahead, count = int(p.rotary), 4 + p.rotary
    task = {name: np.array([0]) for name, _field in p.task_layout}
    task |= {"layer": np.array([1]), "position": np.array([7]), "leave": np.array([1])}
    task |= {"operation": np.array([Operation.LAYER.value])}
    task |= {"last_token": np.array([p.block - 1])}
    packed = to_integers(pack(p.task_layout, task))[0]
    halves = [packed | after << p.task_layout.size for after in (0, 1)]
    wanted = {"reads": count, "passes": count}
    got = run_streams(unit, {"halves": halves}, wanted, seed=1, revocable=("reads", "passes"))
    assert len(got["reads"]) == len(got["passes"]) == count

    passes = unpack(p.pass_layout, from_integers(got["passes"], p.pass_layout.size))
    kinds = (PassKind.ANGLES, *MATRICES)[1 - ahead :]
    lines = [*[p.block] * ahead, *(p.beats[kind] for kind in MATRICES)]
    assert passes["kind"].tolist() == [kind.value for kind in kinds]
    assert passes["beats"].tolist() == lines
    assert (passes["operation"] == Operation.LAYER.value).all()
    assert (passes["leave"] == 1).all()
    assert (passes["last_token"] == p.block - 1).all()

    reads = unpack(p.read_layout, from_integers(got["reads"], p.read_layout.size))
    assert reads["beats"].tolist() == lines
    addresses = reads["addresses"]
    spaces = [*[Space.ANGLES.value] * ahead, *[Space.WEIGHTS.value] * 4]
    assert (addresses["space"] == np.array(spaces)[:, np.newaxis]).all()
    assert (addresses["layer"][ahead:] == 1).all()
    for number in range(ahead, count):
        places = from_integers(addresses["line"][number].tolist(), p.weight_line.size)
        place = unpack(p.weight_line, places)
        assert (place["line"] == sum(lines[ahead:number])).all()
        assert place["channel"].tolist() == list(range(p.channels))
    if not p.rotary:
        return
    place = unpack(p.angle_line, from_integers(addresses["line"][0].tolist(), p.angle_line.size))
    assert (place["position"] == 7).all()
    assert place["part"].tolist() == [channel % p.vector_lines for channel in range(p.channels)]


def test_lm_head_follows_a_layer_that_predicts() -> None:
    """One more burst, from the space's first line; channels are stored one after the other."""
    p = entry_named("veda").parameters("tiny_vocabulary")
    task = {name: np.array([0]) for name, _field in p.task_layout}
    task |= {"layer": np.array([2]), "operation": np.array([Operation.LAYER.value])}
    halves = []
    for leave in (Leave.STAY, Leave.PREDICT, Leave.OUT):
        packed = to_integers(pack(p.task_layout, task | {"leave": np.array([leave.value])}))[0]
        halves += [packed | after << p.task_layout.size for after in (0, 1)]
    got = run_streams(
        LayerSequencer(parameters=p),
        {"halves": halves},
        {"reads": 16, "passes": 16},
        seed=1,
        revocable=("reads", "passes"),
    )
    passes = unpack(p.pass_layout, from_integers(got["passes"], p.pass_layout.size))
    plain = [PassKind.ANGLES, *MATRICES]
    kinds = [*plain, *plain, PassKind.VOCABULARY, *plain]
    assert passes["kind"].tolist() == [kind.value for kind in kinds]
    reads = unpack(p.read_layout, from_integers(got["reads"], p.read_layout.size))
    assert passes["beats"].tolist() == reads["beats"].tolist()
    rows = -(-p.vocabulary_size // p.row_elements)
    assert reads["beats"][10] == rows * p.hidden_size
    address = {name: part[10] for name, part in reads["addresses"].items()}
    assert (address["space"] == Space.VOCABULARY.value).all()
    bits = p.address_layout["line"].width
    place = address["line"] | address["layer"] << bits
    step = 1 << (rows * p.hidden_size - 1).bit_length()
    assert place.tolist() == [channel * step for channel in range(p.channels)]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_weight_is_stored_once(preset: str) -> None:
    """Each of a layer's weights is stored once, and zeros where a lane has no head."""
    p = entry_named("veda").parameters(preset)
    weights = random_weights(p, 0)
    lines = weight_lines(p, weights)
    assert lines.shape == (sum(p.beats.values()), p.channels, p.array.plane_width)
    whole = np.concatenate([matrix.reshape(-1) for matrix in vars(weights).values()])
    assert whole.all()
    stored = np.sort(lines.reshape(-1))
    assert np.array_equal(stored[stored != 0], np.sort(whole))

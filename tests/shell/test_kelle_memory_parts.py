"""Address generators of Kelle with the AXI shell: instructions, hidden states, requested inputs."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.kelle.edram.kv_edram import values_of, vector_rows
from golden.shell.kelle_axi import KelleProgram, input_place
from hdl.catalog import entry_named
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from hdl.shell.kelle_commands import KelleCommands
from hdl.shell.layer_states import LayerStates
from hdl.shell.vector_rows import VectorRows
from testbenches.packing import from_integers, pack, to_integers, unpack
from tests.shell.part_streams import send, simulated, take

pytestmark = pytest.mark.depends("kelle_axi")

TINY: KelleAxiParameters = entry_named("kelle_axi").parameters("tiny")
UNEVEN = replace(TINY, kelle=replace(TINY.kelle, heads=3, kv_heads=1, score_width=17))
"""Half of an input vector ends in the middle of a row."""


@pytest.mark.parametrize("p", [TINY, UNEVEN], ids=["tiny", "uneven"])
def test_requested_input_is_written_as_rows(p: KelleAxiParameters) -> None:
    kelle, rng = p.kelle, random.Random(1)
    edram = kelle.memory.edram
    unit, layer = VectorRows(parameters=p), kelle.layers - 1
    inputs = np.random.default_rng(1).integers(-(1 << 15), 1 << 15, (3, kelle.hidden_size))
    positions, vectors = [kelle.window, kelle.window + 5, 2], [0, kelle.vectors - 1, 1]
    memory = {
        input_place(p, layer, position) + number: word
        for position, own in zip(positions, inputs, strict=True)
        for number, word in enumerate(
            to_integers(pack(kelle.slice_layout, own.reshape(-1, kelle.rows)))
        )
    }
    found: list[int] = []
    requests: list[tuple[int, int]] = []
    count = edram.vector_entries * edram.entry_words
    bursts = len(positions) * 2 * -(-kelle.hidden_slices // (2 * kelle.row_slices))

    async def stores(context: Any) -> None:
        context.set(unit.layer, layer)
        for position, vector in zip(positions, vectors, strict=True):
            fields: dict[int | str, int] = {"position": position, "vector": vector}
            payload = kelle.store_layout.const(fields).as_value().value
            context.set(unit.written, 0)
            await send(context, unit.stores, [payload], rng)
            await context.tick().repeat(3)
            # No read precedes the end of all writes.
            assert not context.get(unit.port.requests.valid) and not context.get(unit.stores.ready)
            context.set(unit.written, 1)
            await context.tick().until(unit.stores.ready)

    async def reads(context: Any) -> None:
        layout = unit.port_signature.request_layout
        for _burst in range(bursts):
            one = layout.from_bits(await take(context, unit.port.requests, rng))
            requests.append((one.address, one.length))

    async def words(context: Any) -> None:
        layout, served = unit.port_signature.word_layout, 0
        while served < bursts:
            await context.tick()
            while served < len(requests):
                first, length = requests[served]
                served += 1
                payloads = [
                    layout.const({"word": memory[first + n], "last": n == length - 1})
                    for n in range(length)
                ]
                items = [one.as_value().value for one in payloads]
                await send(context, unit.port.words, items, rng)

    async def rows(context: Any) -> None:
        for _row in range(len(positions) * count):
            found.append(await take(context, unit.rows, rng))

    simulated(unit, stores, reads, words, rows)
    half = kelle.hidden_size // 2
    assert len(found) == len(positions) * count
    shown = unpack(kelle.row_write, from_integers(found, kelle.row_write.size))
    for number, (vector, own) in enumerate(zip(vectors, inputs, strict=True)):
        part = slice(number * count, (number + 1) * count)
        entry = edram.vector_entry(layer * kelle.vectors + vector)
        assert shown["address"][part].tolist() == [
            entry * edram.entry_words + row for row in range(count)
        ]
        for side, wanted in zip(("keys", "values"), vector_rows(own, edram), strict=True):
            given = values_of(shown[side][part].astype(np.uint64)[np.newaxis], edram)[0]
            wanted = values_of(wanted[np.newaxis], edram)[0]
            assert np.array_equal(given.reshape(-1)[:half], wanted.reshape(-1)[:half])


def test_step_takes_the_state_of_the_program_or_the_output_before_it() -> None:
    kelle, rng = TINY.kelle, random.Random(2)
    unit = LayerStates(shape=kelle.slice_layout, slices=kelle.hidden_slices)
    count, bits = kelle.hidden_slices, kelle.slice_layout.size
    given = [[rng.getrandbits(bits) for _ in range(count)] for _ in range(2)]
    left = [[rng.getrandbits(bits) for _ in range(count)] for _ in range(4)]
    found: list[list[int]] = []

    async def steps(context: Any) -> None:
        for number, follows in enumerate((0, 1, 1, 0)):
            context.set(unit.follows, follows)
            context.set(unit.starts, 1)
            await context.tick()
            context.set(unit.starts, 0)
            found.append([await take(context, unit.hidden, rng) for _ in range(count)])
            await context.tick().repeat(2)
            assert not context.get(unit.hidden.valid)
            await send(context, unit.outputs, left[number], rng)

    async def states(context: Any) -> None:
        await send(context, unit.states, [word for own in given for word in own], rng)

    simulated(unit, steps, states)
    assert found == [given[0], left[0], left[1], given[1]]


def test_weights_are_requested_before_the_step_before_them_ends() -> None:
    """Loads wait for the end of all steps, and steps for the placements of the one before."""
    p = replace(TINY, kelle=replace(TINY.kelle, layers=3))
    unit, program, rng = KelleCommands(parameters=p), KelleProgram(p), random.Random(3)
    program.load("rows", [1, 2])
    program.step(layer=2, position=7, epsilon=3, state=[1])
    program.predict(5)
    program.load("scales", [])
    program.step(layer=3, position=8, epsilon=3)
    requests = unit.requests.payload

    async def bench(context: Any) -> None:
        # The load has not begun.
        await context.tick().repeat(3)
        assert not context.get(unit.loads.as_value())
        context.set(unit.rests, 1)
        await context.tick().repeat(2)
        context.set(unit.rests, 0)
        for _word in range(2):
            assert context.get(unit.loads.rows) and not context.get(unit.positions.valid)
            context.set(unit.loaded, 1)
            await context.tick()
        context.set(unit.loaded, 0)
        context.set(unit.requests.ready, 1)
        await context.tick().until(unit.requests.valid)
        assert context.get(requests.address) == 2 * p.layer_words
        assert context.get(requests.length) == p.layer_words
        await context.tick()
        assert not context.get(unit.positions.valid)
        context.set(unit.recorded, 1)
        await context.tick().until(unit.positions.valid)
        assert context.get(unit.positions.payload) == 7 and context.get(unit.layer) == 2
        context.set(unit.positions.ready, 1)
        await context.tick()
        context.set(unit.positions.ready, 0)
        await context.tick().until(unit.requests.valid)
        # The step's own settings remain while the weights of the next one are requested.
        assert context.get(requests.address) == 3 * p.layer_words
        assert context.get(requests.length) == p.vocabulary_words
        assert context.get(unit.step.epsilon) == 3 and context.get(unit.step.position) == 7
        context.set(unit.positions.ready, 1)
        await context.tick().until(unit.starts)
        context.set(unit.positions.ready, 0)
        await context.tick()
        assert context.get(unit.step.epsilon) == 5
        context.set(unit.rests, 1)
        await context.tick().repeat(6)
        # The last layer does not exist.
        assert context.get(unit.illegal)
        assert not context.get(unit.requests.valid) and not context.get(unit.positions.valid)

    async def instructions(context: Any) -> None:
        *legal, illegal = program.words["instructions"]
        await send(context, unit.instructions, legal, rng)
        # It is never accepted.
        context.set(unit.instructions.payload.as_value(), illegal)
        context.set(unit.instructions.valid, 1)

    simulated(unit, bench, instructions)

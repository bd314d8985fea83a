"""Accesses of Kelle's activations: counts of the hardware, and known products."""

from dataclasses import replace
from typing import Any

import pytest
from amaranth.sim import Simulator

from golden.study.kelle_activations import (
    ACTIVATION_BYTES,
    ELEMENT_BYTES,
    lm_head_bytes,
    moved_bytes,
    refresh_mj,
    stores,
    vectors,
)
from golden.study.kelle_energy import FEW_TOKENS, generating
from hdl.catalog import entry_named
from hdl.kelle.control.vector_issue import VectorIssue
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters


def issued(p: KelleParameters, operation: Operation, recomputed: int) -> int:
    """Return how many vectors the hardware issues for an operation of one head."""
    unit = VectorIssue(parameters=p)
    ports: Any = unit
    found: list[int] = []

    async def count(context: Any) -> None:
        context.set(ports.operations.payload.operation, operation)
        context.set(ports.operations.valid, 1)
        context.set(ports.vectors.ready, 1)
        context.set(ports.last_token, p.step_tokens - 1)
        context.set(ports.count, p.step_tokens + recomputed)
        for name in ("arrived", "renewed", "attended", "multiplied"):
            port = getattr(ports, name)
            context.set(port, (1 << len(port)) - 1)
        while not context.get(ports.operations.ready):
            await context.tick()
            found.append(context.get(ports.vectors.valid))
        # A vector is valid in the cycle after it is issued.
        found.append(1)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(count)
    simulator.run()
    return sum(found)


@pytest.mark.parametrize("preset", ["tiny", "tiny_words", "tiny_batch"])
@pytest.mark.parametrize("operation", list(vectors(generating())))
def test_vectors_are_those_of_the_hardware(preset: str, operation: Operation) -> None:
    p: KelleParameters = entry_named("kelle").parameters(preset)
    times = {
        Operation.QUERY: p.heads,
        Operation.KEY: p.kv_heads,
        Operation.VALUE: p.kv_heads,
        Operation.UP: p.operations(Operation.UP) + p.operations(Operation.GATE),
        Operation.OUTPUT: p.heads,
        Operation.DOWN: p.heads,
    }.get(operation) or p.token_heads
    assert vectors(p, recomputed=1)[operation] == times * issued(p, operation, recomputed=1)


def test_activations_of_one_sequence_fit_into_the_published_memory() -> None:
    p: KelleParameters = entry_named("kelle").parameters("published")
    for dimensions in (generating(), replace(p, overflow=False, layers=1, words=1 << 16)):
        held = ELEMENT_BYTES * sum(store.held for store in stores(dimensions).values())
        assert 0 < held
        assert (held <= ACTIVATION_BYTES) == (dimensions.batch == 1)


def test_reads_are_a_slice_per_tile() -> None:
    p = generating()
    # Weights of a layer in tiles of 16 x 16 bytes, each of which one vector is multiplied by.
    tiles = (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536) // 256
    weights = [n for operation, n in vectors(p).items() if operation.name not in ATTENTION]
    assert sum(weights) == tiles
    assert lm_head_bytes(replace(p, vocabulary_size=49152)) == 49152 * 576 // 256 * 32
    written, read = moved_bytes(p)
    assert read > 10 * written


ATTENTION = ("SCORE", "OWN", "ATTEND")


def test_refresh_of_the_published_memory() -> None:
    assert refresh_mj(FEW_TOKENS, 1 << 22) == pytest.approx(1.14 * 1096.727 / 45)

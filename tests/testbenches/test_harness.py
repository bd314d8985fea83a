"""The C++ harness equals cocotb: the same values in the same cycles."""

import statistics
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.target import Target
from synth.waveforms import read_waveforms
from testbenches.harness import RESET_CYCLES, Harness
from testbenches.harness_memory import BurstMemory
from testbenches.kelle.eviction.evictor_wavefronts import step_wavefronts, tabulate
from testbenches.kelle.eviction.tb_systolic_evictor import real_steps
from testbenches.long_run import LongRun
from testbenches.packing import Bits, code_fields, from_integers, pack, unpack
from testbenches.runner import Request, simulate
from testbenches.veda.decode_texts import mixed_layers, past_of
from testbenches.veda.decode_work import LAYERS, DecodeWork, real_tokens
from testbenches.veda.layer_weights import angle_lines, vocabulary_lines, weight_lines
from testbenches.veda.off_chip_memory import Lines
from testbenches.waves import Samples

UNKNOWN = 0xDEAD
"""Value of counts that were never written."""


def test_evictor_finds_cocotbs_victims_in_cocotbs_cycles() -> None:
    entry = entry_named("systolic_evictor")
    p = entry.parameters("tiny")
    steps, _what = real_steps(p)
    table = tabulate((wave for step in steps for wave in step_wavefronts(step, p)), p)
    waves = len(table.headers)
    # Lane i of a wave that is accepted in cycle n is expected in cycle n + i.
    lanes = np.zeros((waves + p.rows, p.rows, table.lanes.shape[-1]), np.uint8)
    valid = np.zeros((waves + p.rows + 1, p.rows), np.int64)
    importance = np.zeros_like(valid)
    for row in range(p.rows):
        lanes[row : row + waves, row] = table.lanes[:, row]
        valid[row + 1 : row + 1 + waves, row] = 1
        importance[row + 1 : row + 1 + waves, row] = table.updates[:, row]
    run = Harness.compiled(entry, p, Target.ASIC).run(
        {"wavefronts": from_integers(table.headers, 4 if p.halves else 3)},
        {"victims": len(table.victims)},
        driven={"lanes": lanes.reshape(len(lanes), -1)},
        record=["updates"],
    )
    found = unpack(p.victim_layout, run.outputs["victims"])
    assert found["index"].tolist() == [victim.index for victim in table.victims]
    assert found["importance"].tolist() == [victim.importance for victim in table.victims]
    bits = run.outputs["updates"].reshape(-1, p.rows, p.update_layout.size)
    updates = unpack(p.update_layout, bits[: len(valid)])
    assert np.array_equal(updates["valid"], valid)
    assert np.array_equal(updates["importance"] * valid, importance)
    cocotb = simulate(entry, "tiny", Request(seed=1, only="real_scores"))
    assert (cocotb.passed, cocotb.cycles) == (True, run.cycle)


def test_sampled_waveforms_are_the_outputs_of_their_cycles(tmp_path: Path) -> None:
    """Compare the dump of seven in twenty cycles with the recorded outputs."""
    entry = entry_named("systolic_evictor")
    p = entry.parameters("tiny")
    steps = real_steps(p)[0]
    table = tabulate((wave for step in steps for wave in step_wavefronts(step, p)), p)
    samples = Samples(tmp_path / "waves.vcd", cycles=7, every=20)
    run = Harness.compiled(entry, p, waves=samples).run(
        {"wavefronts": from_integers(table.headers, 4 if p.halves else 3)},
        {"victims": len(table.victims)},
        driven={"lanes": table.lanes.reshape(len(table.lanes), -1)},
        record=["updates"],
    )
    bits = run.outputs["updates"]
    total = RESET_CYCLES + len(bits)
    cycles = [cycle for cycle in range(total) if cycle % 20 < 7]
    waves = read_waveforms(samples.file, entry.top)
    assert waves.cycles == len(cycles) > 70
    gaps = [after - before > 1 for before, after in pairwise(cycles)]
    assert [waves.changes >> t & 1 for t in range(len(gaps))] == [int(not gap) for gap in gaps]
    changing = 0
    for bit in range(bits.shape[1]):
        wave = waves.nets[f"updates[{bit}]"]
        for t, cycle in enumerate(cycles):
            if cycle >= RESET_CYCLES:
                assert wave >> t & 1 == bits[cycle - RESET_CYCLES, bit]
        changing += bool(waves.transitions(wave))
    assert changing > 8
    with pytest.raises(UserError, match="cannot open"):
        Harness.compiled(entry, p, waves=Samples(tmp_path / "no" / "waves.vcd")).run(
            {}, {}, driven={"lanes": np.zeros((1, table.lanes[0].size), np.uint8)}
        )


def run_veda(work: DecodeWork, directory: Path, seed: int = 0) -> LongRun:
    """Run VEDA with a memory in a file, and compare its results."""
    p = work.p
    lines = Lines(p)
    for layer, (keys, values, _counts) in work.loaded.items():
        lines.store(keys, layer=layer, value=False)
        lines.store(values, layer=layer, value=True)
    for layer, decoder in work.decoders.items():
        lines.store_weights(weight_lines(p, decoder.weights), layer=layer)
    for position in work.positions:
        lines.store_angles(angle_lines(p, position), position=position)
    if work.vocabulary is not None:
        lines.store_vocabulary(vocabulary_lines(p, work.vocabulary))
    memory = BurstMemory(
        file=directory / "memory",
        reads="reads",
        words="words",
        writes="writes",
        read_layout=p.read_layout,
        write_layout=p.write_layout,
        channels=p.channels,
        line_width=lines.line_bits,
        address_width=p.address_layout.size,
    )
    memory.create(lines.lines)
    inputs: dict[str, Bits] = {
        "instructions": from_integers(work.instructions, p.instruction_layout.size),
        "vectors": from_integers(work.vectors, p.beat_layout.size),
        "counts_in": pack(16, counts_given(work)),
        "states_in": pack(p.state_layout, state_items(work.states_in)),
    }
    coefficients = {name: np.array([number]) for name, number in vars(work.coefficients).items()}
    run = Harness.compiled(entry_named("veda"), p).run(
        inputs,
        {
            "outputs": len(work.alone) * p.rounds,
            "states_out": sum(states.size for states in work.states_out),
            "evictions": len(work.evictions),
            "counts_out": sum(len(step.counts) for step in work.steps),
        },
        driven={
            "threshold_coefficients": pack(p.voting.threshold.coefficients_layout, coefficients),
            "clear_flags": from_integers([0], 1),
        },
        memories=[memory],
        seed=seed,
        timeout=20_000,
    )
    codes = unpack(16, run.outputs["outputs"].reshape(-1, 16)).reshape(-1, p.lanes, p.head_size)
    none = np.zeros((0, p.lanes, p.head_size), np.int64)
    assert np.array_equal(
        codes, np.concatenate([none, *(work.steps[n].outputs for n in work.alone)])
    )
    tokens = [token for states in work.states_out for token in states]
    expected = pack(p.state_layout, state_items(tokens))
    assert np.array_equal(run.outputs["states_out"], expected)
    evicted = unpack(p.eviction_layout, run.outputs["evictions"])
    assert list(zip(evicted["layer"], evicted["slot"], strict=True)) == work.evictions
    votes = [count for step in work.steps for count in step.counts]
    assert unpack(16, run.outputs["counts_out"]).tolist() == votes
    stored = memory.lines()
    lines.lines = {n: int.from_bytes(line.tobytes(), "little") for n, line in enumerate(stored)}
    for layer, model in work.models.items():
        for value, cache in ((False, model.keys), (True, model.values)):
            kept = lines.cached(layer=layer, value=value, length=model.length)
            assert np.array_equal(kept, cache[:, : model.length])
    return run


def counts_given(work: DecodeWork) -> np.ndarray:
    """Return the votes given to all steps, concatenated."""
    kept = {layer: counts.tolist() for layer, (_k, _v, counts) in work.loaded.items()}
    given: list[int] = []
    for layer, step in zip(work.layers, work.steps, strict=True):
        known = kept.get(layer, [])[: step.length]
        given += known + [UNKNOWN] * (step.length - len(known))
        kept[layer] = list(step.counts)
    return np.array(given, np.int64)


def state_items(blocks: list[np.ndarray]) -> dict[str, object]:
    """Return hidden states as items of their stream, with `last` at the end of each block."""
    codes = np.concatenate([np.zeros(0, np.uint16), *(block.reshape(-1) for block in blocks)])
    last = np.zeros(len(codes), np.int64)
    last[np.cumsum([block.size for block in blocks], dtype=np.int64) - 1] = 1
    return {"value": code_fields(codes), "last": last}


def test_veda_decodes_from_a_memory_in_a_file_in_cocotbs_cycles(tmp_path: Path) -> None:
    entry = entry_named("veda")
    p = entry.parameters("tiny")
    cached, count = min(p.slots - 1, 127), min(3, 1 + 16 // p.rounds)
    tokens = [real_tokens(p, layer) for layer in LAYERS[1:]]
    work = DecodeWork(p)
    for layer, text in enumerate(tokens):
        work.load(layer, *past_of(text, cached))
    for index in range(cached, cached + count):
        for layer, text in enumerate(tokens):
            work.add(layer, text, index, vote=True, evictions=1)
    run = run_veda(work, tmp_path)
    cocotb = simulate(entry, "tiny", Request(seed=1, only="real_decode", target=Target.FPGA))
    assert cocotb.passed
    assert run.cycles["outputs"][-1] - 1 == cocotb.cycles


@pytest.mark.parametrize("seed", [1, 2])
def test_veda_takes_layers_through_random_pauses(tmp_path: Path, seed: int) -> None:
    p = entry_named("veda").parameters("tiny")
    run_veda(mixed_layers(np.random.default_rng(seed), p, 5), tmp_path, seed)


@pytest.mark.full
def test_harness_is_at_least_seven_tenths_as_fast_as_the_model_alone(tmp_path: Path) -> None:
    p = entry_named("veda").parameters("tiny")
    work = mixed_layers(np.random.default_rng(3), p, 8)
    harness = Harness.compiled(entry_named("veda"), p)
    rates = [run_veda(work, tmp_path).cycles_per_second / harness.bare(20_000) for _ in range(9)]
    # Measure both alternately; the median is robust against other load on the machine.
    assert statistics.median(rates) > 0.7, rates


def test_stuck_run_reports_the_waiting_streams() -> None:
    entry = entry_named("systolic_evictor")
    harness = Harness.compiled(entry, entry.parameters("tiny"), Target.ASIC)
    with pytest.raises(UserError, match=r"no transfer for 500 cycles; .*victims gave 0 of 1"):
        lanes = next(port.width for port in harness.ports if port.name == "lanes")
        driven = {"lanes": np.zeros((1, lanes), np.uint8)}
        harness.run({}, {"victims": 1}, driven=driven, timeout=500)


def test_rejects_unknown_names_and_wrong_widths() -> None:
    entry = entry_named("systolic_evictor")
    harness = Harness.compiled(entry, entry.parameters("tiny"), Target.ASIC)
    with pytest.raises(ValueError, match=r"inputs must be of \['wavefronts'\], not 'victims'"):
        harness.run({"victims": np.zeros((1, 8), np.uint8)}, {})
    lanes = next(port.width for port in harness.ports if port.name == "lanes")
    driven = {"lanes": np.zeros((1, lanes), np.uint8)}
    with pytest.raises(ValueError, match=r"must have shape \(items, 3\), not \(1, 4\)"):
        harness.run({"wavefronts": np.zeros((1, 4), np.uint8)}, {}, driven=driven)


def test_rejects_an_input_that_is_not_driven() -> None:
    entry = entry_named("systolic_evictor")
    harness = Harness.compiled(entry, entry.parameters("tiny"), Target.ASIC)
    with pytest.raises(ValueError, match="each plain input, and lacks lanes"):
        harness.run({}, {})

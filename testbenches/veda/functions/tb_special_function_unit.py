"""Testbench of the special function unit: sequential and concurrent functions, stalls, resets."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, repeat
from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import Shape
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.veda.functions.special_function_unit import Work, special_functions
from hdl.veda.functions.deviation_reciprocal import DeviationReciprocal
from hdl.veda.functions.special_function_unit import SpecialFunctionUnitParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import Bench, catalog_parameters, context
from testbenches.packing import code_fields, from_integers, pack, to_integers, unpack
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import four_states, read
from testbenches.unit_bench import Fields
from testbenches.veda.functions import tb_element_serial_activation as activation_bench
from testbenches.veda.functions import tb_element_serial_layernorm as layernorm_bench
from testbenches.veda.functions import tb_element_serial_rotary as rotary_bench
from testbenches.veda.functions import tb_element_serial_softmax as softmax_bench
from testbenches.veda.functions.serial_bench import (
    codes_of,
    elements_of,
    last_of,
    shown,
)

Codes = NDArray[np.uint16]
LAYERS = (0, 14, 29)
TOKENS = 640

ANSWERS = {
    "scores": "probabilities",
    "elements": "normalised",
    "operands": "activated",
    "pairs": "rotated",
}
"""Output stream of each input stream."""

NO_CODES = np.zeros(0, np.uint16)
NOTHING: dict[str, Any] = {
    "heads": [],
    "vectors": [],
    "operands": (NO_CODES, NO_CODES),
    "pairs": (NO_CODES,) * 4,
}
"""Work without any input."""


def prepare(p: SpecialFunctionUnitParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def together(heads: Sequence[Codes], lanes: int) -> list[Codes]:
    """Return heads of scores in lock-step: one per lane, cut to a common length."""
    groups = [heads[start : start + lanes] for start in range(0, len(heads) - lanes + 1, lanes)]
    lengths = [min(len(head) for head in group) for group in groups]
    return [
        np.stack([head[:length] for head in group])
        for group, length in zip(groups, lengths, strict=True)
    ]


def rotates(run: Run) -> bool:
    """Return whether the unit has the rotary embedding."""
    return run.parameters.rotates


def activates(run: Run) -> bool:
    """Return whether the unit has the activation."""
    return run.parameters.swiglu


NO_ROTATION, NO_ACTIVATION = "there is no rotary embedding", "there is no activation"


def fitting(p: SpecialFunctionUnitParameters, work: Work) -> Work:
    """Return work without inputs of functions that the unit does not have."""
    absent = {"operands": not p.swiglu, "pairs": not p.rotates}
    none = {name: NOTHING[name] for name, is_absent in absent.items() if is_absent}
    return replace(work, **none)


def real_work(p: SpecialFunctionUnitParameters, tokens: int) -> Work:
    """Return the functions' inputs in three layers of SmolLM2."""
    real = softmax_bench.real_heads(p.softmax, tokens)
    # Adjacent heads are queries of one head with different lengths; group those of equal length.
    heads = sorted(real, key=len)
    work = Work(
        heads=together(heads, p.lanes),
        vectors=layernorm_bench.real_vectors(p.layernorm, 1),
        operands=_first(activation_bench.real_operands(1), 100 if four_states() else 600),
        pairs=_first(rotary_bench.real_pairs(1), 100 if four_states() else 300),
    )
    return fitting(p, work)


def edge_work(p: SpecialFunctionUnitParameters) -> Work:
    """Return corner cases of the functions' arithmetic."""
    undefined = softmax_bench.undefined_heads(p.softmax)
    heads = softmax_bench.edge_heads(p.softmax)
    vectors = layernorm_bench.edge_vectors(p.layernorm)
    work = Work(
        heads=together([*heads, *undefined["nan"], *heads[:4], *undefined["infinite"]], p.lanes),
        vectors=[*vectors, *layernorm_bench.undefined_vectors(p.layernorm), *vectors[:3]],
        operands=activation_bench.edge_operands(),
        pairs=rotary_bench.edge_pairs(),
    )
    return fitting(p, work)


def random_work(rng: np.random.Generator, p: SpecialFunctionUnitParameters, scale: int) -> Work:
    """Return random work for all functions."""
    heads = softmax_bench.random_heads(rng, p.softmax, scale * p.lanes)
    work = Work(
        heads=together(heads, p.lanes),
        vectors=layernorm_bench.random_vectors(rng, p.layernorm, max(scale // 2, 2)),
        operands=_first(activation_bench.every_gate(rng, 256), 12 * scale),
        pairs=rotary_bench.random_pairs(rng, 6 * scale),
    )
    return fitting(p, work)


def _first(columns: Sequence[Codes], count: int) -> Any:
    """Return the first elements of several arrays."""
    return tuple(column[:count] for column in columns)


def offered(work: Work) -> dict[str, Any]:
    """Return the fields of every input stream that has work."""
    fields: dict[str, Any] = {}
    if work.heads:
        fields["lengths"] = np.array([head.shape[1] for head in work.heads])
        fields["scores"] = code_fields(np.concatenate([head.T for head in work.heads]))
    if work.vectors:
        fields["elements"] = elements_of(list(work.vectors))
    if len(work.operands[0]):
        fields["operands"] = activation_bench.offered(*work.operands)
    if len(work.pairs[0]):
        fields["pairs"] = rotary_bench.offered(work.pairs)
    return fields


def expected(work: Work, p: SpecialFunctionUnitParameters) -> dict[str, Fields]:
    """Return the expected fields of every output stream."""
    answers = special_functions(work, p)
    fields: dict[str, Fields] = {}
    if work.heads:
        last = last_of([head[0] for head in work.heads])
        fields["probabilities"] = {"values": answers.probabilities, "last": last}
    if work.vectors:
        last = last_of(work.vectors)
        fields["normalised"] = {"value": answers.normalised, "last": last}
    if len(work.operands[0]):
        last = activation_bench.ends(len(answers.activated))
        fields["activated"] = {"value": answers.activated, "last": last}
    if len(work.pairs[0]):
        x, y = answers.rotated
        fields["rotated"] = {"x": x, "y": y, "last": rotary_bench.ends(len(x))}
    return fields


class FunctionsBench:
    """The unit with a driver or a receiver at each of its streams.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Stall patterns of all inputs and of all outputs.
    """

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: SpecialFunctionUnitParameters = catalog_parameters()
        p = self.p
        dut.clear_flags.value = 0
        self.dut = dut
        self.bench = Bench(dut, salt)
        self.inputs = {
            "lengths": Shape.cast(p.softmax.length_shape),
            "scores": p.softmax.lanes_layout(p.lanes),
            "elements": p.layernorm.element_layout,
        }
        self.outputs = {
            "probabilities": p.softmax.beat_layout(p.lanes),
            "normalised": p.layernorm.element_layout,
        }
        if p.swiglu:
            self.inputs["operands"] = p.activation.operands_layout
            self.outputs["activated"] = p.activation.element_layout
        if p.rotates:
            self.inputs["pairs"] = p.rotary.pair_layout
            self.outputs["rotated"] = p.rotary.rotated_layout
        self.sources = {name: self.bench.source(name, source) for name in self.inputs}
        self.sinks = {name: self.bench.sink(name, sink) for name in self.outputs}
        self.due = dict.fromkeys(self.sinks, 0)

    async def reset(self) -> None:
        """Reset the unit; no items are due."""
        await self.bench.reset()
        self.forget()

    def forget(self) -> None:
        """Discard received items, and the number of items due."""
        self.due = dict.fromkeys(self.sinks, 0)
        for sink in self.sinks.values():
            sink.received.clear()

    def offer(self, work: Work) -> None:
        """Offer all inputs concurrently."""
        for name, fields in offered(work).items():
            payloads = to_integers(pack(self.inputs[name], fields))
            self.sources[name].send(payloads)
            if name in ANSWERS:
                self.due[ANSWERS[name]] += len(payloads)

    async def wait(self, counts: dict[str, int]) -> int:
        """Run until the given numbers of outputs are received, and no more; return the cycles."""

        def come() -> bool:
            received = {name: len(sink.received) for name, sink in self.sinks.items()}
            for name, count in received.items():
                assert count <= self.due[name], f"{name}: too many"
            return all(received[name] >= count for name, count in counts.items())

        return await self.bench.run(until=come)

    async def run(self, work: Work) -> int:
        """Reset, offer work, wait for all outputs and compare them; return the cycles."""
        await self.reset()
        return await self.follow(work)

    async def follow(self, work: Work) -> int:
        """Offer work, wait for all outputs and compare them; return the cycles."""
        before = {name: len(sink.received) for name, sink in self.sinks.items()}
        answers = expected(work, self.p)
        self.offer(work)
        counts = {name: before[name] + len(fields["last"]) for name, fields in answers.items()}
        cycles = await self.wait(counts)
        # No further output may follow.
        for _ in range(20):
            await self.bench.step()
        for name, sink in self.sinks.items():
            assert len(sink.received) == counts.get(name, before[name]), f"{name}: too many"
            if name in answers:
                self.check(name, answers[name], sink.received[before[name] :])
        return cycles

    async def finish(self, work: Work) -> None:
        """Wait for all outputs of work that was offered since the reset, and compare them."""
        answers = expected(work, self.p)
        await self.wait({name: len(fields["last"]) for name, fields in answers.items()})
        for name, fields in answers.items():
            self.check(name, fields, self.sinks[name].received)

    def check(self, name: str, fields: Fields, received: list[tuple[int, int]]) -> None:
        """Compare every field of every output of one function."""
        layout = self.outputs[name]
        packed = from_integers([payload for _cycle, payload in received], layout.size)
        got = unpack(layout, packed)
        cycles = [cycle for cycle, _payload in received]
        for field, values in fields.items():
            self.bench.compare(
                f"{name}: {field}",
                values.astype(np.int64),
                codes_of(got[field]),
                cycles=cycles,
                show=shown,
            )


@cocotb.test()
async def real_layers(dut: Any) -> None:
    """Execute the functions of layers of SmolLM2 sequentially, without a flag."""
    bench = FunctionsBench(dut, "real_layers")
    work = real_work(bench.p, 1 if four_states() else 8 if context()["full"] else 3)
    await bench.reset()
    for part in ("vectors", "pairs", "heads", "vectors", "operands"):
        await bench.follow(Work(**{**NOTHING, part: getattr(work, part)}))
    assert read(dut.flags) == 0 and read(dut.undefined) == 0
    tensors = f"SmolLM2 layers {LAYERS}: scores, hidden states, queries and keys, gates"
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors)


@cocotb.test()
@only_if(rotates, NO_ROTATION)
async def rotation_at_full_rate(dut: Any) -> None:
    """Alone, a function is as fast as its own unit, plus one cycle to acquire the operators."""
    bench = FunctionsBench(dut, "rotation_at_full_rate")
    pairs = rotary_bench.random_pairs(bench.bench.numpy_rng, 400)
    cycles = await bench.run(Work(**{**NOTHING, "pairs": pairs}))
    ideal = 2 * len(pairs[0])
    bench.bench.compare("cycles", np.array([ideal + bench.p.rotary.stages + 1]), np.array([cycles]))
    bench.bench.record(cycles=cycles, ideal_cycles=ideal)


@cocotb.test()
@only_if(activates, NO_ACTIVATION)
async def activation_at_full_rate(dut: Any) -> None:
    """Activate elements at the divider's rate, plus one cycle to acquire the operators."""
    bench = FunctionsBench(dut, "activation_at_full_rate")
    operands = activation_bench.every_gate(bench.bench.numpy_rng, 128)
    cycles = await bench.run(Work(**{**NOTHING, "operands": operands}))
    ideal = activation_bench.bound(len(operands[0]), bench.p.activation)
    allowed = np.array([ideal + bench.p.activation.stages + 1])
    bench.bench.compare("cycles", allowed, np.array([cycles]))
    bench.bench.record(cycles=cycles, ideal_cycles=ideal)


def heads_without_gaps(run: Run) -> bool:
    """Return whether a head takes as long as the reciprocal of its sum: the next one is ready."""
    p = run.parameters.softmax
    return p.scores > p.division_cycles


@cocotb.test()
@only_if(heads_without_gaps, "the operators are idle between short heads, and serve others")
async def attention_is_not_disturbed(dut: Any) -> None:
    """Heads at full rate, while all other functions wait for their end."""
    bench = FunctionsBench(dut, "attention_is_not_disturbed")
    p = bench.p
    rng = bench.bench.numpy_rng
    whole = min(p.scores, 256)
    heads = softmax_bench.codes(rng.normal(0, 2, (p.heads, p.lanes, whole)))
    attention = Work(**{**NOTHING, "heads": list(heads)})
    others = Work(**{**vars(random_work(rng, p, 8)), "heads": []})
    alone = await bench.run(attention)
    bench.forget()
    bench.offer(attention)
    started = bench.bench.cycle
    # The other inputs are offered when the first probabilities are output.
    await bench.wait({"probabilities": 1})
    bench.offer(others)
    await bench.wait({"probabilities": p.heads * whole})
    cycles = np.array([bench.bench.cycle - started])
    bench.bench.compare("cycles of attention", np.array([alone]), cycles)
    await bench.finish(Work(**{**vars(others), "heads": list(heads)}))
    ideal = (p.heads + 1) * whole
    bench.bench.record(cycles=alone, ideal_cycles=ideal)


STREAMS = {"vectors": "elements", "operands": "operands", "pairs": "pairs"}
"""Input stream of each kind of work that has end marks."""


@cocotb.test()
@cocotb.parametrize((("owner", "waiting"), list(permutations(STREAMS, 2))))
@only_if(lambda run: rotates(run) and activates(run), "the unit does not have all functions")
async def turns(dut: Any, owner: str, waiting: str) -> None:
    """Offer work to a function while another has three vectors: it is served after the first."""
    bench, first, whole = await _in_turn(dut, f"turns {owner} {waiting}", owner)
    source, other = (bench.sources[STREAMS[name]] for name in (owner, waiting))
    bench.offer(Work(**{**NOTHING, owner: whole[owner]}))
    await bench.bench.run(until=lambda: source.taken == 1)
    bench.offer(Work(**{**NOTHING, waiting: whole[waiting]}))
    await bench.bench.run(until=lambda: other.taken == 1)
    bench.bench.compare("turn", np.array([first]), np.array([source.taken]))
    await bench.finish(Work(**{**NOTHING, owner: whole[owner], waiting: whole[waiting]}))


def longer_than_the_pipeline(run: Run) -> bool:
    """Return whether a vector has more elements than the normalisation's pipeline has stages."""
    return rotates(run) and run.parameters.width > 2 * run.parameters.step_stages + 2


@cocotb.test()
@only_if(
    longer_than_the_pipeline, "no pairs, or the pipeline holds both vectors before they arrive"
)
async def turns_in_normalisation(dut: Any) -> None:
    """Check the order when two vectors wait for their normalisation, and none is reduced."""
    bench, first, whole = await _in_turn(dut, "turns_in_normalisation", "vectors")
    work = Work(**{**NOTHING, "vectors": whole["vectors"][:2], "pairs": whole["pairs"]})
    bench.offer(Work(**{**vars(work), "pairs": NOTHING["pairs"]}))
    sink = bench.sinks["normalised"]
    pauses, sink.pauses = sink.pauses, repeat(True)
    for _ in range(2 * first + 2 * DeviationReciprocal.cycles(bench.p.layernorm) + 50):
        await bench.bench.step()
    bench.offer(Work(**{**NOTHING, "pairs": whole["pairs"]}))
    await bench.bench.step()
    sink.pauses = pauses
    await bench.wait({"rotated": 1})
    bench.bench.compare("turn", np.array([first]), np.array([len(sink.received)]))
    await bench.finish(work)


async def _in_turn(dut: Any, salt: str, owner: str) -> tuple[FunctionsBench, int, dict[str, Any]]:
    """Return a bench, the length of the owner's vectors, and three vectors for each function."""
    bench = FunctionsBench(dut, salt)
    await bench.reset()
    rng, width = bench.bench.numpy_rng, min(bench.p.width, 64)
    whole = {
        "vectors": list(softmax_bench.codes(rng.normal(0, 2, (3, width)))),
        "operands": _first(activation_bench.every_gate(rng, 64), 21),
        "pairs": rotary_bench.random_pairs(rng, 96),
    }
    return bench, {"vectors": width, "operands": 7, "pairs": 32}[owner], whole


@cocotb.test()
async def edges(dut: Any) -> None:
    """Offer special values to all functions concurrently; every flag is set and cleared."""
    bench = FunctionsBench(dut, "edges")
    await bench.run(edge_work(bench.p))
    assert read(dut.flags) == 3 and read(dut.undefined) == 1
    dut.clear_flags.value = 1
    await bench.bench.step()
    dut.clear_flags.value = 0
    await bench.bench.step()
    assert read(dut.flags) == 0 and read(dut.undefined) == 0


@cocotb.test()
@only_if(
    lambda run: run.parameters.scores < 64, "the functions' own testbenches cover all dimensions"
)
async def hard_products(dut: Any) -> None:
    """Gates of all magnitudes, products and sums that are ties, subnormal, or nearly zero."""
    bench = FunctionsBench(dut, "hard_products")
    rng = bench.bench.numpy_rng
    pairs = rotary_bench.product_pairs(rng), rotary_bench.random_pairs(rng, 2000)
    operands = activation_bench.every_gate(rng, 16), activation_bench.hard_operands(rng)
    work = {
        "operands": tuple(np.concatenate(columns) for columns in zip(*operands, strict=True)),
        "pairs": tuple(np.concatenate(columns) for columns in zip(*pairs, strict=True)),
        "vectors": layernorm_bench.random_vectors(rng, bench.p.layernorm, 100),
    }
    await bench.run(fitting(bench.p, Work(**{**NOTHING, **work})))


stalls = stall_test(
    FunctionsBench,
    lambda bench: random_work(
        bench.bench.numpy_rng, bench.p, 32 if bench.p.scores < 64 and not four_states() else 8
    ),
)
resets = reset_test(
    FunctionsBench,
    lambda bench: random_work(bench.bench.numpy_rng, bench.p, 4),
    begun=lambda bench: random_work(bench.bench.numpy_rng, bench.p, 8),
    longest=300,
    rounds=lambda bench: 12 if bench.p.scores < 64 and not four_states() else 4,
)

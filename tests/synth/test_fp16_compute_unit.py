"""The reference for P3-LLM's compute unit computes the specified results."""

import numpy as np

from synth.reference.fp16_compute_unit import (
    SCALARS,
    WORDS,
    Fp16ComputeUnit,
    Operation,
    command_layout,
)
from testbenches.arith.bulk import run_bulk
from testbenches.packing import pack

COMMANDS = 2_000
LANES = 2
LATENCY = 2


def words_of(bits: np.ndarray) -> np.ndarray:
    """Rows of bits as 32-bit words."""
    padded = np.pad(bits, ((0, 0), (0, -bits.shape[-1] % 32)))
    return np.packbits(padded, axis=-1, bitorder="little").view(np.uint32)


def halves(rows: np.ndarray) -> np.ndarray:
    """Two FP16 codes as a 32-bit word."""
    return np.ascontiguousarray(rows.astype(np.uint16)).view(np.uint32)


def test_random_commands() -> None:
    generator = np.random.default_rng(1)
    operations = generator.integers(4, size=COMMANDS)
    words, numbers = generator.integers(WORDS, size=COMMANDS), generator.integers(3, size=COMMANDS)
    broadcast, first = generator.integers(2, size=COMMANDS), generator.random(COMMANDS) < 0.2
    # All registers are written once before any is used.
    begin = [(Operation.WRITE_SCALARS, 0)]
    begin += [(Operation.WRITE_INPUTS, word) for word in range(WORDS)]
    begin += [(Operation.MULTIPLY, word) for word in range(WORDS)]
    for count, (operation, word) in enumerate(begin):
        operations[count], words[count], numbers[count], first[count] = (
            operation.value,
            word,
            word,
            1,
        )
    data, columns = (
        generator.normal(size=(COMMANDS, count)).astype(np.float16).view(np.uint16)
        for count in (SCALARS, LANES)
    )
    fields = {"operation": operations, "word": words, "sum": numbers, "broadcast": broadcast}
    fields |= {"first": first.astype(np.int64), "data": data}
    commands = words_of(pack(command_layout(LANES), fields))
    idle = LATENCY + 1
    given = {
        "valid": np.r_[np.ones(COMMANDS, np.uint8), np.zeros(idle, np.uint8)],
        "command": np.pad(commands, ((0, idle), (0, 0))),
        # The column arrives one cycle after its command.
        "column": np.pad(halves(columns)[:, 0], (1, idle - 1)),
    }
    got = run_bulk(Fp16ComputeUnit(lanes=LANES), given)["results"]

    inputs, sums = np.zeros((2, WORDS, LANES), np.uint16)
    scalars = data[0]
    reads = 0
    for count in range(COMMANDS):
        operation, word, number = operations[count], words[count], numbers[count]
        if operation == Operation.WRITE_INPUTS.value:
            inputs[word] = data[count, :LANES]
        elif operation == Operation.WRITE_SCALARS.value:
            scalars = data[count]
        elif operation == Operation.MULTIPLY.value:
            factors = np.full(LANES, scalars[word]) if broadcast[count] else inputs[word]
            addend = np.zeros(LANES, np.uint16) if first[count] else sums[number]
            a, b, c = (
                half.view(np.float16).astype(np.float64)
                for half in (columns[count], factors, addend)
            )
            # Exact in float64 for numbers of this size, so rounded once.
            sums[number] = (a * b + c).astype(np.float16).view(np.uint16)
        else:
            np.testing.assert_array_equal(got[count + LATENCY], halves(sums[number])[0])
            reads += 1
    assert reads > COMMANDS // 8

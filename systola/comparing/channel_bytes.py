"""Bytes that cross P3-LLM's pseudo-channel in each step, counted in a waveform of its RTL.

``python -m systola.comparing.channel_bytes WAVEFORM COLUMN_BYTES`` reads what ``make sim TOP=p3llm
WAVES=fst`` wrote; a column of SmolLM2's preset has 32 bytes. For each instruction it prints the
column commands by operation, and the bytes of those that carry a column between NPU and DRAM.
`MULTIPLY` and the fill operations carry none: their columns go from the banks to the compute units.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

import pywellen

from hdl.p3llm.pim.pim_channel import ColumnOperation

CARRYING = ("read", "write", "write_input", "write_metadata", "read_result")
"""Operations with a column on the channel; a write to all units is one column."""

Changes = Sequence[tuple[int, int]]
"""Times and values of a signal, ascending."""


def edges_at_one(changes: Changes, rising: Sequence[int]) -> list[int]:
    """Return the clock edges at which a signal of one bit is 1, before it changes.

    Parameters
    ----------
    changes : Changes
        The signal.
    rising : sequence of int
        Times of the clock's rising edges.
    """
    found: list[int] = []
    ends = [*(time for time, _ in changes[1:]), rising[-1] + 1]
    for (time, value), end in zip(changes, ends, strict=True):
        if value:
            found += rising[bisect_right(rising, time) : bisect_right(rising, end)]
    return found


def by_instruction(
    commands: Mapping[str, Sequence[int]], accepted: Sequence[int]
) -> list[dict[str, int]]:
    """Return the number of commands of each operation, for each instruction.

    Parameters
    ----------
    commands : mapping of str to sequence of int
        Times of the commands of each operation, ascending.
    accepted : sequence of int
        Times at which an instruction was accepted. Its commands are those before the next one.
    """
    ends = [*accepted[1:], sys.maxsize]
    return [
        {name: bisect_left(own, end) - bisect_left(own, begin) for name, own in commands.items()}
        for begin, end in zip(accepted, ends, strict=True)
    ]


def channel_bytes(commands: Mapping[str, int], column_bytes: int) -> int:
    """Return the bytes on the channel of an instruction's commands."""
    return column_bytes * sum(commands[name] for name in CARRYING)


def read(file: str, names: Sequence[str]) -> dict[str, Changes]:
    """Return the changes of P3-LLM's signals by their names below the top module."""
    waveform = pywellen.Waveform(file)  # pyright: ignore[reportAttributeAccessIssue]
    found: dict[str, Changes] = {}
    for variable in waveform.all_vars():
        name = variable.full_name.partition("p3llm.")[2]
        if name in names:
            changes = map(variable.signal.__getitem__, range(len(variable.signal)))
            found[name] = [(time, int(value)) for time, value in changes]
    return found


def instructions_of(file: str) -> list[dict[str, int]]:
    """Return the number of commands of each operation, for each instruction of a waveform."""
    operations = [one.name.lower() for one in ColumnOperation]
    stream = ("instructions_valid", "instructions_ready")
    signals = read(file, ["clk", *stream, *(f"channel.{name}" for name in operations)])
    rising = [time for time, value in signals["clk"] if value]
    valid, ready = (set(edges_at_one(signals[name], rising)) for name in stream)
    commands = {name: edges_at_one(signals[f"channel.{name}"], rising) for name in operations}
    return by_instruction(commands, sorted(valid & ready))


def main(file: str, column_bytes: int) -> None:
    """Print the commands and bytes of each instruction of a waveform."""
    for counts in instructions_of(file):
        listed = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
        print(f"{channel_bytes(counts, column_bytes):,} bytes: {listed}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

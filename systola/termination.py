"""What ends a verb ends the programs that it started: simulators, compilers, place and route."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from types import FrameType


class Terminated(BaseException):
    """The process was told to end; no handler of errors may take it for one."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


def end_children_too() -> None:
    """Pass what ends this process on to all that it started, and raise `Terminated` here.

    A terminal sends its interrupt to all of them by itself; it needs nothing.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        # What the caller ignores, as `nohup` does, stays ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def descendants(process: int) -> list[int]:
    """Return the processes that a process started, theirs, and so on."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may hold anything.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [process]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found[1:]


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    for child in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
    raise Terminated(number)

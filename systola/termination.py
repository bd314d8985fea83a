"""Termination of a verb with all programs that it started: simulators, compilers, routers."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from types import FrameType


class Terminated(BaseException):
    """A signal terminates the process; a `BaseException`, so that no error handler catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


def end_children_too() -> None:
    """Forward termination signals to all child processes, and raise `Terminated` in this one.

    A terminal sends its interrupt to all of them, so SIGINT needs no handler.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        # A signal that the caller ignores, as `nohup` does, remains ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def descendants(process: int) -> list[int]:
    """Return the ids of all direct and indirect child processes of a process."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The process name, in parentheses, may contain any character: skip it.
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

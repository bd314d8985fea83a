"""Work of an accelerator with the AXI shell: jobs, and their results in memory and as tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hdl.shell.shell_parameters import ShellParameters


@dataclass(frozen=True)
class Job:
    """A program of one start, and its output tokens.

    Members
    -------
    words : dict[str, list[int]]
        Payloads of each part of the program.
    tokens : list[int | None]
        Expected output tokens; None for one whose value is undefined.
    """

    words: dict[str, list[int]]
    tokens: list[int | None] = field(default_factory=list)


class Work:
    """Jobs, the images of memory before them, and the results after them.

    Members
    -------
    jobs : list[Job]
        The jobs in order.
    written : tuple[str, ...]
        Regions that the jobs write.
    ideal_cycles : int
        Cycles of all jobs without any waiting.
    on_chip : bool
        Whether the state of a text is in the accelerator, so that a stop must precede the jobs.
    """

    written: tuple[str, ...] = ()
    ideal_cycles = 0
    on_chip = False

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def images(self, p: ShellParameters) -> dict[str, Any]:
        """Return the words of each region at the beginning, shape (words, bytes).

        Those of the program are empty.
        """
        raise NotImplementedError

    def results(self, p: Any, images: Mapping[str, Any]) -> dict[str, Any]:
        """Return the words of the regions that the jobs write, at the end; undefined: masked."""
        raise NotImplementedError

    def comparable(self, p: Any, region: str, words: Any) -> Any:
        """Return words of a region that is written, without what has no meaning."""
        return words

    def unread(self, p: Any, region: str) -> int:
        """Return how many words at the end of a region the last job does not access."""
        raise NotImplementedError

    def arranged(self, tokens: Sequence[int]) -> list[int]:
        """Return output tokens in an order that does not depend on the timing."""
        return list(tokens)

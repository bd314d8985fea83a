"""Hosts of accelerators that keep a text on the chip, where a stop destroys it."""

import time
from typing import Any

from hdl.errors import UserError
from systola.host.device import DeviceError, JobResult
from systola.host.shell import ShellHost


class DecodedText(ShellHost):
    """A text that is decoded again after a job that ended with an error.

    A subclass loads the beginning of the text in `_load`, and runs the job of a token in `_decode`.

    Members
    -------
    length : int
        Tokens of the text, those of its beginning included.
    cycles, seconds : int, float
        Cycles of the last token, and the time of its job.
    """

    cycles, seconds = 0, 0.0
    # What begins the text again: tokens that are loaded, and states of the decoded ones.
    _loaded = 0
    _states: list[Any]
    _lost = True

    @property
    def length(self) -> int:
        """Tokens of the text."""
        return self._loaded + len(self._states)

    def _load(self) -> None:
        """Stop the accelerator, and load the beginning of the text."""
        raise NotImplementedError

    def _decode(self, position: int, state: Any, *, predict: bool) -> JobResult:
        """Run the job of a token."""
        raise NotImplementedError

    def _begin(self, loaded: int) -> None:
        """Begin a text of which some tokens are loaded."""
        self._loaded, self._states = loaded, []
        self._reload()

    def _reload(self) -> None:
        """Load the beginning of the text; after an error no text is on the chip."""
        self._lost = True
        self._load()
        self._lost = False

    def _next(self, state: Any, *, most: int, predict: bool) -> JobResult:
        """Decode the next token, and all earlier ones if they are lost.

        Raises
        ------
        UserError
            If the text has `most` tokens.
        DeviceError
            If a job ends with an error, or does not end in time.
        """
        if self.length >= most:
            raise UserError(f"a text must have at most {most} tokens, not {self.length + 1}")
        try:
            if self._lost:
                self._reload()
                for position, own in enumerate(self._states, start=self._loaded):
                    self._decode(position, own, predict=False)
            started = time.monotonic()
            last = self._decode(self.length, state, predict=predict)
        except DeviceError:
            # The stop has cleared what is on the chip.
            self._lost = True
            raise
        self.cycles, self.seconds = last.cycles, time.monotonic() - started
        return last

"""`python -m systola.exploration.supervised VERB ...`: a verb that ends with its parent process."""

import ctypes
import os
import signal
import sys

from systola.start import start

_PR_SET_PDEATHSIG = 1
"""Option of Linux's `prctl`: the signal that a process receives when its parent ends."""


def end_with_parent(parent: int) -> None:
    """Request a signal that ends this process when `parent` ends, even if `parent` is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    end_with_parent(int(os.environ["SYSTOLA_PARENT"]))
    start()

"""`python -m systola.exploration.supervised VERB ...`: a verb that ends with who started it."""

import ctypes
import os
import signal
import sys

from systola.start import start

_PR_SET_PDEATHSIG = 1
"""Linux's `prctl`: the signal that a process gets when its parent is gone."""


def end_with_parent(parent: int) -> None:
    """Let this process be told to end when `parent` does, however that comes about."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    end_with_parent(int(os.environ["SYSTOLA_PARENT"]))
    start()

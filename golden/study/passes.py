"""Losses of finished passes, kept so that an interrupted study does not begin again."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from golden.llm.store import TensorStore
from golden.study.policies import Policy
from golden.study.retention import FlipRates
from hdl.paths import locked
from hdl.sources import code_digest

MODULES = ("golden.study.losses", "golden.study.precision", "golden.llm.model")
"""Code that decides the losses of a pass, together with all that it imports."""


def code_of(model: str) -> str:
    """Return the digest of a model's digest and of the code that measures it."""
    return hashlib.sha256(f"{model} {code_digest(*MODULES)}".encode()).hexdigest()


class Passes:
    """A folder of losses, each under what it depends on.

    Parameters
    ----------
    folder : pathlib.Path
        Made on the first write.
    code : str
        What all passes depend on, as `code_of` gives it.
    """

    def __init__(self, folder: Path, code: str) -> None:
        self._store = TensorStore(folder)
        self._code = code

    def losses(
        self,
        window: np.ndarray,
        policies: Sequence[Policy],
        rates: Sequence[FlipRates] | None,
        variant: str,
        measure: Callable[[], np.ndarray],
    ) -> np.ndarray:
        """Return the losses of a pass, from `measure` unless they are kept already.

        Parameters
        ----------
        window : numpy.ndarray
            Token numbers [tokens].
        policies : Sequence[Policy]
            One a lane.
        rates : Sequence[FlipRates], optional
            Bit errors of each lane.
        variant : str
            What was done to the model.
        measure : Callable
            Runs the pass.
        """
        told = f"{self._code} {window.tolist()} {policies!r} {rates!r} {variant}"
        name = hashlib.sha256(told.encode()).hexdigest()[:16]
        if not self._store.intact(name):
            measured = measure()
            with locked(self._store.folder / "lock"):
                self._store.write(name, {"losses": measured})
        return self._store.read(name, "losses")

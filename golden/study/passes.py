"""Cache of the losses of finished passes, so that an interrupted study can continue."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from golden.llm.store import TensorStore
from golden.policies.protocol import CachePolicy
from golden.study.retention import FlipRates
from hdl.paths import locked
from hdl.sources import code_digest

MODULES = ("golden.study.losses", "golden.study.precision", "golden.llm.model")
"""Modules that determine the losses of a pass, together with their imports."""


def code_of(model: str) -> str:
    """Return a digest of a model's digest and the code that measures the model."""
    return hashlib.sha256(f"{model} {code_digest(*MODULES)}".encode()).hexdigest()


class Passes:
    """A folder of losses, each stored under a key of its inputs.

    Parameters
    ----------
    folder : pathlib.Path
        The folder, which the first write creates.
    code : str
        Digest of the model and the code, see `code_of`.
    """

    def __init__(self, folder: Path, code: str) -> None:
        self._store = TensorStore(folder)
        self._code = code

    def losses(
        self,
        window: np.ndarray,
        policies: Sequence[CachePolicy],
        rates: Sequence[FlipRates] | None,
        variant: str,
        measure: Callable[[], np.ndarray],
    ) -> np.ndarray:
        """Return the losses of a pass from the cache, or from `measure` if they are missing.

        Parameters
        ----------
        window : numpy.ndarray
            Token numbers [tokens].
        policies : Sequence[CachePolicy]
            One policy per lane.
        rates : Sequence[FlipRates], optional
            Bit errors of each lane.
        variant : str
            Identifier of a modification of the model.
        measure : Callable
            Function that runs the pass.
        """
        inputs = f"{self._code} {window.tolist()} {policies!r} {rates!r} {variant}"
        name = hashlib.sha256(inputs.encode()).hexdigest()[:16]
        if not self._store.intact(name):
            measured = measure()
            with locked(self._store.folder / "lock"):
                self._store.write(name, {"losses": measured})
        return self._store.read(name, "losses")

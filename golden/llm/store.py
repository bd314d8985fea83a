"""Named groups of arrays on disk, each verified against the SHA-256 from the time of writing."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np

_log = logging.getLogger(__name__)
_verified: dict[Path, tuple[int, int]] = {}
"""Size and modification time of each file whose checksum this process has verified."""


class TensorStore:
    """A folder of uncompressed ``.npz`` files and their checksums.

    The checksums are in ``SHA256SUMS``, in the format of ``sha256sum -c``. A file appears under
    its name only when it is complete. Writers must hold `hdl.paths.locked`; readers need no lock.

    Parameters
    ----------
    folder
        The folder, which the first write creates.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Return the path of group `name`."""
        return self.folder / f"{name}.npz"

    def intact(self, name: str) -> bool:
        """Return whether group `name` is stored and intact; warn if it was stored and is not."""
        path = self.path(name)
        expected = self._checksums().get(path.name)
        if not path.is_file():
            if expected:
                _log.warning("%s is missing and will be captured again", path)
            return False
        status = path.stat()
        stamp = (status.st_size, status.st_mtime_ns)
        if _verified.get(path) == stamp:
            return True
        if _digest(path) != expected:
            _log.warning("%s does not match its checksum and will be captured again", path)
            return False
        _verified[path] = stamp
        return True

    def read(self, name: str, tensor: str) -> np.ndarray:
        """Return one array of group `name`, read-only."""
        with np.load(self.path(name)) as group:
            array = group[tensor]
        array.flags.writeable = False
        return array

    def write(self, name: str, tensors: Mapping[str, np.ndarray]) -> None:
        """Store `tensors` as group `name`, and replace an earlier group of this name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path, partial = self.path(name), self.folder / f"{name}.partial"
        with partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **tensors)
        checksums = self._checksums() | {path.name: _digest(partial)}
        partial.replace(path)
        listing = self.folder / "SHA256SUMS.partial"
        listing.write_text(
            "".join(f"{digest}  {file}\n" for file, digest in sorted(checksums.items()))
        )
        listing.replace(self.folder / "SHA256SUMS")

    def _checksums(self) -> dict[str, str]:
        """Return the expected SHA-256 of each file by file name."""
        try:
            lines = (self.folder / "SHA256SUMS").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        return {file: digest for digest, _, file in (line.partition("  ") for line in lines)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

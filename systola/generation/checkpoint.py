"""The checkpoint of a run: its tokens, its figures, and its system's state after a block."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdl.paths import replace_bytes, replace_text

State = dict[str, NDArray[Any]]


class Checkpoint:
    """A file that holds the last finished block completely, or does not exist.

    Parameters
    ----------
    folder : Path
        The run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "checkpoint.npz"
        self.record = folder / "record.json"

    def save(self, progress: dict[str, Any], state: State) -> None:
        """Write a run's progress, which must be JSON, and its system's state."""
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(progress).encode(), np.uint8)
        np.savez(buffer, allow_pickle=False, progress=text, **state)
        content = buffer.getvalue()
        replace_bytes(self.file, hashlib.sha256(content).digest() + content)

    def load(self) -> tuple[dict[str, Any], State] | None:
        """Return progress and state, or None if the file is absent or corrupted."""
        try:
            content = self.file.read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        with np.load(io.BytesIO(content[32:]), allow_pickle=False) as arrays:
            state = {name: arrays[name] for name in arrays.files}
        return json.loads(state.pop("progress").tobytes()), state

    def forget(self) -> None:
        """Remove the file: the next run starts from the beginning."""
        self.file.unlink(missing_ok=True)

    def write_record(self, record: dict[str, Any]) -> None:
        """Write the record: what repeats the run, and its results."""
        replace_text(self.record, json.dumps(record, indent=1, ensure_ascii=False) + "\n")

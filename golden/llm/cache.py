"""The cache of captured tensors in `build/llm/`: missing ones are captured."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from golden.llm import capture, model
from golden.llm.model import SMOLLM2
from golden.llm.store import TensorStore
from golden.llm.texts import text_named
from golden.llm.trace import Trace, group
from hdl import paths
from hdl.sources import code_digest


def open_trace(
    *, text: str = "prose", tokens: int = 640, layers: Iterable[int] = (0, 14, 29)
) -> Trace:
    """Return the model's tensors over the first `tokens` tokens of a text.

    Tensors that are missing or corrupted in `build/llm/` are captured first, in a single pass of
    the model, which takes about ten seconds.

    Parameters
    ----------
    text
        Name of the text, as in `text_named`.
    tokens
        Length of the context, between 1 and 8192 and no longer than the text.
    layers
        The layers to open, each between 0 and 29.

    Raises
    ------
    ValueError
        A parameter violates its rule.
    DataFileError
        A data file is missing or corrupted.
    """
    content = text_named(text)
    opened = tuple(sorted(set(layers)))
    if not opened:
        raise ValueError("layers must name at least one layer")
    for layer in opened:
        if not 0 <= layer < SMOLLM2.layers:
            raise ValueError(f"layers must be between 0 and {SMOLLM2.layers - 1}, not {layer}")
    if not 1 <= tokens <= SMOLLM2.context_length:
        raise ValueError(f"tokens must be between 1 and {SMOLLM2.context_length}, not {tokens}")
    # Cached tensors do not need the model file; the check reports a corrupted file early.
    model.find_gguf()

    folder = paths.BUILD / "llm"
    activations = TensorStore(folder / f"{text}-{tokens}-{_key(content, tokens)}")
    weights = TensorStore(folder / f"weights-{_key()}")
    # If two processes open the same tensors, the second waits and reads the files of the first.
    with paths.locked(folder / "lock"):
        tokens_stored = activations.intact("tokens")
        activations_missing = [n for n in opened if not activations.intact(group(n))]
        weights_missing = [n for n in opened if not weights.intact(group(n))]
        if activations_missing or weights_missing or not tokens_stored:
            with _progress() as show:
                show("Splitting the text into tokens")
                numbers = _first_tokens(content, tokens)
                weights_of = model.open_smollm2().tensor
                show(f"Running SmolLM2-135M-Instruct over {tokens} tokens")
                recorded = capture.capture_activations(weights_of, numbers, activations_missing)
                show("Writing the tensors")
                activations.write("tokens", {"tokens": numbers})
                for layer, tensors in recorded.items():
                    activations.write(group(layer), tensors)
                for layer in weights_missing:
                    weights.write(group(layer), capture.capture_weights(weights_of, layer))
    return Trace(
        tokens=activations.read("tokens", "tokens"),
        layers=opened,
        activations=activations,
        weights=weights,
    )


def _first_tokens(content: str, count: int) -> np.ndarray:
    """Return the first `count` token numbers of a text."""
    numbers = model.load_tokens(content)
    if len(numbers) < count:
        raise ValueError(
            f"tokens must be at most {len(numbers)}, the length of the text, not {count}"
        )
    return numbers[:count]


def _key(*inputs: object) -> str:
    """Return a hash of everything that determines the tensors: model, code, packages, inputs."""
    digest = hashlib.sha256(model.GGUF_SHA256.encode())
    # `golden.llm.model`, which the digest covers, contains the dimensions of the model.
    code = code_digest("golden.llm.capture", "golden.llm.model", without=("hdl.model_shape",))
    digest.update(code.encode())
    for value in inputs:
        digest.update(str(value).encode() + b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the current step if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda message: None
        return
    # Imported here, because a process that only reads the cache prints nothing.
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update

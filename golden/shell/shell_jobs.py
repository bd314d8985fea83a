"""Model of an accelerator with the AXI shell: words in memory, and the end of a job."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdl.shell.axi import Cause
from hdl.shell.shell_parameters import ShellParameters

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Region:
    """A region of memory: byte addresses of its first byte, and of the first byte after it."""

    first: int
    end: int


@dataclass(frozen=True)
class JobError:
    """The error that ends a job: code of its cause, number of its source, byte address."""

    cause: int
    source: int
    address: int


def padded(words: Bytes, word_bytes: int) -> Bytes:
    """Return words [words, bytes] as they are in memory, with zeros after each word."""
    padding = word_bytes - words.shape[1]
    return np.pad(words, ((0, 0), (0, padding)))


def program_words(payloads: Iterable[int], word_bytes: int) -> Bytes:
    """Return the payloads of a part of a program as words in memory."""
    content = b"".join(one.to_bytes(word_bytes, "little") for one in payloads)
    return np.frombuffer(content, np.uint8).reshape(-1, word_bytes)


def refused(
    p: ShellParameters, regions: Mapping[str, Region], port: str, address: int, length: int
) -> JobError | None:
    """Return the error of a request of words at a port, or None if it is within its region."""
    ports = {one.name: one for one in p.ports}
    region, size = regions[ports[port].region], p.word_bytes(ports[port].word_bits)
    first = region.first + address * size
    if length <= p.longest and first + length * size <= region.end:
        return None
    source = list(ports).index(port)
    return JobError(Cause.DECERR.value, source, first % (1 << p.axi_address_bits))

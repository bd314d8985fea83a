"""Model of the read master: words of requests, in order, from a memory of bytes."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from golden.shell.axi_bursts import Request, all_bursts, byte_addresses
from hdl.shell.axi_parameters import AxiMasterParameters


def read_words(
    p: AxiMasterParameters, requests: Sequence[Request], read: Callable[[int], int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the words of all requests [words, word_bytes], and which word is a request's last.

    Parameters
    ----------
    p : AxiMasterParameters
        Dimensions of both ports.
    requests : Sequence[Request]
        The requests in order.
    read : Callable[[int], int]
        Return the byte at an address of the memory.
    """
    joined = bytes(read(address) for one in requests for address in byte_addresses(p, one))
    last = [number == one.length - 1 for one in requests for number in range(one.length)]
    words = np.frombuffer(joined, np.uint8).reshape(-1, p.word_bytes)
    return words.astype(np.int64), np.array(last, np.int64)


def beat_addresses(p: AxiMasterParameters, requests: Sequence[Request]) -> list[int]:
    """Return the byte address of each beat that the requests read."""
    return [
        burst.address + number * p.data_bytes
        for burst in all_bursts(p, requests)
        for number in range(burst.beats)
    ]

"""Model of the write master: the bytes that requests write, and when all words are visible."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from golden.shell.axi_bursts import Request, axi_bursts, byte_addresses
from hdl.shell.axi_parameters import AxiMasterParameters

Integers = NDArray[np.int64]


def written_bytes(
    p: AxiMasterParameters, requests: Sequence[Request], words: Integers
) -> tuple[Integers, Integers]:
    """Return address and value of each byte that requests write, in order.

    Parameters
    ----------
    p : AxiMasterParameters
        Dimensions of both ports.
    requests : Sequence[Request]
        The requests in order.
    words : numpy.ndarray
        The words of all requests [words, word_bytes].
    """
    addresses = [address for request in requests for address in byte_addresses(p, request)]
    return np.array(addresses, np.uint64).view(np.int64), words.reshape(-1)


def words_complete(p: AxiMasterParameters, requests: Sequence[Request]) -> list[int]:
    """Return for each AXI4 burst the number of words that end in it or in an earlier burst."""
    counts, before = [], 0
    for request in requests:
        # Bytes that the request may have written up to the end of each burst.
        end = (request.base * p.data_bytes + request.address * p.word_bytes) % p.data_bytes
        covered = -end
        for burst in axi_bursts(p, request):
            covered += burst.beats * p.data_bytes
            counts.append(before + min(request.length, covered // p.word_bytes))
        before += request.length
    return counts

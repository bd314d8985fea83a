"""AXI4 bursts of a burst port's requests, derived from the bytes that each request covers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hdl.shell.axi import PAGE_BYTES
from hdl.shell.axi_parameters import AxiMasterParameters


@dataclass(frozen=True)
class Request:
    """A request at the burst port.

    Parameters
    ----------
    base : int
        Address of word 0 in beats.
    address, length : int
        First word, and number of words.
    """

    base: int
    address: int
    length: int


@dataclass(frozen=True)
class AxiBurst:
    """An AXI4 burst: byte address of its first beat, and number of beats."""

    address: int
    beats: int


def byte_addresses(p: AxiMasterParameters, request: Request) -> list[int]:
    """Return the address of each byte of a request; addresses wrap at the end of the space."""
    space = 1 << p.axi_address_bits
    first = request.base * p.data_bytes + request.address * p.word_bytes
    return [(first + byte) % space for byte in range(request.length * p.word_bytes)]


def axi_bursts(p: AxiMasterParameters, request: Request) -> list[AxiBurst]:
    """Return the AXI4 bursts of a request.

    A burst has consecutive beats; it ends where the request ends, or where the next beat would
    begin a page or a multiple of the longest burst.
    """
    touched: list[int] = []
    for address in byte_addresses(p, request):
        beat = address // p.data_bytes
        if not touched or touched[-1] != beat:
            touched.append(beat)
    bursts: list[AxiBurst] = []
    for number, beat in enumerate(touched):
        address = beat * p.data_bytes
        limits = (PAGE_BYTES, p.burst_beats * p.data_bytes)
        if number == 0 or any(address % limit == 0 for limit in limits):
            bursts.append(AxiBurst(address, 1))
        else:
            bursts[-1] = AxiBurst(bursts[-1].address, bursts[-1].beats + 1)
    return bursts


def all_bursts(p: AxiMasterParameters, requests: Iterable[Request]) -> list[AxiBurst]:
    """Return the AXI4 bursts of several requests in order."""
    return [burst for request in requests for burst in axi_bursts(p, request)]


def first_error(
    answers: Sequence[tuple[int, int]], respond: Callable[[int], int]
) -> tuple[int, int]:
    """Return cause and address of the first error, or zeros without one.

    Parameters
    ----------
    answers : Sequence[tuple[int, int]]
        For each response in order the address that `respond` takes, and the address to report.
    respond : Callable[[int], int]
        The code of the response.
    """
    for asked, reported in answers:
        if code := respond(asked):
            return code, reported
    return 0, 0

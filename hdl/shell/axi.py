"""Signals and codes of AXI4, as the Arm specification (IHI 0022) names them.

Masters use one ID and incrementing bursts of whole beats. Signals that the specification makes
optional and that have their default values, such as `arlock` and `arqos`, are left out.
"""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Member, Out, Signature
from amaranth.utils import exact_log2

from hdl.parameters import require_power_of_two, require_range

PAGE_BYTES = 4096
"""A burst must not cross a multiple of this address."""

MOST_BEATS = 256
"""Maximum number of beats of an incrementing burst."""

INCREMENTING = 1
"""Code of `arburst` and `awburst` for an incrementing burst."""

CACHE = 0b0011
"""Code of `arcache` and `awcache`: normal memory, not cacheable, bufferable."""

PROTECTION = 0b000
"""Code of `arprot` and `awprot`: data access, secure, unprivileged."""


class Response(enum.Enum, shape=2):
    """Codes of `rresp` and `bresp`."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Cause(enum.Enum, shape=2):
    """Causes of an error; the codes are those of the response.

    `UNEXPECTED` is a response that AXI4 does not allow here: EXOKAY without an exclusive access,
    another ID, or `rlast` with another beat than the last.
    """

    NONE = 0
    UNEXPECTED = 1
    SLVERR = 2
    DECERR = 3


def error_layout(address_bits: int) -> data.StructLayout:
    """Return the layout of a latched error: its `cause` (NONE without an error), its `address`."""
    return data.StructLayout({"cause": Cause, "address": address_bits})


def _require_dimensions(address_bits: int, data_bytes: int) -> None:
    require_range("address_bits", address_bits, 12, 64)
    require_power_of_two("data_bytes", data_bytes, 4, 128)


def _address_channel(prefix: str, address_bits: int) -> dict[str, Member]:
    """Return the members of a read or write address channel."""
    widths = {"id": 1, "addr": address_bits, "len": 8, "size": 3, "burst": 2}
    widths |= {"cache": 4, "prot": 3, "valid": 1}
    outputs = {f"{prefix}{name}": Out(width) for name, width in widths.items()}
    return {**outputs, f"{prefix}ready": In(1)}


class AxiReadSignature(Signature):
    """Read channels of AXI4, with directions as seen by the master.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address, 12 to 64.
    data_bytes : int
        Bytes per beat, a power of two from 4 to 128.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def __init__(self, *, address_bits: int, data_bytes: int) -> None:
        _require_dimensions(address_bits, data_bytes)
        super().__init__(
            {
                **_address_channel("ar", address_bits),
                "rid": In(1),
                "rdata": In(8 * data_bytes),
                "rresp": In(Response),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class AxiWriteSignature(Signature):
    """Write channels of AXI4, with directions as seen by the master.

    Parameters
    ----------
    address_bits, data_bytes : int
        As for `AxiReadSignature`.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def __init__(self, *, address_bits: int, data_bytes: int) -> None:
        _require_dimensions(address_bits, data_bytes)
        super().__init__(
            {
                **_address_channel("aw", address_bits),
                "wdata": Out(8 * data_bytes),
                "wstrb": Out(data_bytes),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(1),
                "bresp": In(Response),
                "bvalid": In(1),
                "bready": Out(1),
            }
        )


class AxiLiteSignature(Signature):
    """AXI4-Lite with 32 bits of data, with directions as seen by the manager.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address, 12 to 64.

    Raises
    ------
    ValueError
        If the number is out of range.
    """

    def __init__(self, *, address_bits: int) -> None:
        _require_dimensions(address_bits, 4)
        super().__init__(
            {
                "awaddr": Out(address_bits),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(Response),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_bits),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(Response),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


def connect_address_channel(
    m: Module, bursts: stream.Interface, port: Any, prefix: str, *, data_bytes: int
) -> None:
    """Connect a stream of bursts, with `addr` and `len`, to an address channel.

    Parameters
    ----------
    m : Module
        The module that drives the channel.
    bursts : stream.Interface
        The bursts.
    port : interface
        Interface of an `AxiReadSignature` or `AxiWriteSignature`.
    prefix : str
        ``"ar"`` or ``"aw"``.
    data_bytes : int
        Bytes per beat.
    """
    driven = {
        "id": 0,
        "addr": bursts.payload.addr,
        "len": bursts.payload.len,
        "size": exact_log2(data_bytes),
        "burst": INCREMENTING,
        "cache": CACHE,
        "prot": PROTECTION,
        "valid": bursts.valid,
    }
    m.d.comb += [getattr(port, prefix + name).eq(value) for name, value in driven.items()]
    m.d.comb += bursts.ready.eq(getattr(port, f"{prefix}ready"))

"""An AXI4-Stream interface for a unit: a Verilog wrapper that Vivado's IP packager supports.

Every input stream becomes ``s_axis_<name>_*``, every output stream ``m_axis_<name>_*``, with data
padded to whole bytes: padding of an input is ignored, of an output it is zero. Ports that are no
stream keep their names. ``aresetn`` is synchronous to ``aclk``, as the AXI4-Stream rules allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hdl.emit import Port


@dataclass(frozen=True, kw_only=True)
class StreamPorts:
    """The ports of one stream.

    Parameters
    ----------
    name : str
        The stream's name in the unit.
    sink : bool
        Whether the unit receives it.
    width : int
        Bits of the payload.
    members : frozenset[str]
        Which of ``payload``, ``valid``, ``ready`` are ports.
    """

    name: str
    sink: bool
    width: int
    members: frozenset[str]

    @property
    def interface(self) -> str:
        """Name of the AXI4-Stream interface."""
        return f"{'s' if self.sink else 'm'}_axis_{self.name}"

    @property
    def bytes(self) -> int:
        """Bytes of TDATA."""
        return max(1, -(-self.width // 8))


def find_streams(ports: Sequence[Port]) -> tuple[list[StreamPorts], list[Port]]:
    """Split ports into streams and others, without clock and reset."""
    groups: dict[str, dict[str, Port]] = {}
    for port in ports:
        *path, member = port.path
        if path and member in ("payload", "valid", "ready"):
            groups.setdefault("_".join(path), {})[member] = port
    streams = [
        StreamPorts(
            name=name,
            sink=_is_sink(members),
            width=members["payload"].width if "payload" in members else 0,
            members=frozenset(members),
        )
        for name, members in groups.items()
        if "valid" in members or "ready" in members
    ]
    names = {f"{stream.name}_{member}" for stream in streams for member in stream.members}
    others = [port for port in ports if port.name not in names | {"clk", "rst"}]
    return streams, others


def write_wrapper(top: str, ports: Sequence[Port]) -> str:
    """Write the wrapper module ``<top>_axis``.

    Parameters
    ----------
    top : str
        The wrapped module.
    ports : Sequence[Port]
        Its ports.

    Raises
    ------
    ValueError
        If the module has no clock or no stream.
    """
    streams, others = find_streams(ports)
    names = {port.name for port in ports}
    if not streams or "clk" not in names:
        raise ValueError(f"an AXI4-Stream wrapper needs a clock and a stream; {top} has none")
    interfaces = ":".join(stream.interface for stream in streams)
    header = [
        (
            '  (* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 aclk CLK" *)\n'
            f'  (* X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF {interfaces}, '
            'ASSOCIATED_RESET aresetn" *)\n'
            "  input aclk"
        ),
        (
            '  (* X_INTERFACE_INFO = "xilinx.com:signal:reset:1.0 aresetn RST" *)\n'
            '  (* X_INTERFACE_PARAMETER = "POLARITY ACTIVE_LOW" *)\n'
            "  input aresetn"
        ),
    ]
    body, connections = [], [".clk(aclk)"]
    if "rst" in names:
        connections.append(".rst(~aresetn)")
    for stream in streams:
        header += _axis_ports(stream)
        declarations, nets = _connect(stream)
        body += declarations
        connections += nets
    for port in others:
        header.append(f"  {port.direction} {_range(port.width)}{port.name}")
        connections.append(f".{port.name}({port.name})")
    lines = [
        f"// {top}_axis: {top} with AXI4-Stream interfaces.",
        f"module {top}_axis (",
        ",\n".join(header),
        ");",
        *body,
        f"  {top} wrapped (",
        ",\n".join(f"    {connection}" for connection in connections),
        "  );",
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _is_sink(members: dict[str, Port]) -> bool:
    """Return whether the unit receives the stream, from the directions of the ports."""
    if "ready" in members:
        return members["ready"].direction == "output"
    return members["valid"].direction == "input"


def _axis_ports(stream: StreamPorts) -> list[str]:
    """Declare one interface."""
    forward, backward = ("input", "output") if stream.sink else ("output", "input")
    signals = [
        ("TDATA", forward, f"[{8 * stream.bytes - 1}:0] "),
        ("TVALID", forward, ""),
        ("TREADY", backward, ""),
    ]
    parameters = f"TDATA_NUM_BYTES {stream.bytes}, HAS_TREADY 1, HAS_TLAST 0"
    lines = []
    for index, (signal, direction, width) in enumerate(signals):
        name = f"{stream.interface}_{signal.lower()}"
        info = f"xilinx.com:interface:axis:1.0 {stream.interface} {signal}"
        extra = f'  (* X_INTERFACE_PARAMETER = "{parameters}" *)\n' if index == 0 else ""
        lines.append(f'  (* X_INTERFACE_INFO = "{info}" *)\n{extra}  {direction} {width}{name}')
    return lines


def _connect(stream: StreamPorts) -> tuple[list[str], list[str]]:
    """Connect one stream; a member without a port is constant by the stream's contract."""
    interface, body, nets = stream.interface, [], []
    tdata = f"{interface}_tdata"
    values = {
        "payload": f"{tdata}[{stream.width - 1}:0]",
        "valid": f"{interface}_tvalid",
        "ready": f"{interface}_tready",
    }
    if stream.sink and "ready" not in stream.members:
        body.append(f"  assign {interface}_tready = 1'b1;")
    if not stream.sink and "valid" not in stream.members:
        body.append(f"  assign {interface}_tvalid = 1'b1;")
    padding = 8 * stream.bytes - stream.width
    if padding and not stream.sink:
        body.append(f"  assign {tdata}[{8 * stream.bytes - 1}:{stream.width}] = {padding}'b0;")
    for member, value in values.items():
        if member in stream.members:
            nets.append(f".{stream.name}_{member}({value})")
    return body, nets


def _range(width: int) -> str:
    """Write a port's range."""
    return f"[{width - 1}:0] " if width > 1 else ""

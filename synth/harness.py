"""A wrapper with four pins for a design that has more ports than a package has pins.

A shift register drives every input. Every output is registered and feeds a signature register, so
that no logic is optimised away. Every path of the design begins and ends in a register, as in a
larger system.
"""

from collections.abc import Sequence

from hdl.emit import Port

HARNESS = "systola_harness"


def write_harness(top: str, ports: Sequence[Port]) -> str:
    """Write the harness of a design as Verilog.

    Parameters
    ----------
    top : str
        The design's top module.
    ports : Sequence[Port]
        Its ports; ``clk`` and ``rst`` are connected as such.
    """
    data = [port for port in ports if port.name not in ("clk", "rst")]
    inputs = [port for port in data if port.direction == "input"]
    outputs = [port for port in data if port.direction == "output"]
    into, out = _bits(inputs), _bits(outputs)
    connections = [f".{port.name}({port.name})" for port in ports if port not in data]
    connections += _slices(inputs, "stimulus") + _slices(outputs, "response")
    return f"""module {HARNESS}(input clk, input rst, input serial_in, output serial_out);
  reg [{into - 1}:0] stimulus;
  wire [{out - 1}:0] response;
  reg [{out - 1}:0] captured;
  reg [{out - 1}:0] signature;
  always @(posedge clk) begin
    stimulus <= {_shifted("stimulus", into, "serial_in")};
    captured <= response;
    signature <= {_shifted("signature", out, "signature[" + str(out - 1) + "]")} ^ captured;
  end
  assign serial_out = signature[{out - 1}];
  {top} wrapped (
    {f",{chr(10)}    ".join(connections)}
  );
endmodule
"""


def _bits(ports: Sequence[Port]) -> int:
    """Return the number of bits, at least one."""
    return max(1, sum(port.width for port in ports))


def _slices(ports: Sequence[Port], vector: str) -> list[str]:
    """Return the connections of each port to its slice of a vector."""
    connections, low = [], 0
    for port in ports:
        connections.append(f".{port.name}({vector}[{low + port.width - 1}:{low}])")
        low += port.width
    return connections


def _shifted(vector: str, width: int, first: str) -> str:
    """Return a vector shifted up by one, with a new lowest bit."""
    return f"{{{vector}[{width - 2}:0], {first}}}" if width > 1 else first

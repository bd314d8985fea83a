"""Routing layers of a LEF file: direction, pitch, width, resistance and capacitance."""

import re
from dataclasses import dataclass
from pathlib import Path

from hdl.errors import UserError

_LAYER = re.compile(r"^LAYER\s+(\S+)\s*\n(.*?)^END\s+\1\s*$", flags=re.M | re.S)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A routing layer.

    Parameters
    ----------
    name : str
        Name of the layer.
    direction : str
        ``HORIZONTAL`` or ``VERTICAL``.
    pitch, width : float
        Distance of tracks and width of a wire, in um.
    ohm_per_square : float
        Resistance of a square.
    area_ff_per_um2, edge_ff_per_um : float
        Capacitance of an area and of each edge.
    """

    name: str
    direction: str
    pitch: float
    width: float
    ohm_per_square: float
    area_ff_per_um2: float
    edge_ff_per_um: float

    @property
    def ohm_per_um(self) -> float:
        """Resistance of one um of wire."""
        return self.ohm_per_square / self.width

    @property
    def ff_per_um(self) -> float:
        """Capacitance of one um of wire, with both edges."""
        return self.width * self.area_ff_per_um2 + 2 * self.edge_ff_per_um


def read_layers(lef: Path) -> list[Layer]:
    """Return the routing layers of a LEF file in the order of the file.

    Raises
    ------
    UserError
        If the file has no routing layer, or a layer without width, pitch or direction.
    """
    layers: list[Layer] = []
    for name, body in _LAYER.findall(re.sub(r"#[^\n]*", "", lef.read_text(errors="replace"))):
        if not re.search(r"\bTYPE\s+ROUTING\b", body):
            continue
        direction = re.search(r"\bDIRECTION\s+(HORIZONTAL|VERTICAL)\b", body)
        width, pitch = _value(body, "WIDTH"), _value(body, "PITCH")
        if not direction or not width or not pitch:
            raise UserError(f"LEF must state direction, width and pitch of layer {name} in '{lef}'")
        layers.append(
            Layer(
                name=name,
                direction=direction[1],
                pitch=pitch,
                width=width,
                ohm_per_square=_value(body, r"RESISTANCE\s+RPERSQ"),
                area_ff_per_um2=1e3 * _value(body, r"CAPACITANCE\s+CPERSQDIST"),
                edge_ff_per_um=1e3 * _value(body, "EDGECAPACITANCE"),
            )
        )
    if not layers:
        raise UserError(f"LEF must be a LEF file with routing layers, not '{lef}'")
    return layers


def _value(body: str, key: str) -> float:
    """Return a number of a layer, 0 if absent."""
    found = re.search(rf"(?<!\w){key}\s+([-+.\deE]+)", body)
    return float(found[1]) if found else 0.0

"""Dimensions and payloads that the parts of the mode-aware unpacker share."""

from typing import Annotated

from amaranth.hdl import unsigned
from amaranth.lib import data

from hdl.meadow.wilu.packet_format import LONGEST_ID, MODES, MOST_CLASSES, PacketKind
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require

COUNT_BITS = 28
"""Of a matrix's number of IDs."""

WIDTH_BITS = LONGEST_ID.bit_length()
"""Of a table's entry."""


@parameter_object
class UnpackerParameters(Parameters):
    """Dimensions of a mode-aware unpacker.

    Parameters
    ----------
    lanes : int
        IDs that leave in a cycle.
    packet_bits : int
        Bits of a packet.
    id_bits : int
        Bits of an ID at most.
    classes : bool
        Whether packets with a class an ID can be unpacked. Then the offsets of a group of lanes
        must fit into one packet.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    lanes: Annotated[int, Range(2, 48, "IDs")] = 8
    packet_bits: Annotated[int, PowerOfTwo(64, 1024, "bits")] = 128
    id_bits: Annotated[int, Range(2, LONGEST_ID, "bits")] = LONGEST_ID
    classes: bool = True

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        most = self.packet_bits // self.id_bits
        if self.classes:
            require(self.lanes <= most, f"lanes must be at most {most} with classes", self.lanes)

    @property
    def fields(self) -> int:
        """Fields that leave a packet in a cycle: as many as keep all lanes busy, see below.

        A packet of more than ``2 * lanes`` fields takes n cycles for more than ``2 * lanes * (n -
        1)`` of them, which is at least ``lanes`` a cycle; one of fewer takes one cycle.
        """
        return 2 * self.lanes

    @property
    def matrix_layout(self) -> data.StructLayout:
        """What is told of a matrix before its packets."""
        return data.StructLayout(
            {
                "kind": PacketKind,
                "count": COUNT_BITS,
                "unique": self.id_bits + 1,
                "wide_classes": 1,
                "widths": data.ArrayLayout(unsigned(WIDTH_BITS), MODES),
                "bases": data.ArrayLayout(unsigned(self.id_bits), MOST_CLASSES),
            }
        )

    @property
    def packet_layout(self) -> data.StructLayout:
        """A packet; `last` with the matrix's last."""
        return data.StructLayout({"packet": self.packet_bits, "last": 1})

    @property
    def payload_layout(self) -> data.StructLayout:
        """Fields of one width, which `select` marks by a one at its place, from width 1 on."""
        number = range(self.packet_bits + 1)
        return data.StructLayout(
            {"payload": self.packet_bits, "select": self.id_bits, "number": number, "last": 1}
        )

    @property
    def fields_layout(self) -> data.StructLayout:
        """Fields of a packet that leave together; `number` of them are there."""
        ids = data.ArrayLayout(unsigned(self.id_bits), self.fields)
        return data.StructLayout({"ids": ids, "number": range(self.fields + 1), "last": 1})

    @property
    def group_layout(self) -> data.StructLayout:
        """IDs that leave together; `count` of them are there, all but in a matrix's last group."""
        ids = data.ArrayLayout(unsigned(self.id_bits), self.lanes)
        return data.StructLayout({"ids": ids, "count": range(self.lanes + 1), "last": 1})


RESULT = data.StructLayout({"mode": 1, "range": 1, "truncated": 1, "excess": 1})
"""What was wrong with a matrix's packets: a mode without a width; an ID beyond the unique matrix;
fewer IDs or offsets than there must be, or more packets."""

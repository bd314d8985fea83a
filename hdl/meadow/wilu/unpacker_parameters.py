"""Dimensions and payloads of the mode-aware unpacker and its parts."""

from typing import Annotated

from amaranth.hdl import unsigned
from amaranth.lib import data

from hdl.meadow.wilu.packet_format import (
    CLASS_BITS,
    LONGEST_ID,
    MODES,
    MOST_CLASSES,
    PacketKind,
)
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require

COUNT_BITS = 28
"""Bits of the number of IDs of a matrix."""

WIDTH_BITS = LONGEST_ID.bit_length()
"""Bits of an entry of a table of widths."""


@parameter_object
class UnpackerParameters(Parameters):
    """Dimensions of a mode-aware unpacker.

    Parameters
    ----------
    lanes : int
        IDs per cycle at the output.
    packet_bits : int
        Bits of a packet.
    id_bits : int
        Maximum bits of an ID; at least those of a class, if the unpacker supports classes.
    classes : bool
        Whether the unpacker supports packets with one class per ID. Then the offsets of a group of
        lanes must fit into one packet.

    Raises
    ------
    ValueError
        If a value breaks a rule; the message names the rule and the value.
    """

    lanes: Annotated[int, Range(2, 64, "IDs")] = 8
    packet_bits: Annotated[int, PowerOfTwo(64, 1024, "bits")] = 128
    id_bits: Annotated[int, Range(2, LONGEST_ID, "bits")] = LONGEST_ID
    classes: bool = True

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        most = self.packet_bits // self.id_bits
        if self.classes:
            # A class has the width of a field, which is at most that of an ID.
            rule = f"id_bits must be at least {CLASS_BITS[-1]}, the bits of a class, with classes"
            require(self.id_bits >= CLASS_BITS[-1], rule, self.id_bits)
            require(self.lanes <= most, f"lanes must be at most {most} with classes", self.lanes)

    @property
    def fields(self) -> int:
        """Fields extracted per cycle, enough to keep all lanes busy.

        A packet of more than ``2 * lanes`` fields takes n cycles for more than ``2 * lanes * (n -
        1)`` of them, which is at least ``lanes`` a cycle; one of fewer takes one cycle.
        """
        return 2 * self.lanes

    @property
    def matrix_layout(self) -> data.StructLayout:
        """Description of a matrix; `ModeAwareUnpacker` describes its fields."""
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
        """A packet; `last` with the last one of a matrix."""
        return data.StructLayout({"packet": self.packet_bits, "last": 1})

    @property
    def coded_layout(self) -> data.StructLayout:
        """Fields of `width` bits, before they are counted; `whole` without a mode field.

        A width of 0 is an undefined mode.
        """
        return data.StructLayout({"payload": self.packet_bits, "width": WIDTH_BITS, "whole": 1})

    @property
    def payload_layout(self) -> data.StructLayout:
        """Fields of one width; bit i of `select` is 1 for width i + 1 and 0 for all others."""
        number = range(self.packet_bits + 1)
        return data.StructLayout(
            {"payload": self.packet_bits, "select": self.id_bits, "number": number, "last": 1}
        )

    @property
    def fields_layout(self) -> data.StructLayout:
        """Fields of a packet that are output in one cycle; the first `number` are valid."""
        ids = data.ArrayLayout(unsigned(self.id_bits), self.fields)
        return data.StructLayout({"ids": ids, "number": range(self.fields + 1), "last": 1})

    @property
    def group_layout(self) -> data.StructLayout:
        """A group: IDs that are output in one cycle; the first `count` are valid.

        Only the last group of a matrix may be partial.
        """
        ids = data.ArrayLayout(unsigned(self.id_bits), self.lanes)
        return data.StructLayout({"ids": ids, "count": range(self.lanes + 1), "last": 1})


RESULT = data.StructLayout({"mode": 1, "range": 1, "truncated": 1, "excess": 1})
"""Errors of a matrix's packets: a mode without a width (`mode`); an ID outside the unique matrix
(`range`); too few IDs or offsets (`truncated`); surplus packets (`excess`)."""

"""Dimensions and payloads of the weight unpacker."""

from typing import Annotated

from amaranth.hdl import signed
from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.meadow.wilu.packet_format import LONGEST_ID
from hdl.meadow.wilu.unpacker_parameters import RESULT, UnpackerParameters
from hdl.parameters import Parameters, PowerOfTwo, parameter_object, require


@parameter_object
class WeightUnpackerParameters(Parameters):
    """Dimensions of a weight unpacker.

    Parameters
    ----------
    unpacker : UnpackerParameters
        Dimensions of the mode-aware unpacker; its IDs must be at least as wide as a chunk, since
        raw weights pass through it as IDs.
    chunk : int
        Weights of a chunk, the paper's C.
    entries : int
        Rows of the largest unique matrix; at most the number of different IDs.
    rows : int
        Rows per word of a unique matrix, all of which are loaded in one cycle; at most `entries`.

    Raises
    ------
    ValueError
        If a value breaks a rule; the message names the rule and the value.
    """

    unpacker: UnpackerParameters = UnpackerParameters()
    chunk: Annotated[int, PowerOfTwo(1, 2, "weights")] = 2
    entries: Annotated[int, PowerOfTwo(2, 1 << LONGEST_ID, "chunks")] = 4096
    rows: Annotated[int, PowerOfTwo(1, 32, "chunks")] = 1

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        least, bits = 8 * self.chunk, self.unpacker.id_bits
        require(bits >= least, f"unpacker.id_bits must be at least {least}, a chunk's bits", bits)
        most = 1 << bits
        require(self.entries <= most, f"entries must be at most {most}", self.entries)
        require(self.rows <= self.entries, f"rows must be at most {self.entries}", self.rows)

    @property
    def address_bits(self) -> int:
        """Bits of the address of a word of a table, whose top bit selects the half."""
        return ceil_log2(self.words) + 1

    @property
    def words(self) -> int:
        """Words of the largest unique matrix."""
        return self.entries // self.rows

    @property
    def table_layout(self) -> data.StructLayout:
        """A word of a unique matrix; `last` with the last word."""
        return data.StructLayout({"weights": self.rows_layout, "last": 1})

    @property
    def rows_layout(self) -> data.ArrayLayout:
        """Rows of a unique matrix, one chunk each; the first is in the least significant bits."""
        return data.ArrayLayout(self.chunk_layout, self.rows)

    @property
    def chunk_layout(self) -> data.ArrayLayout:
        """A chunk; the first weight is in the least significant bits."""
        return data.ArrayLayout(signed(8), self.chunk)

    @property
    def matrix_layout(self) -> data.StructLayout:
        """Description of a matrix; with `bypass` its fields are chunks of raw weights, not IDs."""
        return data.StructLayout({"packed": self.unpacker.matrix_layout, "bypass": 1})

    @property
    def weights_layout(self) -> data.StructLayout:
        """Chunks that are output in one cycle; the first `count` are valid."""
        chunks = data.ArrayLayout(self.chunk_layout, self.unpacker.lanes)
        return data.StructLayout(
            {"weights": chunks, "count": range(self.unpacker.lanes + 1), "last": 1}
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """Errors of a matrix: those of its packets, and of its unique matrix (`table`)."""
        return data.StructLayout({"packets": RESULT, "table": 1})

"""Dimensions of LAD with the AXI shell: its memory ports, and the places of words in memory."""

from dataclasses import field
from functools import cached_property

from amaranth.hdl import ShapeLike
from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.lad.eas.eas_parameters import CENTRE_BITS
from hdl.lad.fp16 import FP16
from hdl.lad.parameters import LadParameters
from hdl.parameters import parameter_object, require
from hdl.shell.shell_parameters import RegionPort, ShellParameters

LONGEST = 1 << 20
"""Words of the longest burst, such as the weights of a layer or of the LM head."""

POSITION_BYTES = 8
"""Bytes of a position's centre, ratio and norm in a record of G."""


@parameter_object
class LadAxiParameters(ShellParameters):
    """Dimensions of the accelerator and of its AXI4 ports; they also configure its testbench.

    Parameters
    ----------
    lad : LadParameters
        Dimensions of the accelerator.
    axi_address_bits, data_bytes, burst_beats, outstanding, token_depth : int
        As in `ShellParameters`.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    lad: LadParameters = field(default_factory=LadParameters)

    def __post_init__(self) -> None:
        """Check each parameter, and that the weights of a layer are a burst of words."""
        super().__post_init__()
        words = max(self.lad.layer_transfers, self.lad.vocabulary_transfers, self.norm_words)
        require(words <= LONGEST, f"words of a burst of weights must be at most {LONGEST}", words)

    @property
    def program(self) -> tuple[str, ...]:
        """Tokens, and the slices of their angles and hidden states."""
        return ("tokens", "slices")

    @property
    def longest(self) -> int:
        """Words of the longest burst."""
        return LONGEST

    @property
    def token_layout(self) -> data.StructLayout:
        """A token of each sample: its number of positions with this one, and whether it predicts.

        Without a vocabulary, `predicts` has no effect.
        """
        lengths = data.ArrayLayout(self.lad.tile.length_shape, self.lad.batch)
        return data.StructLayout({"lengths": lengths, "predicts": 1})

    @property
    def token_slices(self) -> int:
        """Slices of a token's angles and hidden states."""
        return (2 + self.lad.hidden_slices) * self.lad.batch

    @property
    def unit_words(self) -> int:
        """Words of all weights of a vector unit: slices of its rows of all matrices."""
        return self.lad.layers * self.lad.layer_transfers + self.lad.vocabulary_transfers

    @property
    def norm_words(self) -> int:
        """Words of the weights of all norms: two per layer, and the last one."""
        return (2 * self.lad.layers + 1) * self.lad.hidden_slices

    @property
    def state_words(self) -> int:
        """Words of the hidden states that a token outputs."""
        layers = self.lad.layers if self.lad.vocabulary_size else 1
        return layers * self.lad.hidden_slices * self.lad.batch

    @property
    def position_layout(self) -> data.StructLayout:
        """A position's part of a record of G, apart from the marks."""
        return data.StructLayout({"centre": CENTRE_BITS, "ratio": FP16, "norm": FP16})

    @property
    def mark_layout(self) -> data.StructLayout:
        """Modes and counts of a group of positions."""
        members = self.lad.tile.marks_layout.members
        return data.StructLayout({name: members[name] for name in ("modes", "counts")})

    @property
    def mark_bytes(self) -> int:
        """Bytes of a group's marks in memory, a power of two."""
        return 1 << (-(-self.mark_layout.size // 8) - 1).bit_length()

    @property
    def record_bytes(self) -> int:
        """Bytes of a record of G, a power of two: one word per position; the marks at its end."""
        used = self.lad.tile.apid.lanes * POSITION_BYTES + self.mark_bytes
        return 1 << (used - 1).bit_length()

    def place_layout(self, index: ShapeLike) -> data.StructLayout:
        """Return the address of an item of a head, such as of its positions."""
        return data.StructLayout(
            {
                "index": index,
                "tile": self.lad.shared_tiles.tile_shape,
                "head": self.lad.tile.head_shape,
            }
        )

    @property
    def row_layout(self) -> data.StructLayout:
        """The address of a row of keys, values or counters: index of the position, and its head."""
        return self.place_layout(self.lad.tile.apid.position_shape)

    @property
    def record_layout(self) -> data.StructLayout:
        """The address of a record of G: index of the group of positions, and its head."""
        return self.place_layout(self.lad.tile.group_shape)

    @property
    def column_layout(self) -> data.StructLayout:
        """The address of a column of the caches A to F, and its head."""
        return self.place_layout(ceil_log2(self.lad.tile.ac.columns))

    def words_of(self, layout: data.StructLayout, each: int) -> int:
        """Return how many words the items of all heads need, with `each` items per head."""
        last = layout["head"].offset, self.lad.tile.stored_heads - 1
        tile = layout["tile"].offset, self.lad.tiles - 1
        return (last[1] << last[0]) + (tile[1] << tile[0]) + each

    @property
    def region_words(self) -> dict[str, int]:
        """Words of each region that no job's length decides."""
        tile = self.lad.tile
        rows = self.words_of(self.row_layout, tile.slots)
        return {
            "norm_weights": self.norm_words,
            "weights": tile.linear.units * self.unit_words,
            "positions": self.words_of(self.record_layout, tile.apid.groups),
            "keys": rows,
            "values": rows,
            "counters": rows,
            "caches": self.words_of(self.column_layout, tile.ac.columns),
        }

    @property
    def address_bits(self) -> int:
        """Bits of an address in words; a part of a program has up to `longest` words."""
        narrow = self.record_bytes // min(POSITION_BYTES, self.mark_bytes)
        return max(
            ceil_log2(LONGEST),
            ceil_log2(self.region_words["weights"]),
            ceil_log2(self.norm_words),
            self.record_layout.size + ceil_log2(narrow),
            self.row_layout.size,
            self.column_layout.size,
        )

    @cached_property
    def weight_ports(self) -> tuple[str, ...]:
        """The port of each vector unit's weights."""
        return tuple(f"weight_reads_{unit}" for unit in range(self.lad.tile.linear.units))

    @cached_property
    def ports(self) -> tuple[RegionPort, ...]:
        """All burst ports; their order numbers the sources of errors."""
        p, tile = self.lad, self.lad.tile
        vector, counters = tile.vector.vector_layout.size, tile.md.counters_layout.size
        word, position = tile.ac.word_layout.size, 8 * POSITION_BYTES
        return (
            RegionPort("tokens", "tokens", self.token_layout.size),
            RegionPort("slices", "slices", vector),
            RegionPort("norm_weight_reads", "norm_weights", vector),
            *(RegionPort(name, "weights", vector) for name in self.weight_ports),
            RegionPort("group_reads", "positions", 8 * self.record_bytes),
            RegionPort("norm_reads", "positions", position),
            RegionPort("key_reads", "keys", vector),
            RegionPort("active_key_reads", "keys", vector),
            RegionPort("active_value_reads", "values", vector),
            RegionPort("counter_reads", "counters", counters),
            RegionPort("cache_reads", "caches", word),
            RegionPort("row_writes", "keys", vector, writes=True, others=("values",)),
            RegionPort("centre_writes", "positions", position, writes=True),
            RegionPort("mark_writes", "positions", 8 * self.mark_bytes, writes=True),
            RegionPort("counter_writes", "counters", counters, writes=True),
            RegionPort("cache_writes", "caches", word, writes=True),
            RegionPort("state_writes", "outputs", p.state_layout.size, writes=True),
        )

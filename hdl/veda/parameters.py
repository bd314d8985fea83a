"""Parameters of VEDA's accelerator, and the payloads of its streams."""

from dataclasses import dataclass

from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.arith.float_format import BINARY16
from hdl.nonlinear.argmax import ArgmaxParameters
from hdl.veda.dimensions import VedaDimensions
from hdl.veda.instructions import Operation, PassKind, RowKind, SlotState, Space


@dataclass(frozen=True, kw_only=True)
class VedaParameters(VedaDimensions):
    """Dimensions of the accelerator, and the payloads of its streams.

    The hardware, the golden model and the testbench share them.

    Parameters
    ----------
    As of `VedaDimensions`.
    """

    @property
    def slot_bits(self) -> int:
        """Bits of a slot's index."""
        return ceil_log2(self.slots)

    @property
    def layer_bits(self) -> int:
        """Bits of a layer's index."""
        # A field of an address has at least one bit.
        return max(1, ceil_log2(self.layers))

    @property
    def cache_line(self) -> data.StructLayout:
        """Address of a line of keys or values; the fields are concatenated."""
        return data.StructLayout(
            {
                "slot": self.slot_bits,
                "part": ceil_log2(self.lines),
                "value": 1,
                "kv_head": ceil_log2(self.kv_heads),
            }
        )

    @property
    def weight_line(self) -> data.StructLayout:
        """Address of a line of weights: a layer's matrices are contiguous in each channel."""
        return data.StructLayout(
            {"line": ceil_log2(sum(self.beats.values())), "channel": ceil_log2(self.channels)}
        )

    @property
    def angle_line(self) -> data.StructLayout:
        """Address of a line of angles: cosine and sine of each pair of a head's elements."""
        return data.StructLayout(
            {"position": ceil_log2(self.context_length), "part": ceil_log2(self.lines)}
        )

    @property
    def vocabulary_line(self) -> data.StructLayout:
        """Address of a line of the LM head, in `line` and `layer` together."""
        return data.StructLayout(
            {
                "line": ceil_log2(max(self.vocabulary_beats, 1)),
                "channel": ceil_log2(self.channels),
            }
        )

    @property
    def address_layout(self) -> data.StructLayout:
        """Address of a line; `space` selects the meaning of `line`."""
        # A union: the widest address determines the width.
        places = (self.cache_line, self.weight_line, self.angle_line)
        widths = [place.size for place in places]
        return data.StructLayout(
            {
                "line": max(*widths, self.vocabulary_line.size - self.layer_bits),
                "layer": self.layer_bits,
                "space": Space,
            }
        )

    @property
    def addresses_layout(self) -> data.ArrayLayout:
        """The address of one line for each channel."""
        return data.ArrayLayout(self.address_layout, self.channels)

    @property
    def beat_layout(self) -> data.ArrayLayout:
        """A line of each channel, which is a row of each array."""
        return data.ArrayLayout(self.array.vector_layout, self.copies)

    @property
    def burst_shape(self) -> range:
        """Shape of the number of lines of a burst."""
        return range(max(self.slots, self.vocabulary_beats, *self.beats.values()) + 1)

    @property
    def length_shape(self) -> range:
        """Shape of a number of cached tokens."""
        return range(self.slots + 1)

    @property
    def leave_bits(self) -> int:
        """Bits of `Leave`; without a vocabulary `PREDICT` does not exist."""
        return 2 if self.vocabulary_size else 1

    @property
    def instruction_layout(self) -> data.StructLayout:
        """An instruction: a block of tokens in one layer, see `Scheduler`."""
        return data.StructLayout(
            {
                "operation": Operation,
                "layer": self.layer_bits,
                "last_token": self.token_shape,
                "load": 1,
                "length": self.length_shape,
                "vote": 1,
                "evictions": self.length_shape,
                "position": ceil_log2(self.context_length),
                "leave": self.leave_bits,
            }
        )

    @property
    def instruction_errors_layout(self) -> data.StructLayout:
        """Errors of instructions, see `Scheduler`."""
        return data.StructLayout({"block": 1, "position": 1, "trimmed": 1})

    @property
    def errors_layout(self) -> data.StructLayout:
        """Errors of instructions and of entering hidden states, see `Veda`."""
        return data.StructLayout({**dict(self.instruction_errors_layout.members), "states": 1})

    @property
    def entry_layout(self) -> data.StructLayout:
        """Entry of a layer in the slot table."""
        return data.StructLayout(
            {"length": self.length_shape, "slot": self.slot_bits, "state": SlotState}
        )

    @property
    def task_layout(self) -> data.StructLayout:
        """An instruction, with its first token's slot and cached tokens including it."""
        return data.StructLayout(
            {
                "operation": Operation,
                "layer": self.layer_bits,
                "last_token": self.token_shape,
                "slot": self.slot_bits,
                "length": self.length_shape,
                "vote": 1,
                "evictions": self.length_shape,
                "position": ceil_log2(self.context_length),
                "leave": self.leave_bits,
            }
        )

    @property
    def read_layout(self) -> data.StructLayout:
        """A burst: `beats` lines of each channel, starting at the addresses."""
        return data.StructLayout({"addresses": self.addresses_layout, "beats": self.burst_shape})

    @property
    def write_layout(self) -> data.StructLayout:
        """A line for each enabled channel."""
        return data.StructLayout(
            {
                "addresses": self.addresses_layout,
                "enables": self.channels,
                "words": self.beat_layout,
            }
        )

    @property
    def pass_layout(self) -> data.StructLayout:
        """The computation for a burst; `operation` and `leave` select its results' destination.

        `beats` is the number of its lines, independent of the number of tokens that use each of
        them. `final` marks the block's last pass of scores and all passes after its attention.
        """
        return data.StructLayout(
            {
                "kind": PassKind,
                "beats": self.burst_shape,
                "last_token": self.token_shape,
                "final": 1,
                "vote": 1,
                "operation": Operation,
                "leave": self.leave_bits,
            }
        )

    @property
    def row_layout(self) -> data.StructLayout:
        """A row of sums, its kind, and the last token of its block."""
        return data.StructLayout(
            {"values": self.beat_layout, "kind": RowKind, "last_token": self.token_shape}
        )

    @property
    def slice_layout(self) -> data.StructLayout:
        """Half a vector for the arrays, its place in halves, and whether it is a block's last."""
        return data.StructLayout(
            {
                "item": self.array.vector_layout.size // 2,
                "place": ceil_log2(2 * self.slices),
                "last": 1,
            }
        )

    @property
    def query_layout(self) -> data.StructLayout:
        """A query per lane, its place in its block, and whether it is the block's last."""
        return data.StructLayout(
            {"item": self.beat_layout, "place": ceil_log2(self.queries), "last": 1}
        )

    @property
    def angle_layout(self) -> data.ArrayLayout:
        """Cosine and sine of each pair of a head's elements."""
        pair = data.StructLayout({"cosine": BINARY16.layout, "sine": BINARY16.layout})
        return data.ArrayLayout(pair, self.head_size // 2)

    @property
    def angles_layout(self) -> data.StructLayout:
        """A token's angles, and whether it is its block's last."""
        return data.StructLayout({"item": self.angle_layout, "last": 1})

    @property
    def state_layout(self) -> data.StructLayout:
        """An element of a hidden state."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1})

    @property
    def element_layout(self) -> data.StructLayout:
        """An element of a hidden state; `final` with a block's last."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1, "final": 1})

    @property
    def eviction_layout(self) -> data.StructLayout:
        """Layer and slot of a victim."""
        return data.StructLayout({"layer": self.layer_bits, "slot": self.slot_bits})

    @property
    def row_sums_layout(self) -> data.ArrayLayout:
        """The sums of all arrays' rows before they are rounded."""
        return data.ArrayLayout(self.array.sum_format.layout, self.row)

    @property
    def prediction_layout(self) -> data.StructLayout:
        """The argmax of the logits, and its logit before rounding."""
        return data.StructLayout(
            {"token": ceil_log2(self.vocabulary_size), "sum": self.array.sum_format.layout}
        )

    @property
    def argmax(self) -> ArgmaxParameters:
        """Dimensions of the argmax over the logits, which enter it one by one."""
        sum_format = self.array.sum_format
        return ArgmaxParameters(
            lanes=1,
            length=self.vocabulary_size,
            width=sum_format.width,
            number_format=sum_format,
            contexts=self.block,
        )

    @property
    def scalar_layout(self) -> data.StructLayout:
        """One probability for each lane."""
        return self.voting.beat_layout

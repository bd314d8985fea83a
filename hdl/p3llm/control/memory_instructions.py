"""What the memory's side is told: a product of all units, columns for the NPU, an append."""

from dataclasses import dataclass

from amaranth.lib import data, enum
from amaranth.utils import bits_for

from hdl.p3llm.matrix_place import LINEAR_SET, MatrixPlace
from hdl.p3llm.npu.places import Places
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import COLUMN_BITS


class MemoryOperation(enum.Enum, shape=1):
    """What the banks are used for.

    Members
    -------
    PRODUCT
        A stream of columns: products, and FP16 numbers that the NPU reads.
    APPEND
        A token's key and value of a head are written.
    """

    PRODUCT = 0
    APPEND = 1


@dataclass(frozen=True)
class MemoryBits:
    """Bits that the memory's side counts in, whatever is multiplied.

    Parameters
    ----------
    p : P3llmParameters
        Model, pseudo-channels and NPU of the system.
    """

    p: P3llmParameters

    @property
    def position(self) -> int:
        """Columns of a unit: one of a row, the parity of its bank, and which row."""
        used = self.p.layers * self.p.layer_positions + self.p.vocabulary_positions
        return max(COLUMN_BITS + 2, bits_for(used))

    @property
    def outers(self) -> int:
        """Groups of a linear layer's inputs, or registers full of probabilities."""
        groups = (matrix.outers for matrix in self._matrices)
        return bits_for(max(LINEAR_SET, self.p.capacity // self.p.chunk, *groups))

    @property
    def rounds(self) -> int:
        """Tiles of a linear layer, or blocks of keys."""
        return bits_for(max(LINEAR_SET, self.p.capacity // self.p.block, self.p.longest_rounds))

    @property
    def steps(self) -> int:
        """Columns that inputs in the registers meet."""
        return bits_for(self.p.channel.unit.steps)

    @property
    def words(self) -> int:
        """Words of a linear layer's input."""
        return bits_for(max(matrix.inputs for matrix in self._matrices) // self.p.word)

    @property
    def tail(self) -> int:
        """Columns for the NPU, one behind the other: scales of a set, or a vector."""
        p = self.p
        vectors = (p.positions(p.width), p.together * p.factors_positions, p.longest_rounds)
        return bits_for(max(2 * KEY_SET, *vectors))

    @property
    def _matrices(self) -> list[MatrixPlace]:
        return [*self.p.matrices.values(), *self.p.projection]


def memory_instruction(p: P3llmParameters) -> data.StructLayout:
    """Return the layout of an instruction.

    ``base`` and, of an append, ``values`` are positions in a layer. Of `Mode.LINEAR` the numbers of
    groups, tiles a unit and columns of both are said; of the others they follow from the cached
    tokens. ``scaled``: the NPU has the scales of these keys and values already. ``tail`` positions
    of FP16 numbers come behind the products. ``both``: two inputs meet a column; ``inputs`` (in
    words), ``sums`` (in slices) of each; ``columns`` is where FP16 numbers go, of keys those of
    keys and those of values. With `pre_rope` ``inputs`` of keys is where their columns go, and
    those of their zero points.
    """
    bits, places = MemoryBits(p), Places(p)
    return data.StructLayout(
        {
            "operation": MemoryOperation,
            "mode": Mode,
            "both": 1,
            "scaled": 1,
            "base": bits.position,
            "values": bits.position,
            "outers": bits.outers,
            "rounds": bits.rounds,
            "steps": bits.steps,
            "tail": bits.tail,
            "inputs": data.ArrayLayout(places.word_bits, 2),
            "sums": data.ArrayLayout(places.result_bits, 2),
            "columns": data.ArrayLayout(places.column_bits, 2),
        }
    )

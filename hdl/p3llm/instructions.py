"""Instructions of P3-LLM: of the memory side, and of the NPU side, one vector each."""

from dataclasses import dataclass

from amaranth.lib import data, enum
from amaranth.utils import bits_for

from hdl.p3llm.matrix_place import LINEAR_SET, MatrixPlace
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import COLUMN_BITS
from hdl.p3llm.places import Places


class MemoryOperation(enum.Enum, shape=1):
    """Operation of an instruction of the memory side.

    Members
    -------
    PRODUCT
        A sequence of columns: products of all units, and factors that the NPU reads.
    APPEND
        Write a token's key and value of a head.
    """

    PRODUCT = 0
    APPEND = 1


@dataclass(frozen=True)
class MemoryBits:
    """Widths of the counters of the memory side.

    Parameters
    ----------
    p : P3llmParameters
        Model, pseudo-channels and NPU of the system.
    """

    p: P3llmParameters

    @property
    def position(self) -> int:
        """Bits of a position: column, parity of the bank, row."""
        used = self.p.layers * self.p.layer_positions + self.p.vocabulary_positions
        return max(COLUMN_BITS + 2, bits_for(used))

    @property
    def groups(self) -> int:
        """Bits of a group count, or of the number of times that P V fills the input registers."""
        groups = (matrix.groups for matrix in self._matrices)
        return bits_for(max(LINEAR_SET, self.p.slots // self.p.chunk, *groups))

    @property
    def rounds(self) -> int:
        """Bits of a round count: tiles of a linear layer, or blocks of keys."""
        p = self.p
        # The ring of inputs counts each pass as a round.
        linear = max(matrix.passes * matrix.rounds for matrix in self._matrices)
        return bits_for(max(LINEAR_SET, p.slots // p.block, linear))

    @property
    def steps(self) -> int:
        """Bits of a step count: columns per filling of the input registers."""
        return bits_for(self.p.channel.unit.steps)

    @property
    def words(self) -> int:
        """Bits of the number of words of a linear layer's input."""
        return bits_for(max(matrix.inputs for matrix in self._matrices) // self.p.word)

    @property
    def fetch_length(self) -> int:
        """Bits of the number of positions that the NPU reads: a set's scales, or a vector."""
        p = self.p
        vectors = (
            p.positions(p.hidden_size),
            p.in_flight * p.smoothing_positions,
            p.longest_rounds,
        )
        return bits_for(max(2 * KEY_SET, *vectors))

    @property
    def _matrices(self) -> list[MatrixPlace]:
        return [*self.p.matrices.values(), *self.p.projection]


@dataclass(frozen=True, kw_only=True)
class MemoryInstruction:
    """An instruction of the memory side; `memory_instruction` defines its members."""

    operation: MemoryOperation = MemoryOperation.PRODUCT
    mode: Mode = Mode.LINEAR
    both: int = 0
    scales_held: int = 0
    base: int
    values: int = 0
    groups: int = 0
    rounds: int = 0
    steps: int = 0
    twice: int = 0
    shared: int = 0
    fetch_length: int = 0
    inputs: tuple[int, int] = (0, 0)
    sums: tuple[int, int] = (0, 0)
    columns: tuple[int, int] = (0, 0)


def memory_instruction(p: P3llmParameters) -> data.StructLayout:
    """Return the layout of an instruction.

    ``base`` and, for an append, ``values`` are positions relative to the layer. For `Mode.LINEAR`,
    ``groups`` per output, ``rounds`` (tiles per unit) and ``steps`` (columns per group and tile)
    are given; in the other modes they follow from the number of cached tokens. ``twice``: each
    round multiplies its inputs by half of its groups, then by the other half; only with an LM head
    of 8-bit weights. ``shared``: two units compute each tile of the last round. ``scales_held``:
    the NPU already holds the scales of these keys and values. A product without ``groups`` only
    reads factors for the NPU, ``fetch_length`` positions. ``both``: two inputs share a column;
    ``inputs`` (in words) and ``sums`` (in results) are the places of each. ``columns``:
    destinations of factors; for keys, of the scales of keys and of values. With `pre_rope`,
    ``inputs`` of keys are the destinations of their columns and of their zero points.
    """
    bits, places = MemoryBits(p), Places(p)
    return data.StructLayout(
        {
            "operation": MemoryOperation,
            "mode": Mode,
            "both": 1,
            "scales_held": 1,
            "base": bits.position,
            "values": bits.position,
            "groups": bits.groups,
            "rounds": bits.rounds,
            "steps": bits.steps,
            "twice": p.vocabulary_passes - 1,
            "shared": 1,
            "fetch_length": bits.fetch_length,
            "inputs": data.ArrayLayout(places.word_bits, 2),
            "sums": data.ArrayLayout(places.result_bits, 2),
            "columns": data.ArrayLayout(places.column_bits, 2),
        }
    )


class NpuOperation(enum.Enum, shape=4):
    """Operation on a vector.

    Members
    -------
    LOAD, OUTPUT
        Input or output a hidden state.
    NORM
        Normalise a hidden state, and quantise it as inputs of a linear layer.
    SCALE, RESIDUAL
        Scale a linear layer's sums to binary32; store them, or add them to a hidden state.
    SWIGLU
        Scale the sums, multiply them by SiLU of the gate, and quantise the products.
    SMOOTHING
        Load the smoothing factors of a head into the smoothing unit.
    QUERY, KEY
        Rotate a head by its position and smooth it; quantise it as inputs, or for the cache.
    VALUE
        Quantise a head for the cache.
    SCORES
        Compute scores, probabilities, and their products with the values' scales; quantise them as
        inputs.
    HEAD_OUTPUT
        Scale the sums of a head's P V to binary32.
    QUANTISE
        Quantise numbers as inputs.
    LOGITS
        Scale sums of the LM head to logits, and update the argmax.
    PREDICT
        Output the argmax, and clear it.
    """

    LOAD = 0
    OUTPUT = 1
    NORM = 2
    SCALE = 3
    RESIDUAL = 4
    SWIGLU = 5
    SMOOTHING = 6
    QUERY = 7
    KEY = 8
    VALUE = 9
    SCORES = 10
    HEAD_OUTPUT = 11
    QUANTISE = 12
    LOGITS = 13
    PREDICT = 14


def reads_sums(p: P3llmParameters) -> tuple[NpuOperation, ...]:
    """Return the operations that read sums of the compute units."""
    return (
        NpuOperation.SCALE,
        NpuOperation.RESIDUAL,
        NpuOperation.SWIGLU,
        NpuOperation.HEAD_OUTPUT,
        # With `pre_rope`, scores are computed from keys.
        *(() if p.pre_rope else (NpuOperation.SCORES,)),
        *((NpuOperation.LOGITS,) if p.vocabulary_size else ()),
    )


def reads_running_sums(p: P3llmParameters) -> tuple[NpuOperation, ...]:
    """Return the operations that read totals of a linear layer: they may start with the layer.

    None of them overwrites an input of this layer.
    """
    return (
        NpuOperation.SCALE,
        NpuOperation.RESIDUAL,
        NpuOperation.SWIGLU,
        *((NpuOperation.LOGITS,) if p.vocabulary_size else ()),
    )


def reads_factors(p: P3llmParameters) -> tuple[NpuOperation, ...]:
    """Return the operations that read factors: FP16 numbers from the banks."""
    return (
        NpuOperation.NORM,
        NpuOperation.SCALE,
        NpuOperation.RESIDUAL,
        NpuOperation.SWIGLU,
        NpuOperation.SMOOTHING,
        NpuOperation.SCORES,
        # With `pre_rope`, a query is stored with the smoothing factors of its keys.
        *((NpuOperation.QUERY,) if p.pre_rope else ()),
        *((NpuOperation.LOGITS,) if p.vocabulary_size else ()),
    )


READS_NUMBERS = (
    NpuOperation.OUTPUT,
    NpuOperation.NORM,
    NpuOperation.RESIDUAL,
    NpuOperation.SWIGLU,
    NpuOperation.QUERY,
    NpuOperation.KEY,
    NpuOperation.VALUE,
    NpuOperation.QUANTISE,
)
"""Operations that read binary32 numbers."""


@dataclass(frozen=True, kw_only=True)
class NpuInstruction:
    """An instruction of the NPU side; `npu_instruction` defines its members."""

    operation: NpuOperation
    count: int = 0
    source: int = 0
    target: int = 0
    sums: int = 0
    factors: int = 0
    value_scales: int = 0
    scale_index: int = 0
    head: int = 0


def npu_instruction(p: P3llmParameters) -> data.StructLayout:
    """Return the layout of an instruction.

    All places are in slices. ``count`` is the number of slices; for `SCORES` it follows from the
    number of cached tokens. ``source`` and ``target`` are places of binary32 numbers; ``target`` of
    a quantised result is a place of inputs. ``factors`` and ``value_scales`` are places of FP16
    numbers. ``scale_index`` selects the scale of inputs, and the largest scale of values, that the
    operation writes or reads.

    With `pre_rope`, a head's keys are at ``source`` of `SCORES`, their zero points at ``sums``, and
    its smoothing factors at ``factors`` of `QUERY`; `QUERY` passes the rotated query to `SCORES`.
    """
    places = Places(p)
    place, factor = places.address_bits, places.factors_bits
    # If the NPU multiplies queries by keys, zero points use the field of the sums' place.
    zeros = bits_for(places.zeros(2)) if p.pre_rope else 0
    return data.StructLayout(
        {
            "operation": NpuOperation,
            "count": places.count_bits,
            "source": place,
            "target": place,
            "sums": max(places.sums_bits, zeros),
            "factors": factor,
            "value_scales": factor,
            "scale_index": 2,
            "head": 5,
        }
    )

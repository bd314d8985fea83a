"""The latency model of MEADOW's Section 6: bytes, cycles and the selection of a dataflow."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from hdl.parameters import require, require_range

CLOCK_HZ = 100e6
MULTIPLIERS = 64
"""Multipliers per processing element."""

SOFTMAX_MODULES = {96: 84, 14: 12}
BROADCASTING = {96: 12, 14: 2}
"""Broadcasting elements by total number; the paper specifies 96, for 14 the share is assumed."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Dimensions of a transformer.

    Parameters
    ----------
    layers, width, heads, feed_forward : int
        Layers, hidden size, query heads of 64 elements, intermediate size.
    """

    layers: int
    width: int
    heads: int
    feed_forward: int


MODELS = {
    "OPT-125M": Model(layers=12, width=768, heads=12, feed_forward=3072),
    "OPT-1.3B": Model(layers=24, width=2048, heads=32, feed_forward=8192),
    "DeiT-S": Model(layers=12, width=384, heads=6, feed_forward=1536),
    "DeiT-B": Model(layers=12, width=768, heads=12, feed_forward=3072),
}


@dataclass(frozen=True, kw_only=True)
class Board:
    """The memory bandwidth and the processing elements of a board.

    Parameters
    ----------
    gigabits : float
        Off-chip memory bandwidth in Gb/s.
    elements : int
        Number of processing elements: 96 or 14.
    overlapped : bool
        Whether double buffers overlap fetch, compute and store; otherwise their times add.
    """

    gigabits: float = 12.0
    elements: int = 96
    overlapped: bool = True

    def __post_init__(self) -> None:
        """Check every rule."""
        require(self.gigabits > 0, "gigabits must be above 0", self.gigabits)
        require(self.elements in BROADCASTING, "elements must be 96 or 14", self.elements)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A part of a layer: bytes fetched, bytes stored, and cycles."""

    name: str
    fetched: float
    stored: float
    cycles: float


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of one layer.

    Parameters
    ----------
    model : Model
        The transformer.
    tokens : int
        Tokens that the layer processes together: the prompt, or one.
    context : int
        Tokens that they attend to.
    packing : float
        Bytes of weights divided by bytes of packets and unique matrices.
    kept : float
        Share of the tokens that attention uses, for a rival that drops tokens.
    sparsity : float
        Share of the multiplications that a rival with sparse weights executes.
    """

    model: Model
    tokens: int
    context: int
    packing: float = 1.0
    kept: float = 1.0
    sparsity: float = 1.0

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("tokens", self.tokens, 1, 1 << 16)
        require_range("context", self.context, 1, 1 << 16)
        require(self.packing > 0, "packing must be above 0", self.packing)

    def product(self, name: str, inputs: int, outputs: int, board: Board) -> Step:
        """Return a linear layer as a matrix product."""
        rate = board.elements * MULTIPLIERS
        return Step(
            name=name,
            fetched=inputs * outputs / self.packing + self.tokens * inputs,
            stored=self.tokens * outputs,
            cycles=self.tokens * inputs * outputs * self.sparsity / rate,
        )

    def linear(self, board: Board) -> list[Step]:
        """Return keys, values, projection and feed-forward, which are always matrix products."""
        d, f = self.model.width, self.model.feed_forward
        names = ("K", "V", "Proj")
        steps = [self.product(name, d, d, board) for name in names]
        return [*steps, self.product("MLP1", d, f, board), self.product("MLP2", f, d, board)]

    def attention_products(self, board: Board) -> list[Step]:
        """Return queries, scores, softmax and outputs as GEMMs, which fetch and store each."""
        d, heads = self.model.width, self.model.heads
        queries, keys = self.tokens * self.kept, self.context * self.kept
        scores = heads * queries * keys
        rate = board.elements * MULTIPLIERS
        product = queries * keys * d * self.sparsity / rate
        return [
            self.product("Q", d, d, board),
            Step(name="QK", fetched=(queries + keys) * d, stored=scores, cycles=product),
            Step(
                name="SM",
                fetched=scores,
                stored=scores,
                cycles=scores / SOFTMAX_MODULES[board.elements],
            ),
            Step(name="SMV", fetched=scores + keys * d, stored=queries * d, cycles=product),
        ]

    def attention_pipelined(self, board: Board, *, slots: int = 5) -> list[Step]:
        """Return the same steps as TPHS (token-parallel, head-sequential), without stores between.

        `slots` is the number of slots that fill the pipeline: five with one slot per stage, as in
        the paper's figure.
        """
        d, lanes = self.model.width, BROADCASTING[board.elements]
        # Six elements compute a token's queries of a head, or five if there are fourteen.
        makers = 6 if board.elements == 96 else 5
        slot = max(self.context, ceil(d / makers))
        cycles = (self.model.heads * ceil(self.tokens / lanes) + slots) * slot
        fetched = d * d / self.packing + self.tokens * d + 2 * self.context * d
        return [Step(name="Q+SM(QK)V", fetched=fetched, stored=self.tokens * d, cycles=cycles)]


def seconds(steps: Sequence[Step], board: Board) -> float:
    """Return the time of consecutive steps, where one's transfers may overlap another's work."""
    memory = sum(step.fetched + step.stored for step in steps) * 8 / (board.gigabits * 1e9)
    compute = sum(step.cycles for step in steps) / CLOCK_HZ
    return max(memory, compute) if board.overlapped else memory + compute


def layer_seconds(groups: Sequence[Sequence[Step]], board: Board) -> float:
    """Return the time of a layer: its attention, then each matrix product."""
    return sum(seconds(steps, board) for steps in groups)


def by_products(work: Work, board: Board) -> list[list[Step]]:
    """Return a layer of the baseline."""
    return [work.attention_products(board), *([step] for step in work.linear(board))]


def by_meadow(work: Work, board: Board) -> list[list[Step]]:
    """Return a layer of MEADOW with the faster of the two dataflows for the attention."""
    ways = work.attention_products(board), work.attention_pipelined(board)
    fastest = min(ways, key=lambda steps: seconds(steps, board))
    return [fastest, *([step] for step in work.linear(board))]


def choice(work: Work, board: Board) -> str:
    """Return the faster dataflow of the attention: GEMM or TPHS."""
    products = seconds(work.attention_products(board), board)
    return "TPHS" if seconds(work.attention_pipelined(board), board) < products else "GEMM"


def gain(model: Model, tokens: int, context: int, board: Board, packing: float) -> float:
    """Return the baseline's time for a layer divided by MEADOW's."""
    plain = Work(model=model, tokens=tokens, context=context)
    packed = Work(model=model, tokens=tokens, context=context, packing=packing)
    baseline = layer_seconds(by_products(plain, board), board)
    return baseline / layer_seconds(by_meadow(packed, board), board)


def split(groups: Sequence[Sequence[Step]], board: Board) -> tuple[float, float, float]:
    """Return the separate times of fetch, compute and store in ms."""
    steps = [step for group in groups for step in group]
    rate = board.gigabits * 1e9 / 8
    fetched, stored = (sum(getattr(step, name) for step in steps) for name in ("fetched", "stored"))
    cycles = sum(step.cycles for step in steps)
    return 1e3 * fetched / rate, 1e3 * cycles / CLOCK_HZ, 1e3 * stored / rate


def intensity(steps: Sequence[Step], operations: float) -> float:
    """Return the operations per byte of off-chip traffic."""
    return operations / sum(step.fetched + step.stored for step in steps)

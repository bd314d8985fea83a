"""Route of the tile's operands of attention: keys, and rows of queries, scores or probabilities."""

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.instructions import Kind, Matrix, instruction_layout
from hdl.meadow.parameters import MeadowParameters
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class RowRouter(Unit):
    """Route of the words of the key port, which also reads scores and probabilities.

    **Latency** 0 cycles. **Throughput** one word per cycle.

    Parameters
    ----------
    parameters : MeadowParameters
        Layouts of instructions and words.

    Members
    -------
    now : In
        The current instruction.
    words : In(stream)
        Words of the key port.
    queries : In(stream)
        Queries from the activation memory.
    keys, rows : Out(stream)
        As in `HybridTile`.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        p = parameters
        word = stream.Signature(p.tile.word_layout)
        super().__init__(
            {
                "now": In(instruction_layout(p)),
                "words": In(word),
                "queries": In(word),
                "keys": Out(word),
                "rows": Out(word),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Route scores and probabilities to the rows, in place of queries."""
        m = Module()
        now = self.now
        probabilities = (now.kind == Kind.GEMM) & (now.matrix == Matrix.VALUES)
        with m.If((now.kind == Kind.SOFTMAX) | probabilities):
            connect_streams(m, self.words, self.rows)
        with m.Else():
            connect_streams(m, self.words, self.keys)
            connect_streams(m, self.queries, self.rows)
        return m

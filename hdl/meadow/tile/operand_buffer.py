"""Double buffer of an operand that all lanes read: keys, values, weights, biases or scales."""

from amaranth.hdl import Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.tile.block_buffer import BlockBuffer
from hdl.meadow.tile.pass_sequencer import Passed, PassSequencer
from hdl.meadow.tile.tile_parameters import TileParameters
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class OperandBuffer(Unit):
    """Buffer that reads each block of an operand once and outputs it for each group of tokens.

    **Latency** 2 cycles. **Throughput** one word per cycle at input and output.

    Parameters
    ----------
    parameters : TileParameters
        Dimensions of a block.
    over : Passed
        The operand.

    Members
    -------
    command : In
        As in `HybridTile`.
    start : In(1)
        A block that uses the operand begins.
    source : In(stream)
        Words of the operand; `last` with the last word of a head or an output tile.
    sink : Out(stream)
        The words of a head or an output tile, once for each group of tokens and each query head
        that shares them.
    """

    def __init__(self, *, parameters: TileParameters, over: Passed) -> None:
        self.parameters, self.over = parameters, over
        p = parameters
        layouts = {
            Passed.KEYS: p.word_layout,
            Passed.WEIGHTS: p.weights_layout,
            Passed.BIASES: p.bias_layout,
            Passed.SCALES: p.scale_layout,
        }
        words = stream.Signature(layouts[over])
        super().__init__(
            {
                "command": In(p.command_layout),
                "start": In(1),
                "source": In(words),
                "sink": Out(words),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the buffer and the sequencer of its passes."""
        m = Module()
        word = self.source.payload.word
        m.submodules.passes = sequencer = PassSequencer(parameters=self.parameters, over=self.over)
        m.submodules.buffer = buffer = BlockBuffer(
            width=len(Value.cast(word)), depth=sequencer.depth
        )
        m.d.comb += [
            sequencer.command.eq(self.command),
            sequencer.start.eq(self.start),
            buffer.source.valid.eq(self.source.valid),
            buffer.source.payload.word.eq(Value.cast(word)),
            buffer.source.payload.last.eq(self.source.payload.last),
            self.source.ready.eq(buffer.source.ready),
            self.sink.valid.eq(buffer.sink.valid),
            Value.cast(self.sink.payload).eq(Value.cast(buffer.sink.payload)),
            buffer.sink.ready.eq(self.sink.ready),
        ]
        connect_streams(m, sequencer.passes, buffer.passes)
        return m

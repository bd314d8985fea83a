"""Weight register file of a processing element."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.tile.element_parameters import ElementParameters
from hdl.meadow.tile.register_file import RegisterFile
from hdl.unit import Unit


class FiledWeights(Unit):
    """Block of weights in the register file, which each row reads from its start.

    **Latency** 1 enabled cycle. **Throughput** one word per enabled cycle.

    Parameters
    ----------
    parameters : ElementParameters
        Dimensions of the register file.

    Members
    -------
    weights : In(stream)
        As in the elements.
    hold : In(1)
        Keep the block for the next block of inputs.
    move : In(1)
        Enable of the word's register.
    taken, row_last : In(1)
        The current word is used in this cycle; it is for the last row of a block.
    valid, ends : Out(1)
        A word is available; it is the last one of a pass.
    word : Out
        The word of the previous enabled cycle.
    """

    def __init__(self, *, parameters: ElementParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "weights": In(stream.Signature(parameters.block_layout)),
                "hold": In(1),
                "move": In(1),
                "taken": In(1),
                "row_last": In(1),
                "valid": Out(1),
                "ends": Out(1),
                "word": Out(parameters.word_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Address the register file from 0 to the end of the block."""
        m = Module()
        p = self.parameters
        m.submodules.weight_file = file = RegisterFile(width=8 * p.multipliers, depth=p.weight_file)
        address = Signal(range(p.weight_file))
        m.d.comb += [
            file.source.valid.eq(self.weights.valid),
            Value.cast(file.source.payload).eq(Value.cast(self.weights.payload)),
            self.weights.ready.eq(file.source.ready),
            file.read_enable.eq(self.move),
            file.read_address.eq(address),
            self.valid.eq(file.filled),
            self.ends.eq(address == file.end),
            Value.cast(self.word).eq(file.read_data),
            # The weights are released with the last row, unless the next block uses them too.
            file.release.eq(self.taken & self.ends & self.row_last & ~self.hold),
        ]
        with m.If(self.taken):
            m.d.sync += address.eq(Mux(self.ends, 0, address + 1))
        return m

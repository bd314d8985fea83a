"""Writes of a head's inputs into the registers of the units, before the columns that use them."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from hdl.p3llm.control.product_command import product_members
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.pim_channel import ColumnOperation
from hdl.unit import Unit


class InputWriter(Unit):
    """Fill the input registers of all units: first the words of pump 0, then those of pump 1.

    **Latency** 0 cycles from `enable` to a command. **Throughput** one word per command.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    begin : In(1)
        The next word is the first one of `instruction`, whose `inputs` are the places of the words
        in the NPU. Later fillings continue where the previous one ended.
    instruction : In(struct)
        The product; `both` if both pumps have inputs.
    enable : In(1)
        Write a filling; from its first word until `done`.
    final_step : In
        The last step of the registers that the filling needs.
    commands : Out(stream)
        Writes, see `product_command`.
    done : Out(1)
        The last word is written in this cycle.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        steps = range(p.channel.unit.steps)
        super().__init__(product_members(p, enable=In(1), final_step=In(steps)))

    def elaborate(self, platform: object) -> Module:
        """Count words and pumps."""
        m = Module()
        p, commands, given = self.parameters, self.commands, self.instruction
        unit = p.channel.unit
        word, pump = Signal(range(unit.words)), Signal()
        places = [Signal.like(given.inputs[i], name=f"place_{i}") for i in range(2)]
        in_word = ceil_log2(unit.steps_a_word)
        moves = commands.valid & commands.ready
        last_word = word == self.final_step >> in_word
        last_pump = pump | ~given.both
        m.d.comb += [
            commands.valid.eq(self.enable),
            Value.cast(commands.payload.operation).eq(ColumnOperation.WRITE_INPUT),
            commands.payload.address.eq(Mux(pump, places[1], places[0])),
            # The second input's words follow the first one's in the registers.
            commands.payload.word.eq(word + Mux(pump, unit.steps >> in_word, 0)),
            self.done.eq(moves & last_word & last_pump),
        ]
        with m.If(moves):
            m.d.sync += word.eq(Mux(last_word, 0, word + 1))
            with m.If(last_word):
                m.d.sync += pump.eq(~last_pump)
            for number, place in enumerate(places):
                with m.If(pump == number):
                    m.d.sync += place.eq(place + 1)
        with m.If(self.begin):
            m.d.sync += [place.eq(given.inputs[i]) for i, place in enumerate(places)]
        return m

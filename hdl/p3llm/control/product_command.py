"""The memory command that the parts of a product sequencer output."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Member, Out

from hdl.p3llm.instructions import MemoryBits, memory_instruction
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.pim_channel import ColumnOperation
from hdl.p3llm.places import Places


def reads_layout(p: P3llmParameters) -> data.StructLayout:
    """Return the layout of the destination of a column that the NPU reads.

    ``factors``: FP16 numbers, at ``place`` in columns. With `pre_rope`, ``keys`` and ``zeros`` mark
    codes of keys and their zero points.
    """
    kinds = {"factors": 1, **({"keys": 1, "zeros": 1} if p.pre_rope else {})}
    return data.StructLayout({**kinds, "place": Places(p).column_bits})


def product_command(p: P3llmParameters) -> data.StructLayout:
    """Return the layout of a command at the current position of a product.

    ``operation``. `READ` addresses the column of one ``unit``, the other operations all units.
    ``stride``: positions to the next command. Of `MULTIPLY`: ``step``, ``group``, ``first``,
    ``last``, ``begins``, ``ends`` as in `PimComputeUnitParameters.command_layout`; the column
    ``completes`` the sums of ``round``. Of `WRITE_INPUT`: ``word`` in the units' registers, and
    its ``address`` in the NPU. Of `READ`: ``reads``, the destination of unit 0's column; those of
    the other units follow.
    """
    fields = dict(p.channel.unit.command_layout)
    of_unit = ("step", "group", "first", "last", "begins", "ends", "word")
    return data.StructLayout(
        {
            "operation": ColumnOperation,
            "unit": range(p.units),
            "stride": range(2 + 2 * KEY_SET),
            **{name: fields[name].shape for name in of_unit},
            "completes": 1,
            "round": MemoryBits(p).rounds,
            "address": Places(p).word_bits,
            "reads": reads_layout(p),
        }
    )


def product_members(p: P3llmParameters, **own: Member) -> dict[str, Member]:
    """Return the members of a part that turns an instruction into commands.

    ``begin`` starts the ``instruction``, ``done`` is 1 in the cycle of its last command. The part's
    `own` members are declared between its inputs and its commands.
    """
    return {
        "begin": In(1),
        "instruction": In(memory_instruction(p)),
        **own,
        "commands": Out(stream.Signature(product_command(p))),
        "done": Out(1),
    }


def read_unit(
    m: Module, command: data.View, unit: Signal, units: int, stride: Value | int = 1
) -> None:
    """Let a command read the column of `unit`; that of the last unit advances by `stride`."""
    m.d.comb += [
        Value.cast(command.operation).eq(ColumnOperation.READ),
        command.unit.eq(unit),
        command.stride.eq(Mux(unit == units - 1, stride, 0)),
    ]


def next_unit(m: Module, unit: Signal, moves: Value, units: int) -> Value:
    """Advance to the next unit with a command; return whether it is the last unit's command."""
    with m.If(moves):
        m.d.sync += unit.eq(unit + 1)
    return moves & (unit == units - 1)

"""Dimensions of MEADOW with the AXI shell: its memory ports and the parts of its program."""

from functools import cached_property

from amaranth.hdl import Shape, ShapeLike

from hdl.meadow.instructions import instruction_layout, matrix_layout
from hdl.meadow.parameters import MeadowParameters
from hdl.parameters import parameter_object
from hdl.shell.shell_parameters import RegionPort, ShellParameters


@parameter_object
class MeadowAxiParameters(ShellParameters):
    """Dimensions of the accelerator and of its AXI4 ports; they also configure its testbench.

    Parameters
    ----------
    meadow : MeadowParameters
        Dimensions of the accelerator.
    axi_address_bits, data_bytes, burst_beats, outstanding, token_depth : int
        As in `ShellParameters`.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    meadow: MeadowParameters = MeadowParameters()

    @property
    def program(self) -> tuple[str, ...]:
        """Instructions, and descriptions of matrices."""
        return ("instructions", "matrices")

    @property
    def address_bits(self) -> int:
        """Bits of an address in words."""
        return self.meadow.address_bits

    @property
    def longest(self) -> int:
        """Words of the longest burst."""
        return self.meadow.longest_burst

    @cached_property
    def ports(self) -> tuple[RegionPort, ...]:
        """All burst ports; their order numbers the sources of errors."""
        p = self.meadow

        def bits(shape: ShapeLike) -> int:
            return Shape.cast(shape).width

        state, cached = bits(p.state_layout), bits(p.element.word_layout)
        found = [
            RegionPort("instructions", "instructions", bits(instruction_layout(p))),
            RegionPort("matrices", "matrices", bits(matrix_layout(p))),
            RegionPort("vector_reads", "vectors", state),
            RegionPort("state_writes", "vectors", state, writes=True),
            RegionPort("key_reads", "cache", cached),
            RegionPort("value_reads", "cache", cached),
            RegionPort("cache_writes", "cache", cached, writes=True),
            RegionPort("table_reads", "tables", bits(p.unpacker.rows_layout)),
            *(
                RegionPort(name, "packets", p.unpacker.unpacker.packet_bits)
                for name in p.packet_ports
            ),
        ]
        if p.biases:
            found.append(RegionPort("bias_reads", "biases", bits(p.bias_layout)))
        if p.tile_scales:
            found.append(RegionPort("scale_reads", "scales", bits(p.factor_layout)))
        return tuple(found)

"""Wrappers: memories of any size, built from the macros of one kind.

A wrapper has the behaviour of `hdl.memory.memory.Memory` with one write enable, cycle by cycle: one
read and one write per cycle, a read returns the word before a write of the same cycle, and the read
word is output until the next read. Columns of macros make up a word, rows make up the depth.

**One port.** A macro that either reads or writes is used in two copies. A table of flip-flops has a
bit per word: the copy that holds the word's current value. A write changes the copy that is not
read in this cycle, and updates the table.

**One port, twice the clock.** If the list has `double_clock`, such a macro is used in one copy. Its
clock ``clk_double`` rises with each edge of ``clk``. Registers hold the accesses of a cycle; the
macro executes the read in the middle of the next cycle and the write at its end. A read thus
precedes the write of its cycle and follows all earlier ones.

**Two ports, no defined collision.** The write waits for one cycle in a register. A read of the
waiting word reads the register instead of the macro, so that the macro never reads a word that it
writes.

**Output that is not held.** A register keeps the word after the cycle in which a macro outputs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hdl import __version__
from synth.macros.macro_list import Macro, MacroList, MacroPort


@dataclass(frozen=True, kw_only=True)
class Wrapper:
    """A memory built from macros.

    Parameters
    ----------
    depth, width : int
        Number of words, at least 2, and bits of a word.
    macro : Macro
        The macro.
    double_clock : bool
        Whether a macro with one port has twice the clock.
    """

    depth: int
    width: int
    macro: Macro
    double_clock: bool = False

    @property
    def name(self) -> str:
        """Name of the module."""
        return f"memory_macros_{self.depth}_{self.width}"

    @property
    def copies(self) -> int:
        """Number of copies of the memory."""
        return 2 if self.macro.is_single_port and not self.doubled else 1

    @property
    def doubled(self) -> bool:
        """Whether the macros have twice the clock."""
        return self.double_clock and self.macro.is_single_port

    @property
    def row_depth(self) -> int:
        """Words of a macro that are used: a row is selected by high bits of the address."""
        if self.depth <= self.macro.depth:
            return self.macro.depth
        return 1 << (self.macro.depth.bit_length() - 1)

    @property
    def rows(self) -> int:
        """Number of macros for the depth."""
        return -(-self.depth // self.row_depth)

    @property
    def columns(self) -> int:
        """Number of macros for the width."""
        return -(-self.width // self.macro.width)

    @property
    def count(self) -> int:
        """Number of macros."""
        return self.copies * self.rows * self.columns

    @property
    def macro_bits(self) -> int:
        """Capacity of the macros in bits."""
        return self.count * self.macro.bits

    @property
    def macro_area(self) -> float | None:
        """Area of the macros in um2; None if the list does not have it."""
        return None if self.macro.area_um2 is None else self.count * self.macro.area_um2

    @property
    def waits(self) -> bool:
        """Whether a write waits for one cycle."""
        return not self.macro.is_single_port and self.macro.collision != "old"

    @property
    def keeps(self) -> bool:
        """Whether a register keeps the read word."""
        return self.waits or not self.macro.holds_output

    @property
    def address_bits(self) -> int:
        """Width of an address in bits."""
        return (self.depth - 1).bit_length()

    @property
    def flip_flops(self) -> int:
        """Number of flip-flops."""
        if self.doubled:
            # Both accesses with their addresses, the written and the read word, and the half cycle.
            return 2 * (1 + self.address_bits + self.width) + 1
        select = (self.copies * self.rows - 1).bit_length()
        table = self.depth if self.copies == 2 else 0
        waiting = 1 + self.address_bits + self.width if self.waits else 0
        kept = 1 + self.width if self.keeps else 0
        return select + table + waiting + kept

    @property
    def verilog(self) -> str:
        """The module, as Verilog-2005."""
        return (
            "\n".join([*self._header(), *self._control(), *self._array(), *self._output()]) + "\n"
        )

    def _header(self) -> list[str]:
        parts = [f"{self.copies} copies of"] * (self.copies > 1)
        parts.append(f"{self.rows} x {self.columns} {self.macro.name} (depth x width)")
        high = self.address_bits - 1
        return [
            f"// {self.name}: {self.depth} words of {self.width} bits.",
            f"// {' '.join(parts)}.",
            "// One read and one write per cycle; a read returns the word before the write.",
            f"// Generated by Systola {__version__}. The generated text is yours, under any terms.",
            "// SPDX-License-Identifier: 0BSD",
            "",
            f"module {self.name}(clk,{' clk_double,' * self.doubled} read_enable, read_address,",
            "    read_data, write_enable, write_address, write_data);",
            "  input clk;",
            *["  input clk_double;"] * self.doubled,
            "  input read_enable;",
            f"  input [{high}:0] read_address;",
            f"  output [{self.width - 1}:0] read_data;",
            "  input write_enable;",
            f"  input [{high}:0] write_address;",
            f"  input [{self.width - 1}:0] write_data;",
        ]

    def _control(self) -> list[str]:
        """Return the logic that derives the copies' reads and writes from those of the memory."""
        high, copies = self.address_bits - 1, self.copies
        lines = [
            "  // In simulation, an unknown bit counts as 0, as in the replaced memory.",
            "  function is_one(input value);",
            "    if (value) is_one = 1'h1;",
            "    else is_one = 1'h0;",
            "  endfunction",
            "  wire read = is_one(read_enable);",
            "  wire write = is_one(write_enable);",
            f"  wire [{copies - 1}:0] reads, writes;",
        ]
        if self.doubled:
            return [*lines, *self._two_halves()]
        if self.waits:
            lines += [
                "  // The write of the cycle before, which the macros execute in this cycle.",
                "  reg waiting;",
                f"  reg [{high}:0] address;",
                f"  reg [{self.width - 1}:0] data;",
                "  always @(posedge clk) begin",
                "    waiting <= write;",
                "    if (write) begin",
                "      address <= write_address;",
                "      data <= write_data;",
                "    end",
                "  end",
                "  wire hit = waiting & (address == read_address);",
                "  assign reads = read & ~hit;",
                "  assign writes = waiting;",
            ]
            return lines
        lines += [
            f"  wire [{high}:0] address = write_address;",
            f"  wire [{self.width - 1}:0] data = write_data;",
        ]
        if copies == 1:
            return [*lines, "  assign reads = read;", "  assign writes = write;"]
        return [
            *lines,
            "  // The copy that holds the current value of each word; copy 0 if never written.",
            f"  reg current [{self.depth - 1}:0];",
            "  wire looked_up = current[read_address];",
            "  wire read_copy = is_one(looked_up);",
            "  // A write changes the copy that is not read, or copy 0 without a read.",
            "  wire write_copy = read & ~read_copy;",
            "  always @(posedge clk)",
            "    if (write) current[write_address] <= write_copy;",
            "  assign reads = {read & read_copy, read & ~read_copy};",
            "  assign writes = {write & write_copy, write & ~write_copy};",
        ]

    def _two_halves(self) -> list[str]:
        """Return the registers of the accesses, which the macros execute at twice the clock."""
        high = self.address_bits - 1
        return [
            "  // clk_double rises with each edge of clk; `middle` is 1 at the edge in a cycle.",
            "  reg middle;",
            "  always @(negedge clk_double) middle <= clk;",
            "  reg fetched, waiting;",
            f"  reg [{high}:0] fetched_address, address;",
            f"  reg [{self.width - 1}:0] data;",
            "  always @(posedge clk) begin",
            "    fetched <= read;",
            "    if (read) fetched_address <= read_address;",
            "    waiting <= write;",
            "    if (write) begin",
            "      address <= write_address;",
            "      data <= write_data;",
            "    end",
            "  end",
            "  assign reads = middle & fetched;",
            "  assign writes = ~middle & waiting;",
        ]

    def _array(self) -> list[str]:
        """Return the macros."""
        word = self.columns * self.macro.width
        padding = word - self.width
        padded = f"{{{padding}'h0, data}}" if padding else "data"
        low = min(self.address_bits, (self.row_depth - 1).bit_length())
        row_bits = f"[{self.address_bits - 1}:{low}]"
        read = written = ""
        if self.rows > 1:
            read = f" & ({self._read_address}{row_bits} == row)"
            written = f" & (address{row_bits} == row)"
        return [
            f"  wire [{word - 1}:0] padded = {padded};",
            f"  wire [{self.copies * self.rows * word - 1}:0] outputs;",
            "  genvar copy, row, column;",
            "  generate",
            f"    for (copy = 0; copy < {self.copies}; copy = copy + 1) begin : copies",
            f"      for (row = 0; row < {self.rows}; row = row + 1) begin : rows",
            f"        wire reading = reads[copy]{read};",
            f"        wire writing = writes[copy]{written};",
            f"        for (column = 0; column < {self.columns}; column = column + 1)",
            "        begin : columns",
            *(f"          {line}" for line in self._instance(low, word)),
            "        end",
            "      end",
            "    end",
            "  endgenerate",
        ]

    @property
    def _read_address(self) -> str:
        """Name of the address that the macros read."""
        return "fetched_address" if self.doubled else "read_address"

    def _instance(self, low: int, word: int) -> list[str]:
        """Return the instance of one macro."""
        macro = self.macro
        read, write = macro.read_port, macro.write_port
        padding = macro.address_bits - low

        def extended(name: str) -> str:
            bits = f"{name}[{low - 1}:0]" if low < self.address_bits else name
            return f"{{{padding}'h0, {bits}}}" if padding else bits

        columns = f"column * {macro.width} +: {macro.width}"
        output = f"outputs[(copy * {self.rows} + row) * {word} + {columns}]"
        pins: dict[str, str] = {}
        for port in macro.ports:
            reads, writes = port is read, port is write
            active = " | ".join(["reading"] * reads + ["writing"] * writes)
            address = extended(self._read_address if not writes else "address")
            if reads and writes:
                address = f"writing ? {extended('address')} : {extended(self._read_address)}"
            values = {
                "clock": "clk_double" if self.doubled else "clk",
                "enable": active,
                "write": "writing" if writes else "1'h0",
                "address": address,
                "data_in": f"padded[{columns}]" if writes else f"{macro.width}'h0",
                "data_out": output if reads else "",
                # Each write changes the whole word.
                "mask": f"{{{macro.width // (macro.mask_granularity or 1)}{{1'h1}}}}",
            }
            for role, pin in port.pins.items():
                pins[pin] = f"~({values[role]})" if role in port.active_low else values[role]
        return [
            f"{macro.name} macro(",
            *(
                f"  .{pin}({value}){',' * (i < len(pins))}"
                for i, (pin, value) in enumerate(pins.items(), 1)
            ),
            ");",
        ]

    def _output(self) -> list[str]:
        """Return the selection of the read word."""
        word, groups = self.columns * self.macro.width, self.copies * self.rows
        low = min(self.address_bits, (self.row_depth - 1).bit_length())
        parts = ["read_copy"] * (self.copies == 2)
        row_bits = f"[{self.address_bits - 1}:{low}]"
        parts += [f"read_address{row_bits}"] * (self.rows > 1)
        lines: list[str] = []
        if groups == 1:
            lines.append(f"  wire [{self.width - 1}:0] word = outputs[{self.width - 1}:0];")
        else:
            # The row's bits of the address may name more rows than there are.
            bits = (self.copies == 2) + (self.address_bits - low if self.rows > 1 else 0)
            if self.doubled:
                lines.append(f"  wire [{bits - 1}:0] selected = fetched_address{row_bits};")
            else:
                lines += [
                    "  // The macros of the last read.",
                    f"  reg [{bits - 1}:0] selected;",
                    f"  always @(posedge clk) if (read) selected <= {{{', '.join(parts)}}};",
                ]
            lines += [
                f"  reg [{self.width - 1}:0] word;",
                "  always @* begin",
                "    case (selected)",
            ]
            rows = 1 << (self.address_bits - low) if self.rows > 1 else 1
            for group in range(groups):
                copy, row = divmod(group, self.rows)
                first = group * word
                lines.append(
                    f"      {bits}'h{copy * rows + row:x}: "
                    f"word = outputs[{first + self.width - 1}:{first}];"
                )
            lines += [f"      default: word = {self.width}'hx;", "    endcase", "  end"]
        if self.doubled:
            return [
                *lines,
                "  // The word is valid at the end of the cycle; a write can then change it.",
                f"  reg [{self.width - 1}:0] kept;",
                "  always @(posedge clk) if (fetched) kept <= word;",
                "  assign read_data = fetched ? word : kept;",
                "endmodule",
            ]
        if not self.keeps:
            return [*lines, "  assign read_data = word;", "endmodule"]
        fetched = "read & ~hit" if self.waits else "read"
        forward = [
            "    // The waiting word is the one to read.",
            "    if (read & hit) kept <= data;",
            "    else if (fetched) kept <= word;",
        ]
        return [
            *lines,
            "  // The macros output the word in one cycle; a register keeps it.",
            "  reg fetched;",
            f"  reg [{self.width - 1}:0] kept;",
            "  always @(posedge clk) begin",
            f"    fetched <= {fetched};",
            *(forward if self.waits else ["    if (fetched) kept <= word;"]),
            "  end",
            "  assign read_data = fetched ? word : kept;",
            "endmodule",
        ]


def cheapest(depth: int, width: int, macros: MacroList) -> Wrapper:
    """Return the wrapper of least cost; see `MacroList.overhead_bits`."""
    wrappers = [
        Wrapper(depth=depth, width=width, macro=macro, double_clock=macros.double_clock)
        for macro in macros.macros
    ]
    return min(
        wrappers,
        key=lambda one: (
            one.macro_bits + one.count * macros.overhead_bits,
            one.count,
            one.rows,
            one.macro.name,
        ),
    )


def black_box(macro: Macro) -> str:
    """Return a module with the macro's pins and no content, for tools without its Liberty file."""
    return "\n".join(
        [
            f"// {macro.name}: pins of a memory macro, {macro.depth} words of {macro.width} bits.",
            "(* blackbox *)",
            *_pin_lines(macro),
            "endmodule",
            "",
        ]
    )


def model(macro: Macro) -> str:
    """Return the macro's behaviour for simulation, without delays.

    The output is unknown where the list of macros does not define it.
    """
    prefix = _free_prefix(macro)
    words = f"{prefix}words"
    lines = [
        f"// {macro.name}: behaviour of a memory macro, {macro.depth} words of {macro.width} bits.",
        "// For simulation only.",
        *_pin_lines(macro),
        f"  reg [{macro.width - 1}:0] {words} [{macro.depth - 1}:0];",
    ]
    names = [f"{prefix}port{index}" for index in range(len(macro.ports))]
    for port, name in zip(macro.ports, names, strict=True):
        lines += _model_signals(macro, port, name)
    for port, name in zip(macro.ports, names, strict=True):
        lines.append(f"  always @(posedge {port.clock}) begin")
        if port.kind != "r":
            lines += [
                f"    if ({name}_writes)",
                f"      {words}[{port.address}] <= ({words}[{port.address}] & ~{name}_mask) |",
                f"          ({port.data_in} & {name}_mask);",
            ]
        if port.data_out:
            lines.append(f"    if ({name}_reads) {name}_word <= {words}[{port.address}];")
            if not macro.holds_output:
                lines.append(f"    else {name}_word <= {macro.width}'hx;")
            lines += _collisions(macro, port, name, dict(zip(names, macro.ports, strict=True)))
        lines.append("  end")
    return "\n".join([*lines, "endmodule", ""])


def _model_signals(macro: Macro, port: MacroPort, name: str) -> list[str]:
    """Return the declarations of one port of a model."""

    def level(role: str) -> str:
        pin = getattr(port, role)
        return "1'h1" if pin is None else f"~{pin}" if role in port.active_low else pin

    lines = []
    if port.kind == "r":
        lines.append(f"  wire {name}_reads = {level('enable')};")
    else:
        lines.append(f"  wire {name}_writes = {level('enable')} & {level('write')};")
    if port.kind == "rw":
        lines.append(f"  wire {name}_reads = {level('enable')} & ~({level('write')});")
    if port.kind != "r":
        size = macro.mask_granularity or macro.width
        lines.append(f"  wire [{macro.width - 1}:0] {name}_mask;")
        for index in range(macro.width // size):
            bit = f"{port.mask}[{index}]" if port.mask else "1'h1"
            bit = f"~{bit}" if "mask" in port.active_low else bit
            value = f"{{{size}{{{bit}}}}}"
            lines.append(f"  assign {name}_mask[{index * size} +: {size}] = {value};")
    if port.data_out:
        lines += [
            f"  reg [{macro.width - 1}:0] {name}_word;",
            f"  assign {port.data_out} = {name}_word;",
        ]
    return lines


def _collisions(
    macro: Macro, port: MacroPort, name: str, ports: Mapping[str, MacroPort]
) -> list[str]:
    """Return the statements on reads of a word that another port writes in the same cycle."""
    lines: list[str] = []
    for writer, other in ports.items():
        if other is port or other.kind == "r" or macro.collision == "old":
            continue
        word = f"{_free_prefix(macro)}words[{port.address}]"
        new = f"({word} & ~{writer}_mask) | ({other.data_in} & {writer}_mask)"
        value = new if macro.collision == "new" else f"{macro.width}'hx"
        lines += [
            f"    if ({name}_reads & {writer}_writes & ({port.address} == {other.address}))",
            f"      {name}_word <= {value};",
        ]
    return lines


def _free_prefix(macro: Macro) -> str:
    """Return a prefix for names that differ from the macro's pins."""
    prefix = "model_"
    while any(pin.startswith(prefix) for port in macro.ports for pin in port.pins.values()):
        prefix += "_"
    return prefix


def _pin_lines(macro: Macro) -> list[str]:
    """Return the head of a module with the macro's pins."""
    widths = {
        "address": macro.address_bits,
        "data_in": macro.width,
        "data_out": macro.width,
        "mask": macro.width // (macro.mask_granularity or 1),
    }
    pins: dict[str, str] = {}
    for port in macro.ports:
        for role, pin in port.pins.items():
            direction = "output" if role == "data_out" else "input"
            # A vector of one bit, because a model selects bits of the mask.
            bits = f"[{widths[role] - 1}:0] " if role in widths else ""
            pins[pin] = f"  {direction} {bits}{pin};"
    return [f"module {macro.name}({', '.join(pins)});", *pins.values()]

"""Product of two unsigned integers: Booth digits, a tree of full adders, one carry chain."""

from amaranth.hdl import Cat, Const, Module, Signal, Value

from hdl.arith.prefix_sum import prefix_sum
from hdl.target import Target, current_target


def product(m: Module, a: Value, b: Value) -> Value:
    """Return the exact product, ``len(a) + len(b)`` bits; for an FPGA, its own multiplier's."""
    width = len(a) + len(b)
    if current_target() is Target.FPGA:
        result = Signal(width)
        m.d.comb += result.eq(a.as_unsigned() * b.as_unsigned())
        return result
    one, two = reduced(m, partial_products(m, a, b), width)
    return prefix_sum(m, one, two)[:width]


def partial_products(m: Module, a: Value, b: Value) -> list[list[Value]]:
    """Return the product as columns of bits; their weighted sum is exact modulo its width.

    The multiplier `b` is read as digits of -2 to 2, one for every two bits. A negative digit's row
    is the complement of its magnitude and a one at its end; its sign extension is the complement of
    the sign and, for all rows together, one constant.
    """
    width = len(a) + len(b)
    columns: list[list[Value]] = [[] for _ in range(width)]
    # Booth digits of b, from -2 to 2, each of two bits and the top one of the digit below.
    digits = Cat(Const(0, 1), b, Const(0, 2))
    doubled = Cat(Const(0, 1), a, Const(0, 1))
    constant = 0
    for position in range(0, len(b) + 1, 2):
        # A digit chooses 0, a or 2a, and whether it is inverted.
        low, middle, negative = digits[position], digits[position + 1], digits[position + 2]
        single, double = Signal(), Signal()
        m.d.comb += [
            single.eq(low ^ middle),
            double.eq((low & middle & ~negative) | (~low & ~middle & negative)),
        ]
        row = Signal(len(a) + 1, name=f"row_{position}")
        magnitude = Cat(
            (single & doubled[index + 1]) | (double & doubled[index]) for index in range(len(row))
        )
        if position + 1 < len(b):
            # Two's complement: inverted here, its one added in the row's lowest column. The sign
            # bits of all rows together are a constant and one inverted bit a row.
            m.d.comb += row.eq(magnitude ^ negative.replicate(len(row)))
            _put(columns, position, [*row, ~negative])
            _put(columns, position, [negative])
            constant -= 1 << (position + len(row))
        else:
            m.d.comb += row.eq(magnitude)
            _put(columns, position, [*row])
    for index in range(width):
        if constant >> index & 1:
            columns[index].append(Const(1, 1))
    return columns


def reduced(m: Module, columns: list[list[Value]], width: int) -> tuple[Value, Value]:
    """Reduce columns of bits to two numbers with the same sum modulo ``2**width``.

    As few adders as possible a level (Dadda, "Some schemes for parallel multipliers", 1965).
    """
    # Dadda's heights, from the end backwards: two thirds of each level survive the next.
    heights = [2]
    while heights[-1] < max(map(len, columns)):
        heights.append(heights[-1] * 3 // 2)
    for height in reversed(heights[:-1] or heights):
        for index in range(width):
            column = columns[index]
            while len(column) > height:
                # A half adder where one bit is too many, else a full adder.
                taken = [column.pop(0) for _ in range(2 + (len(column) > height + 1))]
                half, total, carry = Signal(), Signal(), Signal()
                a, b, *rest = taken
                c = rest[0] if rest else Const(0, 1)
                m.d.comb += [
                    half.eq(a ^ b),
                    total.eq(half ^ c),
                    carry.eq((a & b) | (c & half)),
                ]
                column.append(total)
                _put(columns, index + 1, [carry])
    # Two bits a column are left: two numbers, for one carry-propagating adder.
    bits = [column + [Const(0, 1)] * (2 - len(column)) for column in columns]
    return Cat(column[0] for column in bits), Cat(column[1] for column in bits)


def _put(columns: list[list[Value]], position: int, bits: list[Value]) -> None:
    """Add bits to the columns from a position up; those beyond the top do not count."""
    for index, bit in enumerate(bits, position):
        if index < len(columns):
            columns[index].append(bit)

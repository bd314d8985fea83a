"""Sums of integers and products: bit columns, a tree of full adders, one carry chain."""

from collections.abc import Iterable, Sequence

from amaranth.hdl import Cat, Const, Module, Signal, Value, ValueLike

from hdl.arith.named import named
from hdl.arith.prefix_sum import prefix_sum
from hdl.target import Target, current_target


class CarrySaveSum:
    """An exact sum modulo ``2**width`` of any number of operands, with a single carry chain.

    A product enters as the rows of its Booth digits, not as a number. A signed row carries one
    inverted bit instead of a sign extension. All constants, such as rounding increments, are merged
    into one number. On an FPGA, multipliers and carry chains are faster than this logic, so
    `result` uses ``*`` and ``+`` there.

    Parameters
    ----------
    m : Module
        Module that receives the logic.
    width : int
        Bits of the sum.
    """

    def __init__(self, m: Module, width: int) -> None:
        self._m = m
        self._width = width
        self._constants: list[int] = []
        self._products: list[tuple[Value, Value]] = []
        # Values, and whether they are subtracted.
        self._values: list[tuple[Value, bool]] = []

    def add(self, value: ValueLike) -> None:
        """Add a value of any shape, or a constant."""
        if isinstance(value, int):
            self._constants.append(value)
        else:
            self._values.append((self._named(value), False))

    def subtract(self, value: ValueLike) -> None:
        """Subtract a value of any shape."""
        self._values.append((self._named(value), True))

    def add_product(self, a: ValueLike, b: ValueLike) -> None:
        """Add a product; the operand with fewer bits should be the multiplier `b`."""
        self._products.append((self._named(a), self._named(b)))

    def _named(self, value: ValueLike) -> Value:
        """Return a value as a signal, so that selecting its bits does not repeat its expression."""
        value = Value.cast(value)
        if isinstance(value, Signal | Const):
            return value
        return named(self._m, value)

    def pair(self) -> tuple[Value, Value]:
        """Return two numbers of `width` bits that add up to the sum modulo ``2**width``."""
        columns = self._filled()
        columns.put_constant()
        return columns.reduced(self._m)

    def parts(self) -> tuple[Value, Value]:
        """Return `pair`, for registers before the carry chain; for an FPGA the sum and zero."""
        if current_target() is Target.FPGA:
            return self.result(), Const(0, self._width)
        return self.pair()

    def open_pair(self) -> tuple[Value, Value, int]:
        """Return two unsigned numbers and a constant that add up to the sum itself.

        A caller may add the pair to other values and add the constants of all sums, which replace
        sign extensions, at the end. The pair has as many bits as the rows can need, at most
        `width`.
        """
        columns = self._filled()
        columns.trim()
        return *columns.reduced(self._m), sum(columns.constants)

    def _filled(self) -> "_Columns":
        """Return the columns of all operands, without the constants."""
        columns = _Columns(self._width, self._constants)
        for a, b in self._products:
            columns.put_product(self._m, a, b)
        for value, subtracted in self._values:
            columns.put_value(value, subtracted=subtracted)
        return columns

    def result(self) -> Value:
        """Return the sum modulo ``2**width``, unsigned."""
        if current_target() is not Target.FPGA:
            return prefix_sum(self._m, *self.pair())[: self._width]
        total = Value.cast(sum(self._constants))
        for a, b in self._products:
            total = total + a * b
        for value, subtracted in self._values:
            total = total - value if subtracted else total + value
        result = Signal(self._width)
        self._m.d.comb += result.eq(total)
        return result


def product(m: Module, a: Value, b: Value) -> Value:
    """Return the exact product of two unsigned values, ``len(a) + len(b)`` bits."""
    total = CarrySaveSum(m, len(a) + len(b))
    total.add_product(a, b)
    return total.result()


def product_pair(m: Module, a: Value, b: Value) -> tuple[Value, Value]:
    """Return two numbers that add up to the product of two unsigned values, modulo its width."""
    total = CarrySaveSum(m, len(a) + len(b))
    total.add_product(a, b)
    return total.pair()


def column_sum(m: Module, values: Sequence[ValueLike]) -> Value:
    """Return the exact sum of values of one shape, with as many bits as it needs."""
    shape = Value.cast(values[0]).shape()
    width = shape.width + (len(values) - 1).bit_length()
    total = CarrySaveSum(m, width)
    for value in values:
        total.add(value)
    return total.result().as_signed() if shape.signed else total.result()


class _Columns:
    """Columns of bits of equal weight, and the constants of all columns."""

    def __init__(self, width: int, constants: Iterable[int]) -> None:
        self._columns: list[list[Value]] = [[] for _ in range(width)]
        self.constants = [*constants]

    def _put(self, position: int, bits: Iterable[Value]) -> None:
        """Append bits to the columns from a position upwards; drop bits above the top column."""
        for index, bit in enumerate(bits, position):
            if index < len(self._columns):
                self._columns[index].append(bit)

    def put_value(self, value: Value, *, subtracted: bool) -> None:
        """Append a value's bits; invert bits of negative weight and correct with a constant."""
        weights = [1 << index for index in range(len(value))]
        if value.shape().signed:
            weights[-1] = -weights[-1]
        negative = [(weight < 0) != subtracted for weight in weights]
        self._put(0, [~bit if n else bit for bit, n in zip(value, negative, strict=True)])
        self.constants.extend(-abs(w) for w, n in zip(weights, negative, strict=True) if n)

    def put_product(self, m: Module, a: Value, b: Value) -> None:
        """Append the rows of a product, one for each two bits of the multiplier `b`.

        The multiplier is recoded into digits from -2 to 2. The row of a negative digit is the
        complement of its magnitude, plus one at its lowest bit. Its sign extension is the
        complement of the sign and a constant, which is merged over all rows.
        """
        signs = a.shape().signed, b.shape().signed
        # Each Booth digit of b consists of two bits and the top bit of the digit below.
        digits = Cat(Const(0, 1), b, b[-1] if signs[1] else Const(0, 2))
        doubled = Cat(Const(0, 1), a, a[-1] if signs[0] else Const(0, 1))
        for position in range(0, len(digits) - 2, 2):
            # A digit selects 0, a or 2a, and whether to invert it.
            low, middle, negative = digits[position], digits[position + 1], digits[position + 2]
            single, double = Signal(), Signal()
            m.d.comb += [
                single.eq(low ^ middle),
                double.eq((low & middle & ~negative) | (~low & ~middle & negative)),
            ]
            row = Signal(len(a) + 1, name=f"row_{position}")
            magnitude = Cat(
                (single & doubled[index + 1]) | (double & doubled[index])
                for index in range(len(row))
            )
            # An unsigned multiplier's top digit is never negative.
            inverts = signs[1] or position + 1 < len(b)
            m.d.comb += row.eq(magnitude ^ negative.replicate(len(row)) if inverts else magnitude)
            body, sign = (row[:-1], row[-1]) if signs[0] else (row, negative)
            if inverts or signs[0]:
                self._put(position, [*body, ~sign])
                self.constants.append(-1 << position + len(body))
            else:
                self._put(position, row)
            if inverts:
                self._put(position, [negative])

    def put_constant(self) -> None:
        """Append the sum of the constants as one number, modulo the columns' width."""
        constant = sum(self.constants)
        for index, column in enumerate(self._columns):
            if constant >> index & 1:
                column.append(Const(1, 1))

    def trim(self) -> None:
        """Drop the columns that stay empty even if all bits are ones."""
        largest = sum(len(column) << index for index, column in enumerate(self._columns))
        del self._columns[largest.bit_length() :]

    def reduced(self, m: Module) -> tuple[Value, Value]:
        """Return two numbers with the same sum modulo the columns' width.

        Use the fewest adders per level (Dadda, "Some schemes for parallel multipliers", 1965).
        """
        columns = self._columns
        # Dadda's column heights in reverse order: each level reduces a height to two thirds.
        heights = [2]
        while heights[-1] < max(map(len, columns)):
            heights.append(heights[-1] * 3 // 2)
        for height in reversed(heights[:-1] or heights):
            for index, column in enumerate(columns):
                while len(column) > height:
                    # One bit too many takes a half adder, more take a full adder.
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
                    self._put(index + 1, [carry])
        # Each column now holds two bits: two numbers for one carry-propagate adder.
        bits = [column + [Const(0, 1)] * (2 - len(column)) for column in columns]
        return Cat(column[0] for column in bits), Cat(column[1] for column in bits)

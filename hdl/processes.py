"""Restructuring of processes so that ``always @*`` blocks simulate correctly.

Yosys writes a process as ``always @*``, and such a block runs only when a signal that it reads
changes. A block that reads no signal never runs. A block that reads a signal that it drives misses
changes during its own run. This module removes both kinds of block:

- bits that do not depend on a condition become connections, which Yosys writes as ``assign``;
- if a signal has both kinds of bits, the conditional bits get a separate variable;
- if a process reads a signal that it drives, each part of the signal gets a separate process.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from hdl.rtlil import Line, Module, Process, Signal, Slice, Wire, names_in

Variables = Mapping[str, Mapping[tuple[int, int], str]]
"""For each wire: the variables that hold its bits, by the first bit and the bit after the last."""

Sources = Mapping[str, Mapping[tuple[int, int], Signal]]
"""For each wire: the drivers of its bits, by the same keys, without bits of other processes."""

Fields = Mapping[str, Mapping[tuple[int, int], str]]
"""For each struct: the wires that read a field, by the field's first bit and the bit after it."""


@dataclass
class _Case:
    """A case: its assignments, followed by its switches, in order of evaluation."""

    line: Line
    assignments: list[Line] = field(default_factory=list)
    switches: list["_Switch"] = field(default_factory=list)


@dataclass
class _Switch:
    """A switch and its cases; the first case that matches takes effect."""

    line: Line
    cases: list[_Case] = field(default_factory=list)

    @property
    def is_condition(self) -> bool:
        """Whether a signal selects the case."""
        return self.line.text != "switch {}"


@dataclass(frozen=True)
class _Range:
    """Bits of a wire from `low` (included) to `high` (excluded).

    `value` is their driver, or None if they depend on a condition.
    """

    low: int
    high: int
    value: Signal | None


def settle(module: Module) -> None:
    """Connect unconditional bits, and give each remaining process separate variables.

    Parameters
    ----------
    module : Module
        The module, changed in place.
    """
    fields = module.fields()
    kept = []
    for process in module.processes:
        root = _read(process)
        driven = _drives(root, module)
        parts = {
            part: (name, low)
            for name in driven
            for (low, _high), part in [((0, 0), name), *fields.get(name, {}).items()]
        }
        apart = not _reads(root).isdisjoint(parts)
        variables, sources = _connect(module, fields, driven, apart)
        for number, group in enumerate(_groups(variables, apart)):
            lines = list(_lines(_rewritten(root, module, group)))
            if apart:
                lines = [_reading(line, module, parts, sources) for line in lines]
            name = f"{process.name}_{number}" if apart else process.name
            if lines:
                kept.append(replace(process, name=name, lines=lines))
    module.processes = kept


def _reads(case: _Case) -> set[str]:
    """Return the names of the wires that a case and its nested cases read."""
    names = {name for line in case.assignments for name in names_in(line.sides[1])}
    for switch in case.switches:
        names.update(names_in(switch.line.sides[1]))
        names.update(*map(_reads, switch.cases))
    return names


def _reading(
    line: Line, module: Module, parts: Mapping[str, tuple[str, int]], sources: Sources
) -> Line:
    """Replace a line's reads of a wire, or of one of its fields, by reads of the wire's drivers.

    Parameters
    ----------
    line : Line
        A line of a process.
    module : Module
        The module of the process.
    parts : Mapping[str, tuple[str, int]]
        For each wire and each of its fields: the wire and the field's first bit.
    sources : Sources
        The drivers of the wires.
    """
    right = line.sides[1]
    if parts.keys().isdisjoint(names_in(right)):
        return line
    slices = list[Slice]()
    for one in Signal.read(right, module.wires).slices:
        name, first = parts.get(one.source, ("", 0))
        position = first + one.low
        end = position + one.width
        for (low, high), source in sorted(sources.get(name, {}).items()):
            if low < end and high > position:
                if low > position:
                    slices.append(Slice(name, position, low - position))
                    position = low
                stop = min(high, end)
                slices += source.part(position - low, stop - low).slices
                position = stop
        if position < end:
            slices.append(one if not name else Slice(name, position, end - position))
    return replace(line, text=f"{line.text.removesuffix(right)}{Signal(tuple(slices))}")


def _groups(variables: Variables, apart: bool) -> Iterator[Variables]:
    """Yield the variables of each process: all in one process, or one process per variable."""
    if not apart:
        yield variables
        return
    for name, places in variables.items():
        for place, variable in places.items():
            yield {one: {} for one in variables} | {name: {place: variable}}


def _read(process: Process) -> _Case:
    """Return the tree of a process, with constant switches replaced by the selected case."""
    lines = iter(process.lines)
    root = _Case(Line("case"))
    _read_case(root, lines)
    return root


def _read_case(case: _Case, lines: Iterator[Line]) -> Line:
    """Read the contents of a case, and return the line that ends it."""
    for line in lines:
        word = line.text.partition(" ")[0]
        if word == "assign":
            case.assignments.append(line)
        elif word == "switch":
            switch = _Switch(line)
            following = next(lines)
            while following.text != "end":
                switch.cases.append(_Case(following))
                following = _read_case(switch.cases[-1], lines)
            case.switches += _decided(switch)
        else:
            return line
    return Line("end")


def _decided(switch: _Switch) -> list[_Switch]:
    """Return a switch; if it reads no signal, keep only the selected case, if there is one."""
    test = switch.line.sides[1]
    if names_in(test):
        return [switch]
    taken = next((case for case in switch.cases if _matches(test, case.line.text)), None)
    if taken is None:
        return []
    taken.line = replace(taken.line, text="case")
    return [_Switch(replace(switch.line, text="switch {}"), [taken])]


def _matches(test: str, case: str) -> bool:
    """Whether a constant matches a pattern of a case; a case without patterns is the default."""
    bits = test.partition("'")[2]
    patterns = [pattern.partition("'")[2] for pattern in case.removeprefix("case").split(",")]
    return patterns == [""] or any(
        all(wanted in ("-", bit) for wanted, bit in zip(pattern, bits, strict=True))
        for pattern in patterns
    )


def _drives(root: _Case, module: Module) -> dict[str, list[_Range]]:
    """Return the drivers of each wire that a process drives, sorted by bit.

    Conditional ranges are as small as the slices that assignments drive and read.
    """
    driven = defaultdict[str, list[_Range]](list)

    def visit(case: _Case, conditional: bool) -> None:
        for line in case.assignments:
            left, right = (Signal.read(side, module.wires) for side in line.sides)
            position = 0
            for name, low, width in left.slices:
                value = right.part(position, position + width)
                if conditional:
                    for one in value.slices:
                        new = _Range(low, low + one.width, None)
                        driven[name] = _overlaid(driven[name], new)
                        low += one.width
                else:
                    driven[name] = _overlaid(driven[name], _Range(low, low + width, value))
                position += width
        for switch in case.switches:
            for one in switch.cases:
                visit(one, conditional or switch.is_condition)

    visit(root, False)
    return driven


def _overlaid(ranges: list[_Range], new: _Range) -> list[_Range]:
    """Replace the previous drivers of a range's bits."""
    result = [new]
    for old in ranges:
        for low, high in ((old.low, min(old.high, new.low)), (max(old.low, new.high), old.high)):
            if low < high:
                value = old.value and old.value.part(low - old.low, high - old.low)
                result.append(_Range(low, high, value))
    return sorted(result, key=lambda one: one.low)


def _joined(ranges: list[_Range]) -> Iterator[_Range]:
    """Join adjacent conditional ranges."""
    last = ranges[0]
    for one in ranges[1:]:
        if last.high == one.low and last.value is None and one.value is None:
            last = _Range(last.low, one.high, None)
        else:
            yield last
            last = one
    yield last


def _connect(
    module: Module, fields: Fields, driven: Mapping[str, list[_Range]], apart: bool
) -> tuple[Variables, Sources]:
    """Connect the wires that a process drives to their drivers.

    Returns
    -------
    tuple[Variables, Sources]
        The variables that the process must drive, and the driver of each bit.
    """
    variables: dict[str, dict[tuple[int, int], str]] = {}
    sources: dict[str, dict[tuple[int, int], Signal]] = {}
    for name, ranges in driven.items():
        width = module.wires[name].width
        variables[name], sources[name] = own, all_ = {}, {}
        for one in ranges if apart else _joined(ranges):
            if one.value is not None:
                module.connect(Signal.of(name, one.low, one.high), one.value)
                all_[one.low, one.high] = one.value
            elif (one.low, one.high) == (0, width):
                own[0, width] = name
            else:
                for place in _by_field(one, fields.get(name, {})):
                    own[place] = _variable(module, fields, name, place)
        all_ |= {(low, high): Signal.of(one, 0, high - low) for (low, high), one in own.items()}
    return variables, sources


def _by_field(one: _Range, fields: Mapping[tuple[int, int], str]) -> Iterator[tuple[int, int]]:
    """Cut a range into the largest fields that it contains and the bits between them."""
    inside = sorted(
        (low, -high) for low, high in fields if one.low <= low and high <= one.high and low < high
    )
    position = one.low
    for low, negative in inside:
        if low >= position:
            if low > position:
                yield position, low
            yield low, -negative
            position = -negative
    if position < one.high:
        yield position, one.high


def _variable(module: Module, fields: Fields, name: str, place: tuple[int, int]) -> str:
    """Return the variable for a range of a wire's bits, and connect the bits to it.

    The variable is the wire that reads these bits as a field, or else a new wire.
    """
    low, high = place
    bits = Signal.of(name, low, high)
    variable = fields.get(name, {}).get(place)
    if variable is None:
        numbers = (high - 1, low) if high - low > 1 else (low,)
        variable = module.free_name("_".join([f"{name}.bits", *map(str, numbers)]))
        module.wires[variable] = Wire(high - low)
    else:
        module.connections = [pair for pair in module.connections if pair[0] != variable]
    module.connect(bits, Signal.of(variable, 0, high - low))
    return variable


def _rewritten(case: _Case, module: Module, variables: Variables) -> _Case:
    """Return a case that drives only variables, without switches that then drive nothing."""
    switches = [
        replace(switch, cases=[_rewritten(one, module, variables) for one in switch.cases])
        for switch in case.switches
    ]
    return _Case(
        case.line,
        [new for line in case.assignments for new in _assignments(line, module, variables)],
        [
            switch
            for switch in switches
            if any(one.assignments or one.switches for one in switch.cases)
        ],
    )


def _assignments(line: Line, module: Module, variables: Variables) -> Iterator[Line]:
    """Yield the parts of an assignment that drive variables."""
    left, right = (Signal.read(side, module.wires) for side in line.sides)
    position = 0
    for name, low, width in left.slices:
        for (first, end), variable in variables[name].items():
            start, stop = max(low, first), min(low + width, end)
            if start < stop:
                target = Signal.of(variable, start - first, stop - first)
                value = right.part(position + start - low, position + stop - low)
                yield replace(line, text=f"assign {target} {value}")
        position += width


def _lines(root: _Case) -> Iterator[Line]:
    """Yield the lines of a case, without the line that begins it."""
    yield from root.assignments
    for switch in root.switches:
        yield switch.line
        for case in switch.cases:
            yield case.line
            yield from _lines(case)
        yield Line("end")

"""A simulation of the RTL replayed through the mapped netlist: what every pin does in every cycle.

Registers, ports and what memories give keep their names through synthesis, so the RTL's waveforms
are theirs; the logic between them is computed from them, without delays and so without glitches. A
register that the waveforms do not know, such as one inside an operator that simulates as ``*``,
repeats its input a cycle later.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from synth.flat_netlist import FlatCell, FlatNetlist
from synth.functions import Function, logic_function, names
from synth.liberty import Library
from synth.mapped_design import Netlist
from synth.waveforms import Waveforms

UNKNOWN_TRANSITIONS = 0.1
"""Transitions in a cycle of a net that cannot be computed."""


@dataclass(frozen=True, kw_only=True)
class PinActivity:
    """How often a pin changes in a cycle, and the part of the cycles in which it is 1."""

    transitions: float
    ones: float


@dataclass(frozen=True, kw_only=True)
class Activity:
    """What a simulation says of a netlist.

    Parameters
    ----------
    pins : dict[str, PinActivity]
        Every data pin of every cell, by its path; ports by their names.
    cycles : int
        Of the simulation.
    replayed : float
        Part of the cells' nets whose waveform is known.
    """

    pins: dict[str, PinActivity] = field(repr=False)
    cycles: int
    replayed: float

    @property
    def words(self) -> str:
        """What a report says of it."""
        return f"{self.cycles:,} simulated cycles, replayed through {self.replayed:.1%} of the nets"


@dataclass(frozen=True, kw_only=True)
class _Step:
    """One output of a cell, computed from nets; `late` by a cycle if the cell is a register."""

    net: int
    compute: Function
    inputs: dict[str, int]
    late: bool


def activity_of(recorded: Waveforms, netlist: Netlist) -> Activity:
    """Replay what was recorded, of the RTL or of the netlist, through a netlist."""
    flat = FlatNetlist.read(netlist)
    waves = replay(flat, netlist.library, recorded)
    by_net: dict[int, PinActivity] = {
        net: PinActivity(transitions=recorded.transitions(wave), ones=recorded.ones(wave))
        for net, wave in waves.items()
    }
    unknown = PinActivity(transitions=UNKNOWN_TRANSITIONS, ones=0.5)
    pins: dict[str, PinActivity] = {}
    driven: set[int] = set()
    for cell in flat.cells:
        for pin in netlist.library.cells[cell.kind].pins:
            if pin.name in cell.nets and not pin.clock:
                net = cell.nets[pin.name]
                pins[f"{cell.path}/{pin.name}"] = by_net.get(net, unknown)
                if pin.direction == "output":
                    driven.add(net)
    pins |= {name: by_net[net] for name, net in flat.ports.items() if net in by_net}
    known = sum(net in by_net for net in driven) / max(len(driven), 1)
    return Activity(pins=pins, cycles=recorded.cycles, replayed=known)


def replay(flat: FlatNetlist, library: Library, recorded: Waveforms) -> dict[int, int]:
    """Return the waveforms of all nets that are recorded, or follow from what is."""
    waves = {0: 0, 1: recorded.every}
    for net in _sources(flat, library):
        for name in flat.names[net]:
            if name in recorded.nets:
                waves[net] = recorded.nets[name]
                break
    waiting: dict[int, list[_Step]] = defaultdict(list)
    ready = [step for step in _steps(flat, library) if not _wait(step, waves, waiting)]
    while ready:
        step = ready.pop()
        if step.net in waves:
            continue
        values = {pin: waves[net] for pin, net in step.inputs.items()}
        wave = step.compute(values, recorded.every)
        # What a register had before the first edge is not known: it stays.
        waves[step.net] = (wave << 1 | wave & 1) & recorded.every if step.late else wave
        ready += [s for s in waiting.pop(step.net, ()) if not _wait(s, waves, waiting)]
    return waves


def _wait(step: _Step, waves: dict[int, int], waiting: dict[int, list[_Step]]) -> bool:
    """Put a step off until the first of its inputs that is not known yet is."""
    for net in step.inputs.values():
        if net not in waves:
            waiting[net].append(step)
            return True
    return False


def _sources(flat: FlatNetlist, library: Library) -> Iterator[int]:
    """Yield the nets whose waveforms the RTL has: of inputs, memories and registers."""
    yield from flat.ports.values()
    yield from flat.memories
    for cell in flat.cells:
        if library.cells[cell.kind].state:
            yield from (
                cell.nets[pin.name]
                for pin in library.cells[cell.kind].outputs
                if pin.name in cell.nets
            )


def _steps(flat: FlatNetlist, library: Library) -> Iterator[_Step]:
    """Yield how each cell's outputs follow from its inputs, or a register's from each other."""
    for cell in flat.cells:
        kind = library.cells[cell.kind]
        state = set(kind.state_names)
        for pin in kind.outputs:
            if pin.name not in cell.nets:
                continue
            if not kind.state:
                yield _step(cell, pin.name, pin.function, late=False)
                continue
            for other in kind.outputs:
                if other.name in cell.nets and {pin.function, other.function} == state:
                    yield _step(cell, pin.name, f"!{other.name}", late=False)
            if kind.next_state and not state & set(names(kind.next_state)):
                text = kind.next_state
                if pin.function != kind.state_names[0]:
                    text = f"!({text})"
                yield _step(cell, pin.name, text, late=True)


def _step(cell: FlatCell, pin: str, text: str, *, late: bool) -> _Step:
    """Return how an output is computed."""
    inputs = {name: cell.nets[name] for name in names(text)}
    return _Step(net=cell.nets[pin], compute=logic_function(text), inputs=inputs, late=late)

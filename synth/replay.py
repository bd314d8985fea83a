"""Replay of an RTL simulation through the mapped netlist: the value of every pin in every cycle.

Registers, ports and memory outputs keep their names through synthesis, so their waveforms are those
of the RTL. The replay computes the logic between them without delays, and so without glitches. A
register without a waveform, such as one inside an operator that simulates as ``*``, repeats its
input one cycle later.
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
"""Assumed transitions per cycle of a net whose waveform cannot be computed."""


@dataclass(frozen=True, kw_only=True)
class PinActivity:
    """Transitions of a pin per cycle, and the share of cycles in which it is 1."""

    transitions: float
    ones: float


@dataclass(frozen=True, kw_only=True)
class Activity:
    """The switching activity of a netlist during a simulation.

    Parameters
    ----------
    pins : dict[str, PinActivity]
        Activity of every data pin by path, and of ports by name.
    cycles : int
        Cycles of the simulation.
    replayed : float
        Share of the cells' nets with a known waveform.
    """

    pins: dict[str, PinActivity] = field(repr=False)
    cycles: int
    replayed: float

    @property
    def words(self) -> str:
        """Description of the simulation for reports."""
        return f"{self.cycles:,} simulated cycles, replayed through {self.replayed:.1%} of the nets"


@dataclass(frozen=True, kw_only=True)
class _Step:
    """One output of a cell as a function of nets; `late` for a register, by one cycle."""

    net: int
    compute: Function
    inputs: dict[str, int]
    late: bool


def activity_of(recorded: Waveforms, netlist: Netlist) -> Activity:
    """Replay the waveforms of an RTL or a netlist simulation through a netlist."""
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
    """Return the waveforms of all nets that are recorded or can be computed."""
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
        # A register's value before the first edge is unknown: assume its next value.
        waves[step.net] = (wave << 1 | wave & 1) & recorded.every if step.late else wave
        ready += [s for s in waiting.pop(step.net, ()) if not _wait(s, waves, waiting)]
    return waves


def _wait(step: _Step, waves: dict[int, int], waiting: dict[int, list[_Step]]) -> bool:
    """Defer a step until its first unknown input is known."""
    for net in step.inputs.values():
        if net not in waves:
            waiting[net].append(step)
            return True
    return False


def _sources(flat: FlatNetlist, library: Library) -> Iterator[int]:
    """Yield the nets that have waveforms in the RTL: those of inputs, memories and registers."""
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
    """Yield the functions of all cells' outputs, and of a register's outputs from each other."""
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
    """Return the function of an output."""
    inputs = {name: cell.nets[name] for name in names(text)}
    return _Step(net=cell.nets[pin], compute=logic_function(text), inputs=inputs, late=late)

"""State of the eviction controller in a decode step, and its choice of the victim."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.systolic_evictor import SystolicEvictor
from hdl.kelle.eviction.wavefront_issue import WavefrontIssue


class State(enum.Enum, shape=2):
    """State of the placement of the arriving token in a head."""

    IDLE = 0
    LOOKUP = 1
    PLACE = 2
    OFFER = 3


@dataclass(frozen=True)
class Window:
    """The recent window of the step that the next victim is for."""

    oldest: Signal  # Lowest position in the window.
    leaving: Signal  # Position that has just left the window.


def window_registers(p: EvictionParameters) -> Window:
    """Return the window's registers, initialised to the window of position 0."""
    first, positions = int(p.evict_before), 1 << p.position_bits
    return Window(
        oldest=Signal(p.position_bits, name="oldest", init=max(first - (p.window - 1), 0)),
        leaving=Signal(p.position_bits, name="leaving", init=(first - p.window) % positions),
    )


@dataclass(frozen=True)
class Step:
    """Registers of a step, and signals derived from them."""

    now: Signal  # Position of the arriving token.
    window: Window
    stepping: Signal  # The token has arrived, and not all heads have placed it.
    state: enum.EnumView
    head: Signal  # The current head.
    cached: Signal  # The current head's index among the heads of all layers.
    slot: Signal  # Slot of the token in the current head.
    evicts: Signal  # The slot holds a token, which is evicted.
    last_head: Signal


@dataclass(frozen=True)
class Choice:
    """The victim of a full head, valid after its search has ended."""

    slot: Value
    found: Value
    valid: Value


def take_position(
    m: Module,
    p: EvictionParameters,
    step: Step,
    layer: Value,
    tokens: Any,
    prefill: Any,
    prefilled: Signal,
) -> None:
    """Register the position of the arriving token, or of a prefill's last token, and the window.

    The window and the index of the head among the heads of all layers have registers of their own,
    because the paths from them extend into every evictor row.
    """
    # A prefill's last token is the youngest: the window ends with it.
    for comes, now in (
        (prefilled, prefill.payload.token.position),
        (tokens.valid & tokens.ready, tokens.payload),
    ):
        # The window belongs to the step in which the victim is evicted: this one or the next.
        ahead = now + int(p.evict_before)
        inside = ahead >= p.window - 1
        with m.If(comes):
            m.d.sync += [
                step.now.eq(now),
                step.window.oldest.eq(Mux(inside, ahead - (p.window - 1), 0)),
                # In a text shorter than the window, this is no position of a cached token.
                step.window.leaving.eq(ahead - p.window),
            ]
    with m.If(tokens.valid & tokens.ready):
        m.d.sync += [step.stepping.eq(1), step.cached.eq(p.cached_head(layer, step.head))]


def choose_slot(
    m: Module, p: EvictionParameters, step: Step, issue: WavefrontIssue, evictor: SystolicEvictor
) -> Choice:
    """Return the current head's victim, and record which heads have saturated."""
    victims, victim = evictor.victims, evictor.victims.payload
    # A saturated head is halved when the next step loads its importances.
    halve = Array(Signal(name=f"halve_{h}") for h in range(p.cached_heads))
    m.d.comb += issue.halve.eq(Cat(halve[h] for h in range(p.cached_heads)))
    if not p.evict_before:
        m.d.comb += victims.ready.eq((step.state == State.IDLE) & step.stepping)
        if p.evictor.halves:
            with m.If(victims.valid & victims.ready):
                m.d.sync += halve[step.cached].eq(victim.saturated)
        return Choice(slot=victim.index, found=victim.found, valid=victims.valid)

    # Searches run independently of the placements; their victims are for the next step.
    outcome = data.StructLayout({"slot": p.evictor.index_width, "found": 1})
    outcomes = Array(
        Signal(outcome, name=f"victim_{h}", reset_less=True) for h in range(p.cached_heads)
    )
    searched = Signal(p.head_bits)
    found = p.cached_head(issue.layer, searched)
    m.d.comb += victims.ready.eq(1)
    with m.If(victims.valid):
        m.d.sync += [
            outcomes[found].slot.eq(victim.index),
            outcomes[found].found.eq(victim.found),
            searched.eq(Mux(searched == p.kv_heads - 1, 0, searched + 1)),
        ]
        if p.evictor.halves:
            m.d.sync += halve[found].eq(victim.saturated)
    chosen = outcomes[step.cached]
    return Choice(slot=chosen.slot, found=chosen.found, valid=issue.idle)

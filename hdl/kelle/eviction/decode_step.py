"""Where the eviction controller is in a decode step, and whom it evicts there."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.systolic_evictor import SystolicEvictor
from hdl.kelle.eviction.wavefront_issue import WavefrontIssue


class State(enum.Enum, shape=2):
    """What the controller does with the arriving token."""

    IDLE = 0
    LOOKUP = 1
    PLACE = 2
    OFFER = 3


@dataclass(frozen=True)
class Step:
    """Where the controller is in a step: registers, and what follows from them."""

    now: Signal  # Position of the arriving token.
    stepping: Signal  # It has come, and not all heads have placed it.
    state: enum.EnumView
    head: Signal  # The current head.
    slot: Signal  # The slot that the token takes in this head.
    evicts: Signal  # Somebody is evicted for it.
    last_head: Signal


@dataclass(frozen=True)
class Choice:
    """Whom a full head evicts, once its search has ended."""

    slot: Value
    found: Value
    valid: Value


def choose_slot(
    m: Module, p: EvictionParameters, step: Step, issue: WavefrontIssue, evictor: SystolicEvictor
) -> Choice:
    """Return the current head's victim, and keep which heads saturated."""
    victims, victim = evictor.victims, evictor.victims.payload
    # A saturated head is halved as the next step loads it.
    halve = Array(Signal(name=f"halve_{h}") for h in range(p.cached_heads))
    m.d.comb += issue.halve.eq(Cat(halve[h] for h in range(p.cached_heads)))
    if not p.evict_before:
        m.d.comb += victims.ready.eq((step.state == State.IDLE) & step.stepping)
        if p.evictor.halves:
            with m.If(victims.valid & victims.ready):
                m.d.sync += halve[p.cached_head(issue.layer, step.head)].eq(victim.saturated)
        return Choice(slot=victim.index, found=victim.found, valid=victims.valid)

    # Searches run on by themselves; what they find is for the next step.
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
            searched.eq(Mux(searched == p.heads - 1, 0, searched + 1)),
        ]
        if p.evictor.halves:
            m.d.sync += halve[found].eq(victim.saturated)
    chosen = outcomes[p.cached_head(issue.layer, step.head)]
    return Choice(slot=chosen.slot, found=chosen.found, valid=issue.idle)

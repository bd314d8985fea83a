"""Where the eviction controller is in a decode step, and what its methods tell each other of it."""

from dataclasses import dataclass

from amaranth.hdl import Signal, Value
from amaranth.lib import enum


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

"""The technology that Verilog is optimised for: a standard-cell library or an FPGA.

In standard cells, gate-level adders and multipliers are smaller and faster than those that
synthesis tools derive from ``+`` and ``*``. FPGA tools map only ``+`` and ``*`` to carry chains and
hard multipliers. Operators that have both forms select one by `current_target`; both forms are
bit-exact.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

from hdl.errors import UserError


class Target(StrEnum):
    """The technology that Verilog is optimised for."""

    ASIC = "asic"
    FPGA = "fpga"

    @property
    def folder(self) -> str:
        """Name of the folder for this target's Verilog in ``build/<top>/<preset>``."""
        return "rtl" if self is Target.ASIC else f"rtl_{self}"


_target = ContextVar("target", default=Target.ASIC)
_reads: ContextVar[list[Target] | None] = ContextVar("reads", default=None)


@contextmanager
def writing_for(target: Target) -> Iterator[None]:
    """Select the target for all elaboration inside the context."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


def current_target() -> Target:
    """Return the selected target; `Target.ASIC` outside `writing_for`."""
    target = _target.get()
    if (reads := _reads.get()) is not None:
        reads.append(target)
    return target


@contextmanager
def noted_reads() -> Iterator[list[Target]]:
    """Note each result of `current_target` in the list that this context manager returns.

    Of nested contexts, only the innermost notes a result. What is elaborated without a read is
    the same for all targets.
    """
    reads: list[Target] = []
    token = _reads.set(reads)
    try:
        yield reads
    finally:
        _reads.reset(token)


def find_target(name: str) -> Target:
    """Return a target by its name.

    Raises
    ------
    UserError
        If no target has this name.
    """
    if name not in list(Target):
        raise UserError(f"TARGET must be one of {', '.join(Target)}, not {name!r}")
    return Target(name)

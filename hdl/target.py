"""What Verilog is written for: a library of cells, or an FPGA.

Sums and products made of gates are smaller and faster in standard cells than what tools make of
``+`` and ``*``. An FPGA has carry chains and multipliers, and its tools find a use for them in
``+`` and ``*`` only. The operators that have both forms ask here which one is wanted; the results
are the same in every bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

from hdl.errors import UserError


class Target(StrEnum):
    """What Verilog is written for."""

    ASIC = "asic"
    FPGA = "fpga"

    @property
    def folder(self) -> str:
        """Name of the folder of its Verilog in ``build/<top>/<preset>``."""
        return "rtl" if self is Target.ASIC else f"rtl_{self}"


_target = ContextVar("target", default=Target.ASIC)


@contextmanager
def writing_for(target: Target) -> Iterator[None]:
    """Let everything that is elaborated inside be for a target."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


def current_target() -> Target:
    """Return what is being written for; `Target.ASIC` unless somebody said otherwise."""
    return _target.get()


def find_target(name: str) -> Target:
    """Return a target by its name.

    Raises
    ------
    UserError
        If there is none of that name.
    """
    if name not in list(Target):
        raise UserError(f"TARGET must be one of {', '.join(Target)}, not {name!r}")
    return Target(name)

"""Which modules of a large design stay modules while all others are dissolved."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from synth.mapped_design import ModuleArea


def kept_modules(modules: Sequence[ModuleArea], limit: int) -> tuple[str, ...]:
    """Return the modules that are mapped by themselves, so that nothing is much larger than that.

    Everything is dissolved that fits: a module of up to `limit` cells takes in all that is below
    it, and the top takes in what is larger, then the other modules, the smallest first, until it
    has `limit` cells itself. What stays is mapped once, however often the design has it.

    Parameters
    ----------
    modules : Sequence[ModuleArea]
        All modules of the design mapped module by module, the top first.
    limit : int
        Cells of a module and all below it.

    Returns
    -------
    tuple[str, ...]
        Names; none for a design that is dissolved as a whole.
    """
    by_name = {module.name: module for module in modules}

    @cache
    def cells(name: str) -> int:
        """Return the cells of a module and all below it."""
        module = by_name[name]
        return module.cells + sum(n * cells(one) for one, n in module.below.items())

    parts: Counter[str] = Counter()

    def taken_in(name: str, times: int) -> int:
        """Return what the top gets of a module that is too large; count what stands below it."""
        own = times * by_name[name].cells
        for one, n in by_name[name].below.items():
            if cells(one) > limit and by_name[one].below:
                own += taken_in(one, times * n)
            else:
                parts[one] += times * n * cells(one)
        return own

    top = taken_in(modules[0].name, 1)
    kept = []
    for name, size in sorted(parts.items(), key=lambda part: (part[1], part[0])):
        if top + size <= limit:
            top += size
        else:
            kept.append(name)
    return tuple(kept)

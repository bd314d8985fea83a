"""Selection of the modules of a large design that are kept while all others are flattened."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from synth.mapped_design import ModuleArea


def kept_modules(modules: Sequence[ModuleArea], limit: int) -> tuple[str, ...]:
    """Return the modules that are mapped separately, so that none has far more than `limit` cells.

    A module of up to `limit` cells absorbs all its submodules. The top absorbs larger modules, then
    the other modules in ascending order of size, until it has `limit` cells. A kept module is
    mapped once, regardless of its number of instances.

    Parameters
    ----------
    modules : Sequence[ModuleArea]
        All modules of the design mapped module by module, the top first.
    limit : int
        Maximum number of cells of a module with its submodules.

    Returns
    -------
    tuple[str, ...]
        Names of the modules; empty for a design that is flattened completely.
    """
    by_name = {module.name: module for module in modules}

    @cache
    def cells(name: str) -> int:
        """Return the cells of a module with its submodules."""
        module = by_name[name]
        return module.cells + sum(n * cells(one) for one, n in module.below.items())

    parts: Counter[str] = Counter()

    def taken_in(name: str, times: int) -> int:
        """Return the cells that the top absorbs of a module that is too large."""
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

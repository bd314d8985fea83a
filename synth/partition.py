"""Which modules of a large design stay modules while all others are dissolved."""

from collections.abc import Sequence

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
    below: dict[str, int] = {}

    def cells(name: str) -> int:
        """Return the cells of a module and all below it."""
        if name not in below:
            module = by_name[name]
            below[name] = module.cells + sum(n * cells(one) for one, n in module.below.items())
        return below[name]

    parts: dict[str, int] = {}
    top = 0

    def take_in(name: str, times: int) -> None:
        """Count a module's own cells to the top, and how often those below stand there."""
        nonlocal top
        top += times * by_name[name].cells
        for one, n in by_name[name].below.items():
            if cells(one) > limit and by_name[one].below:
                take_in(one, times * n)
            else:
                parts[one] = parts.get(one, 0) + times * n

    take_in(modules[0].name, 1)
    kept = []
    for name in sorted(parts, key=lambda name: (parts[name] * cells(name), name)):
        if top + parts[name] * cells(name) <= limit:
            top += parts[name] * cells(name)
        else:
            kept.append(name)
    return tuple(kept)

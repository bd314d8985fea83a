"""Model of VEDA with the AXI shell: places of memory lines, and output tokens."""

from collections.abc import Iterable, Sequence

from hdl.shell.veda_axi_parameters import KIND_FIRST, SPACES, TokenKind, VedaAxiParameters


def line_place(p: VedaAxiParameters, address: int) -> tuple[str, int]:
    """Return the region of a line, and its address there, for VEDA's address of the line."""
    layout = p.veda.address_layout
    line, layer, space = (
        address >> layout[name].offset & (1 << layout[name].width) - 1
        for name in ("line", "layer", "space")
    )
    region = SPACES[space]
    if region == "angles":
        return region, line
    if region == "vocabulary":
        return region, line | layer << layout["line"].width
    used = (p.veda.cache_line if region == "cache" else p.veda.weight_line).size
    return region, line | layer << used


def result_tokens(
    p: VedaAxiParameters,
    predictions: Iterable[tuple[int, int]],
    victims: Iterable[tuple[int, int]],
) -> list[int]:
    """Return the output tokens of predictions (token, sum), then of victims (layer, slot)."""
    tokens = list[int]()
    for token, total in predictions:
        tokens += [token, total | TokenKind.SUM.value << KIND_FIRST]
    slot_offset = p.veda.eviction_layout["slot"].offset
    for layer, slot in victims:
        tokens.append(layer | slot << slot_offset | TokenKind.VICTIM.value << KIND_FIRST)
    return tokens


def results_of(
    p: VedaAxiParameters, tokens: Sequence[int]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the predictions and the victims of output tokens, as `result_tokens` takes them."""
    content = (1 << KIND_FIRST) - 1
    by_kind = {
        kind: [one & content for one in tokens if one >> KIND_FIRST == kind.value]
        for kind in TokenKind
    }
    predictions = list(zip(by_kind[TokenKind.TOKEN], by_kind[TokenKind.SUM], strict=True))
    layout = p.veda.eviction_layout
    offset, width = layout["slot"].offset, layout["slot"].width
    victims = [
        (one & (1 << offset) - 1, one >> offset & (1 << width) - 1)
        for one in by_kind[TokenKind.VICTIM]
    ]
    return predictions, victims

"""Flowcharts in Mermaid's language as SVG, so that a page needs neither a script nor a network."""

import re

from mmdr import render

FONT = 12
"""Pixels: size of the letters. The layout is for 14, which wide fonts exceed."""
SMALLEST = 9
"""Pixels: least size of the letters on the page; a narrower window scrolls."""


def flowchart_of(text: str) -> str:
    """Return the SVG text of a flowchart, on white, for which its colours are made."""
    svg = render(text, backend="merman").svg()
    head = re.match(r'<svg [^>]*viewBox="(\S+ \S+ (\S+) \S+)"[^>]*>', svg)
    assert head, svg[:200]
    width = float(head[2])
    style = (
        f"display: block; width: 100%; min-width: {width * SMALLEST / FONT:.0f}px; "
        f"max-width: {width:.0f}px; background: #fff"
    )
    rest = svg[head.end() :].replace("font-size:14px", f"font-size:{FONT}px")
    return (
        f'<svg id="merman" class="flowchart" role="img" aria-label="Block diagram" '
        f'viewBox="{head[1]}" style="{style}">{rest}'
    )

"""JSON with one line per row, so that a change of one row is a change of one line."""

import json
from typing import Any


def json_rows(tree: Any, depth: int, margin: str = "") -> str:
    """Return a value as JSON, with one line for each value that is `depth` levels below it.

    Parameters
    ----------
    tree : Any
        What `json.dumps` accepts; objects keep their order.
    depth : int
        Levels of objects that are written over several lines, 0 or more.
    margin : str
        Indentation of the last line.
    """
    if not depth or not isinstance(tree, dict) or not tree:
        return json.dumps(tree)
    rows = (
        f"{margin} {json.dumps(key)}: {json_rows(value, depth - 1, margin + ' ')}"
        for key, value in tree.items()
    )
    return "{\n" + ",\n".join(rows) + f"\n{margin}}}"

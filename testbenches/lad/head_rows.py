"""Data of LAD's heads in a file: their rows, and the ports to them."""

from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Shape
from numpy.typing import NDArray

from golden.lad.lad_tile import Head
from hdl.lad.parameters import LadParameters
from testbenches.harness_memory import Plane, RowPort, Rows
from testbenches.lad.stored_heads import StoredHeads
from testbenches.packing import pack, unpack


class HeadRows(StoredHeads):
    """Rows of all heads of an accelerator; rows that were never written are 0.

    Parameters
    ----------
    p : LadParameters
        Dimensions of model and tiles.
    file : Path
        The file; `create` creates it.
    """

    def __init__(self, p: LadParameters, file: Path) -> None:
        super().__init__(p)
        self.file = file
        t = p.tile
        active, key, marks = (
            one.members for one in (t.active_layout, t.key_layout, t.marks_layout)
        )
        lanes = t.apid.lanes
        widths = {
            "keys": active["key"],
            "values": active["value"],
            "norms": key["norm"],
            "counters": t.md.counters_layout,
            "centres": t.eas.group_layout["centres"].width // lanes,
            "ratios": key["norm"],
            "modes": Shape.cast(marks["modes"]).width // lanes,
            "counts": Shape.cast(marks["counts"]).width // lanes,
            "caches": t.ac.word_layout,
        }
        self.planes: dict[str, Plane] = {}
        end = 0
        for name, shape in widths.items():
            width = shape if isinstance(shape, int) else Shape.cast(shape).width
            each = t.ac.columns if name == "caches" else t.slots
            self.planes[name] = Plane(end, -(-width // 8), each)
            end += self.heads * each * self.planes[name].element_bytes
        self.size = end

    def create(self) -> None:
        """Create a sparse file of zeros."""
        with self.file.open("wb") as file:
            file.truncate(self.size)

    def memory(self) -> Rows:
        """Return the memory in front of the file."""
        p, t = self.p.shared_tiles, self.p.tile
        planes, lanes = self.planes, t.apid.lanes
        of_group = {name: planes[name] for name in ("centres", "ratios", "modes", "counts")}
        of_active = {"key": planes["keys"], "value": planes["values"]}
        caches = {"word": planes["caches"]}

        def port(stream: str, layout: Any, fields: dict[str, Plane], **options: Any) -> RowPort:
            return RowPort(stream=stream, layout=p.named(layout), fields=fields, **options)

        def pair(name: str) -> dict[str, Plane]:
            return {"key": planes["keys"], name: planes[f"{name}s"]}

        return Rows(
            file=self.file,
            tiles=p.tiles,
            ports=[
                port(
                    "group_requests",
                    t.group_request_layout,
                    of_group,
                    answers="groups",
                    answer_layout=t.eas.group_layout,
                    length="length",
                    lanes=lanes,
                ),
                port(
                    "key_requests",
                    t.row_request_layout,
                    pair("norm"),
                    answers="keys",
                    answer_layout=t.key_layout,
                    place="position",
                ),
                port(
                    "active_requests",
                    t.row_request_layout,
                    of_active,
                    answers="active",
                    answer_layout=t.active_layout,
                    place="position",
                ),
                port(
                    "counter_requests",
                    t.row_request_layout,
                    {"counters": planes["counters"]},
                    answers="tallies",
                    answer_layout=t.tally_layout,
                    place="position",
                ),
                port(
                    "cache_requests",
                    t.head_layout,
                    caches,
                    answers="caches",
                    answer_layout=t.ac.cache_layout,
                    count=t.ac.columns,
                ),
                port("appends", t.append_layout, pair("value"), place="position"),
                port(
                    "centres",
                    t.centre_layout,
                    {name: planes[f"{name}s"] for name in ("centre", "norm", "ratio")},
                    place="position",
                ),
                port(
                    "marks",
                    t.marks_layout,
                    {name: planes[name] for name in ("modes", "counts")},
                    place="group",
                    lanes=lanes,
                ),
                port(
                    "counters",
                    t.counters_layout,
                    {"counters": planes["counters"]},
                    place="position",
                ),
                port("columns", t.column_layout, caches, count=t.ac.columns),
            ],
        )

    def plane_bytes(self, name: str, mode: Any = "r") -> NDArray[np.uint8]:
        """Map a plane: bytes [heads, elements, byte]."""
        plane = self.planes[name]
        shape = (self.heads, plane.each, plane.element_bytes)
        return np.memmap(self.file, np.uint8, mode, offset=plane.first, shape=shape)

    def read(self, name: str, length: int) -> NDArray[Any]:
        """Return the first elements of each head in the layout of a model's `Head`."""
        stored = np.ascontiguousarray(self.plane_bytes(name)[:, :length])
        t = self.p.tile
        if name == "counters":
            layout = t.md.counters_layout
            bits = np.unpackbits(stored, axis=-1, count=layout.size, bitorder="little")
            return unpack(layout, bits)
        if name in ("keys", "values"):
            return stored.view("<u2")
        if name == "caches":
            return stored.view(f"<u{t.ac.cache_format.width // 8}")
        number = sum(stored[..., i].astype(np.int64) << 8 * i for i in range(stored.shape[-1]))
        return np.asarray(number)

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Write the first elements of each head, as bytes."""
        for name, stored in state.items():
            self.plane_bytes(name, "r+")[:, : stored.shape[1]] = stored

    def state(self, length: int) -> dict[str, NDArray[Any]]:
        """Return the bytes of `length` positions, and the caches."""
        columns = self.p.tile.ac.columns
        return {
            name: np.array(self.plane_bytes(name)[:, : columns if name == "caches" else length])
            for name in self.planes
        }

    def state_of(self, heads: list[Head], length: int) -> dict[str, NDArray[Any]]:
        """Return what `state` returns, of a model's heads: the inverse of `model_heads`."""
        found = {}
        for name, plane in self.planes.items():
            rows = np.stack([getattr(head, name) for head in heads])
            if name == "caches":
                rows = rows.reshape(len(heads), plane.each, -1)
            else:
                rows = rows[:, :length]
            if name == "counters":
                bits = pack(self.p.tile.md.counters_layout, rows)
                found[name] = np.packbits(bits, axis=-1, bitorder="little")
                continue
            # A row of one number has no axis of elements.
            rows = rows.reshape(*rows.shape[:2], -1).astype("<u8")
            each = plane.element_bytes // rows.shape[-1]
            own = rows[..., np.newaxis].view(np.uint8)[..., :each]
            found[name] = own.reshape(*rows.shape[:2], plane.element_bytes)
        return found

"""Writes rows from outside into the KV eDRAM: kept tokens of a prefill, and input vectors."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.edram.kv_edram import SIDES, KvEdramParameters
from hdl.unit import Unit


class RowWriter(Unit):
    """Write the keys of a row, then the values.

    **Latency** 0 cycles. **Throughput** one row per 2 cycles.

    Parameters
    ----------
    parameters : KvEdramParameters
        Dimensions of the eDRAM.

    Members
    -------
    row_writes : In(stream)
        `address`, and the `keys` and `values` to write there.
    keys_write, values_write : Out(stream)
        As in `KvEdram`.
    """

    def __init__(self, *, parameters: KvEdramParameters) -> None:
        p = self.parameters = parameters
        rows = {"address": p.address_bits} | {side: p.row_layout for side in SIDES}
        writes = stream.Signature(p.write_layout)
        super().__init__(
            {
                "row_writes": In(stream.Signature(data.StructLayout(rows))),
                **{f"{side}_write": Out(writes) for side in SIDES},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Alternate between the sides."""
        m = Module()
        rows, keys, values = self.row_writes, self.keys_write, self.values_write
        side = Signal()  # As in `SIDES`.
        m.d.comb += [
            keys.valid.eq(rows.valid & ~side),
            keys.payload.address.eq(rows.payload.address),
            keys.payload.row.eq(rows.payload.keys),
            values.valid.eq(rows.valid & side),
            values.payload.address.eq(rows.payload.address),
            values.payload.row.eq(rows.payload["values"]),
            rows.ready.eq(side & values.ready),
        ]
        with m.If((keys.valid & keys.ready) | (values.valid & values.ready)):
            m.d.sync += side.eq(~side)
        return m

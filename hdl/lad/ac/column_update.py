"""Update of the columns of the caches by the positions of U (AC.5 to AC.8)."""

from amaranth.hdl import Cat, Const, Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_multiply import FloatMultiply
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.update_store import UpdateStore
from hdl.lad.fp16 import FP16
from hdl.unit import Unit


class ColumnUpdate(Unit):
    """Pass all columns once per position of U: operands of the vector units, and cache addresses.

    Column p of A is increased by ``(alpha * V[u, p]) * K[u]``, B[p] by ``alpha * V[u, p]`` and
    C[p] by ``beta * V[u, p]``. With V[u, d] = 1 this also updates D, E and F, the last column.

    **Latency** 2 cycles from `begin` to the first column, `multiply_stages` to the operands,
    `product_latency` - 1 to `read`, and `cache_stages` + 1 from there to `write`. **Throughput**
    one position per `pass_cycles` cycles. **Numerics** FP16 products, each rounded once.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Lanes, number of columns and register stages.

    Members
    -------
    clear, store, full, factors, vectors, begin, busy
        As in `UpdateStore`.
    valid : Out(1)
        `key` and `slopes` are operands of the vector units.
    key : Out(ArrayLayout(16, head_size))
        The position's key.
    slopes : Out(16).array(lanes)
        Alpha times the value's element of each lane's column.
    read, read_group : Out
        Read this group of columns; the products of the vector units are valid one cycle later.
    scalars : Out(scalars_layout).array(lanes)
        Alpha and beta times the value's element, with `read`.
    write, write_group : Out
        The lanes whose updated columns are written, and their group.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "clear": In(1),
                "store": In(p.lanes),
                "full": Out(p.lanes),
                "factors": In(p.factors_layout),
                "vectors": In(p.vectors_layout),
                "begin": In(1),
                "busy": Out(1),
                "valid": Out(1),
                "key": Out(p.vector.vector_layout),
                "slopes": Out(FP16).array(p.lanes),
                "read": Out(1),
                "read_group": Out(p.group_shape),
                "scalars": Out(p.scalars_layout).array(p.lanes),
                "write": Out(p.lanes),
                "write_group": Out(p.group_shape),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply the coefficients by the elements; delay the column's group until its write."""
        m = Module()
        p = self.parameters
        m.submodules.store = store = UpdateStore(parameters=p)
        m.d.comb += [
            store.clear.eq(self.clear),
            store.store.eq(self.store),
            self.full.eq(store.full),
            store.factors.eq(self.factors),
            store.vectors.eq(self.vectors),
            store.begin.eq(self.begin),
            self.busy.eq(store.busy),
            self.key.eq(store.key),
        ]
        multiplied = p.vector.multiply_stages
        for lane in range(p.lanes):
            results = []
            for name, coefficient in (("slope", store.alpha), ("intercept", store.beta)):
                m.submodules[f"{name}_{lane}"] = multiply = FloatMultiply(stages=multiplied)
                m.d.comb += [
                    Value.cast(multiply.a).eq(coefficient),
                    Value.cast(multiply.b).eq(store.elements[lane]),
                ]
                results.append(Value.cast(multiply.result))
            # B and C are added one cycle after `read`, together with the vector unit's product.
            held = delay_line(m, Cat(results), p.product_latency - 1, name=f"scalars_{lane}")[-1]
            m.d.comb += [
                self.slopes[lane].eq(results[0]),
                Value.cast(self.scalars[lane]).eq(held),
            ]
        # A column is written back to the address it was read from.
        read = multiplied + p.product_latency - 1
        write = read + 1 + p.cache_stages
        shown = delay_line(m, store.shown, write, name="shown", reset=True)
        group = delay_line(m, store.group, write, name="group")
        m.d.comb += [
            self.valid.eq(shown[multiplied]),
            self.read.eq(shown[read]),
            self.read_group.eq(group[read]),
            self.write_group.eq(group[write]),
        ]
        for lane in range(p.lanes):
            # The last group can have fewer columns than lanes; its missing columns are not written.
            holds = lane + p.lanes * (p.groups - 1) < p.columns
            m.d.comb += self.write[lane].eq(
                shown[write] & (Const(int(holds)) | (group[write] != p.groups - 1))
            )
        return m

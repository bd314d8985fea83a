"""The register slice loses nothing, delays by one cycle, and has no combinational path."""

from amaranth.hdl import Elaboratable, Module, Signal

from hdl.stream.register_slice import RegisterSlice
from testbenches.formal import AnySeq, Assert, prove
from testbenches.stream_trial import check_streams, run_streams


def test_items_pass_in_order() -> None:
    items = list(range(100))
    check_streams(RegisterSlice(shape=8), {"source": items}, {"sink": items})


def test_full_rate_after_one_cycle() -> None:
    offered = []
    unit = RegisterSlice(shape=8)

    def watch(ctx) -> None:
        offered.append(ctx.get(unit.sink.valid))

    run_streams(unit, {"source": range(50)}, {"sink": 50}, seed=0, pauses="none", cycle=watch)
    assert offered[:52] == [0, *[1] * 50, 0]


def test_has_no_combinational_path() -> None:
    """Within a cycle, the inputs of one side do not change the outputs of the other."""
    unit = RegisterSlice(shape=8)
    seen = set()

    def wiggle(ctx) -> None:
        before = ctx.get(unit.source.ready), ctx.get(unit.sink.valid), ctx.get(unit.sink.payload)
        inputs = unit.source.valid, unit.source.payload, unit.sink.ready
        driven = [ctx.get(signal) for signal in inputs]
        for signal, value in zip(inputs, driven, strict=True):
            ctx.set(signal, ~value & (1 << len(signal)) - 1)
        after = ctx.get(unit.source.ready), ctx.get(unit.sink.valid), ctx.get(unit.sink.payload)
        assert after == before
        seen.add(before[:2])
        for signal, value in zip(inputs, driven, strict=True):
            ctx.set(signal, value)

    run_streams(unit, {"source": range(50)}, {"sink": 50}, seed=1, cycle=wiggle)
    assert seen == {(0, 1), (1, 0), (1, 1)}


class Numbered(Elaboratable):
    """Consecutive numbers enter; the output must be consecutive and stable."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = RegisterSlice(shape=4)
        sent, received = Signal(4), Signal(4)
        inside = Signal(2)
        m.d.comb += [
            dut.source.valid.eq(AnySeq(1)),
            dut.source.payload.eq(sent),
            dut.sink.ready.eq(AnySeq(1)),
            inside.eq(dut.sink.valid + dut.skid_full),
        ]
        m.d.sync += [
            sent.eq(sent + (dut.source.valid & dut.source.ready)),
            received.eq(received + (dut.sink.valid & dut.sink.ready)),
        ]
        m.d.comb += [
            Assert((sent - received)[:4] == inside),
            Assert(~dut.skid_full | dut.sink.valid),
            Assert(~dut.sink.valid | (dut.sink.payload == received)),
            Assert(~dut.skid_full | (dut.skid == (received + 1)[:4])),
        ]
        return m


def test_order_is_proven() -> None:
    prove(Numbered(), inputs=[], depth=3)

"""A whole decoder layer of P3-LLM in Amaranth's simulator, at the smallest dimensions."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.p3llm.dram_layout import row_number
from hdl.p3llm.catalog import SHORT_TIMES
from hdl.p3llm.p3llm import P3llm
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, PimChannelParameters
from hdl.p3llm.pim.pim_compute_unit import PimComputeUnitParameters
from hdl.target import Target, writing_for
from testbenches.p3llm.system_models import Model

pytestmark = pytest.mark.depends()

LONGEST = 4000
"""Timeout in cycles."""


def smallest(
    heads: int,
    kv_heads: int = 1,
    lanes: int = 2,
    vocabulary: int = 0,
    batch: int = 1,
    channels: int = 1,
    units: int = 2,
    size: int = 16,
) -> P3llmParameters:
    """Units of four elements; `heads` query heads share `kv_heads` key/value heads."""
    timing = replace(SHORT_TIMES, banks=2 * units)
    unit = PimComputeUnitParameters(elements=4, steps=4)
    return P3llmParameters(
        channel=PimChannelParameters(unit=unit, timing=timing),
        pseudo_channels=channels,
        hidden_size=size,
        intermediate_size=size,
        heads=heads,
        kv_heads=kv_heads,
        head_size=8,
        group_weights=8,
        slots=64,
        layers=1,
        vocabulary_size=vocabulary,
        batch=batch,
        lanes=lanes,
    )


class Arrays:
    """The bytes of a pseudo-channel's banks, opened, read and written by its commands."""

    def __init__(self, p: P3llmParameters, image: np.ndarray) -> None:
        self.p, self.image = p, image
        self.rows = [0] * p.channel.timing.banks
        self.columns = [0] * p.units

    def tell(self, issued: dict[str, int]) -> None:
        """Execute the commands of a cycle."""
        size = 2 * self.p.elements
        for bank, row in enumerate(self.rows):
            unit, side = divmod(bank, 2)
            place = (row_number(row, side) << COLUMN_BITS) + issued["column"]
            if issued["read"] >> bank & 1:
                self.columns[unit] = int.from_bytes(self.image[place, unit].tobytes(), "little")
            if issued["write"] >> bank & 1:
                chosen = (issued["mask"] >> np.arange(size) & 1).astype(bool)
                data_bytes = np.frombuffer(issued["data"].to_bytes(size, "little"), np.uint8)
                self.image[place, unit, chosen] = data_bytes[chosen]
            if issued["activate"] >> bank & 1:
                self.rows[bank] = issued["row"]


def run_layer(
    p: P3llmParameters, image: np.ndarray, states: np.ndarray, *positions: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the hidden states after the layer, the banks' bytes, and the status.

    The layer runs once per set of positions, with the same bytes; the results are those of the last
    run.
    """
    got, image, status = run_steps(p, image, [(0, times, states) for times in positions])
    return got[-1], image, status


def run_steps(
    p: P3llmParameters, image: np.ndarray, steps: Sequence[tuple[int, Sequence[int], np.ndarray]]
) -> tuple[list[np.ndarray], np.ndarray, int]:
    """Return the results of steps (layer, positions), the bytes after the last one, the status.

    The result of a layer is the hidden states [requests, width], that of the LM head [requests, 2]
    the token of each request and the code of its logit.
    """
    unit, count = P3llm(parameters=p), p.pseudo_channels
    arrays = [Arrays(p, part.copy()) for part in np.split(image, count, axis=1)]
    ports = [
        [getattr(unit, unit.banks_port(name, number)) for name in ("bank_command", "bank_data")]
        for number in range(count)
    ]
    received: list[list[int]] = []
    given: list[np.ndarray] = []
    statuses = []

    async def bench(ctx) -> None:
        ctx.set(unit.states_out.ready, 1)
        if p.vocabulary_size:
            ctx.set(unit.predictions.ready, 1)
        for layer, positions, states in steps:
            for one, part in zip(arrays, np.split(image, count, axis=1), strict=True):
                one.image = part.copy()
            received.clear()
            slices = states.view(np.uint32).reshape(-1, p.lanes).tolist()
            await step(ctx, layer, positions, slices)
            given.append(np.array(received, np.uint32).reshape(p.batch, -1))

    async def step(ctx, layer: int, positions: Sequence[int], slices: list[list[int]]) -> None:
        waiting, expected = list(slices), len(slices) if layer < p.layers else p.batch
        ctx.set(unit.instructions.valid, 1)
        ctx.set(unit.instructions.payload, {"layer": layer, "position": list(positions)})
        for _cycle in range(LONGEST * p.batch):
            ctx.set(unit.states_in.valid, bool(waiting))
            if waiting:
                last = (len(waiting) - 1) % (p.hidden_size // p.lanes) == 0
                ctx.set(unit.states_in.payload, {"values": waiting[0], "last": last})
                if ctx.get(unit.states_in.ready):
                    waiting.pop(0)
            issued = [ctx.get(command.as_value()) for command, _data in ports]
            fields = p.channel.bank_command_layout
            for one, bits in zip(arrays, issued, strict=True):
                if bits:
                    one.tell({name: bits >> f.offset & (1 << f.width) - 1 for name, f in fields})
            if ctx.get(unit.states_out.valid):
                values = unit.states_out.payload["values"]
                received.append([ctx.get(values[i]) for i in range(p.lanes)])
            if p.vocabulary_size and ctx.get(unit.predictions.valid):
                predicted = unit.predictions.payload
                received.append([ctx.get(predicted.token), ctx.get(predicted["sum"])])
            statuses.append(ctx.get(unit.status.as_value()))
            taken = ctx.get(unit.instructions.ready)
            await ctx.tick()
            if taken:
                ctx.set(unit.instructions.valid, 0)
            for one, bits, (_command, columns) in zip(arrays, issued, ports, strict=True):
                for number, column in enumerate(one.columns if bits else ()):
                    ctx.set(columns[number], column)
            if len(received) == expected:
                return
        raise AssertionError(f"layer {layer} does not end")

    # Multipliers made of gates are slow in this simulator.
    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return given, np.concatenate([one.image for one in arrays], axis=1), max(statuses)


@pytest.mark.full
@pytest.mark.parametrize("batch", [1, 2])
def test_two_units_share_the_tiles_of_the_last_round(batch: int) -> None:
    """Six tiles in four units: matrices of one and of three groups, whose half is two and one."""
    p, rng = smallest(1, lanes=4, batch=batch, units=4, size=24), np.random.default_rng(batch)
    assert [place.shared for place in p.matrices.values()] == [True, True, False, True]
    cached = [9, 4][:batch]
    model = Model.random(p, cached, rng)
    image = model.image
    states = rng.normal(size=(batch, p.hidden_size)).astype(np.float32)
    expected = model.step(0, states, cached)
    got, after, status = run_layer(p, image, states, cached)
    assert got.tolist() == expected.view(np.uint32).tolist()
    assert (after == model.image).all()
    assert status == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("heads", "kv_heads", "lanes", "cached"),
    [(1, 1, 2, 9), (3, 1, 2, 9), (2, 1, 4, 40), (6, 2, 4, 9), (4, 4, 2, 31)],
)
def test_a_layer_is_equal_to_the_model(heads: int, kv_heads: int, lanes: int, cached: int) -> None:
    """Single heads, pairs, and both; the hidden state, and every byte in the banks."""
    p, rng = smallest(heads, kv_heads, lanes), np.random.default_rng(heads)
    model = Model.random(p, [cached], rng)
    image = model.image
    states = rng.normal(size=(1, p.hidden_size)).astype(np.float32)
    expected = model.step(0, states, [cached])
    # An earlier, longer text must not affect the result.
    before = [[cached + 5]] if heads == 1 else []
    got, after, status = run_layer(p, image, states, *before, [cached])
    assert got.tolist() == expected.view(np.uint32).tolist()
    assert (after == model.image).all()
    assert status == 0

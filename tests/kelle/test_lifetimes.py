"""Lifetimes of x, q, k, v and the scores in a step, compared with Equation 8."""

import pytest

from hdl.catalog import entry_named
from hdl.emit import Emission, write_verilog
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.paths import BUILD
from hdl.target import Target
from testbenches.kelle.probed_kelle import ProbedKelle
from testbenches.kelle.step_cycles import HEAD_LATENCY
from testbenches.runner import Request, prepare, run_testbench

pytestmark = pytest.mark.depends("kelle")

ENTRY = entry_named("kelle")


@pytest.mark.parametrize("preset", ["tiny", pytest.param("smollm2", marks=pytest.mark.full)])
def test_lifetimes(preset: str) -> None:
    """Keys and values are consumed as produced; x is held for three matrices, q for one."""
    p: KelleParameters = ENTRY.parameters(preset)
    prepare(ENTRY, p)
    home = BUILD / "kelle" / f"{preset}_lifetimes"
    emission = Emission(top=ProbedKelle(parameters=p), name="kelle", target=Target.FPGA)
    result = run_testbench(
        top="kelle",
        preset=preset,
        parameters=p,
        testbench="testbenches.kelle.tb_kelle_lifetimes",
        ports=emission.modules[-1].ports,
        verilog=write_verilog(emission, home / "rtl")[:-1],
        home=home,
        request=Request(seed=1, target=Target.FPGA),
    )
    assert result.passed, result.first_failure
    found = result.facts["lifetimes"]
    matrix = {
        which: p.operations(which) * p.head_slices * p.hidden_slices * p.array.array.load_cycles
        for which in (Operation.QUERY, Operation.KEY, Operation.VALUE)
    }
    # A head's blocks, and all heads': T_eDRAM of keys, and of values.
    block = (p.cache_tiles + 1) * p.block_cycles
    cache = p.kv_heads * block
    print(preset, found, matrix, cache)
    stage = matrix[Operation.KEY] // p.kv_heads + block
    three = sum(matrix.values()) + 2 * cache
    assert sum(matrix.values()) < found["x"] < three + stage
    assert found["q"] < matrix[Operation.QUERY] + matrix[Operation.KEY] + cache + 2 * stage
    # A key is held until its head's victim is found; a value is not held for any event.
    assert found["k"] < 3 * stage + HEAD_LATENCY and found["v"] < 2 * stage + HEAD_LATENCY

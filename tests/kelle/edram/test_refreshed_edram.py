"""The KV eDRAM with its refresh controllers, on banks that lose bits."""

import pytest

from hdl.emit import Emission, write_verilog
from hdl.kelle.edram.kv_edram import KvEdramParameters
from hdl.kelle.edram.refreshed_edram import RefreshedEdram, RefreshedEdramParameters
from hdl.paths import BUILD
from testbenches.kelle.edram.retention import with_fading_banks
from testbenches.kelle.edram.tb_kv_edram import prepare
from testbenches.kelle.edram.tb_refreshed_edram import PARAMETERS, RETENTION
from testbenches.runner import Request, run_testbench


def test_refresh_is_never_late_and_needed() -> None:
    """Use a behavioural eDRAM in the swap point; the rest of the design is as emitted."""
    edram = PARAMETERS.edram
    prepare(edram)
    home = BUILD / "refreshed_edram" / "tiny_retention"
    emission = Emission(top=RefreshedEdram(parameters=PARAMETERS), name="refreshed_edram")
    files = write_verilog(emission, home / "rtl")
    verilog = with_fading_banks(
        files,
        home / "fading",
        depth=edram.words,
        width=8 * edram.word_bytes,
        retention=RETENTION,
    )
    result = run_testbench(
        top="refreshed_edram",
        preset="tiny",
        parameters=PARAMETERS,
        testbench="testbenches.kelle.edram.tb_refreshed_edram",
        ports=emission.modules[-1].ports,
        verilog=verilog,
        home=home,
        request=Request(seed=1),
    )
    assert result.passed, result.first_failure
    assert result.values_checked > 0


def test_too_many_entries_for_the_refresh_controllers() -> None:
    """The rules of the refresh controllers are checked here as well."""
    edram = KvEdramParameters(words=1 << 16, head_size=64, slots=4096, kv_heads=16, vectors=0)
    with pytest.raises(ValueError, match="tick_bits must be an integer from 4 to 32, not 3"):
        RefreshedEdramParameters(edram=edram, tick_bits=3)

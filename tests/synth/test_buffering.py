import json

import pytest

from synth.buffering import FAN_OUT, buffer_modules
from synth.liberty import find_library
from synth.mapped_design import Netlist
from tests.synth.designs import Broadcast
from tests.synth.netlists import TOP, most_pins, synthesise

COPIES = 70


@pytest.fixture(scope="module")
def netlist(tmp_path_factory: pytest.TempPathFactory) -> Netlist:
    directory = tmp_path_factory.mktemp("broadcast")
    return synthesise(Broadcast(copies=COPIES), find_library(), directory, flatten=False)


def test_no_net_drives_more_than_a_few_pins(netlist: Netlist) -> None:
    if not netlist.library.buffer:
        pytest.skip("the library has no buffer")
    assert most_pins(netlist) <= FAN_OUT


def test_buffers_are_counted(netlist: Netlist) -> None:
    assert netlist.library.buffer is not None
    top = next(module for module in netlist.modules if module.name == TOP)
    mapped = json.loads((netlist.directory / f"{netlist.stem}.mapped.json").read_text())
    added = [name for name in mapped["modules"][TOP]["cells"] if "fan_out_buffer" in name]
    assert 8 * COPIES // FAN_OUT <= len(added)
    assert top.cells == sum(
        cell["type"] in netlist.library.cells for cell in mapped["modules"][TOP]["cells"].values()
    )
    assert buffer_modules(mapped, netlist.library) == 0

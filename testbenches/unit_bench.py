"""Testbench of a unit by its streams and golden model: it drives, receives and compares."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from testbenches.bench import Bench
from testbenches.packing import from_integers, pack, to_integers, unpack

Fields = dict[str, Any]
"""Items of a stream by the fields of their layout; the first axis is time."""

SETTLING = 20
"""Cycles after the last expected item in which a further item would be an error."""

Items = Fields | NDArray[Any]
"""Items of a stream: fields of a struct, or an array if the payload is not a struct."""

W = TypeVar("W")


class UnitBench(Generic[W]):
    """Testbench of a unit whose outputs are a function of its inputs, item by item in order.

    A testbench declares the streams, the function from work to the items that are sent, and the
    golden model. The tests that such units share are in `testbenches.shared_tests`.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Pause patterns of all inputs and of all outputs.
    inputs, outputs : Mapping[str, ShapeLike]
        Names of the streams, and the layouts of their payloads.
    offered : Callable
        Function from work to the items of each input. An input without items may be left out.
    expected : Callable
        Golden model: function from work to the items of each output. Elements that are masked
        (`numpy.ma`) are undefined, and not compared.
    patterns : Mapping[str, str]
        Pause patterns of streams that have one of their own.
    seed, parameters
        As for `testbenches.bench.Bench`.

    Members
    -------
    p : Any
        Parameter object of the unit.
    sources, sinks : dict
        Drivers and receivers by stream.
    """

    def __init__(
        self,
        dut: Any,
        salt: str = "",
        source: str = "none",
        sink: str = "none",
        *,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        offered: Callable[[W], Mapping[str, Items]],
        expected: Callable[[W], Mapping[str, Fields]],
        patterns: Mapping[str, str] | None = None,
        seed: int | None = None,
        parameters: Any = None,
    ) -> None:
        own = patterns or {}
        self.bench = Bench(dut, salt, seed=seed, parameters=parameters)
        self.p = self.bench.parameters
        self.inputs, self.outputs = inputs, outputs
        self.offered, self.expected = offered, expected
        self.sources = {
            name: self.bench.source(name, own.get(name, source), layout=layout)
            for name, layout in inputs.items()
        }
        self.sinks = {
            name: self.bench.sink(name, own.get(name, sink), layout=layout)
            for name, layout in outputs.items()
        }

    def offer(self, work: W) -> None:
        """Queue the items of all inputs."""
        for name, items in self.offered(work).items():
            self.sources[name].send(to_integers(pack(self.inputs[name], items)))

    async def run(self, work: W) -> int:
        """Reset, run work and compare every output; return the cycles to the last item."""
        await self.bench.reset()
        self.offer(work)
        return await self.finish(work)

    async def finish(self, work: W) -> int:
        """Receive and compare the outputs of work that is offered; return the cycles."""
        answers = self.expected(work)
        counts = {name: len(next(iter(items.values()))) for name, items in answers.items()}
        cycles = await self.bench.run(
            until=lambda: all(len(self.sinks[name].received) >= counts[name] for name in counts)
        )
        await self.bench.step(SETTLING)
        for name, sink in self.sinks.items():
            if name in answers:
                self.check(name, answers[name])
            else:
                assert not sink.received, f"{name}: {len(sink.received)} items, not 0"
        return cycles

    def check(self, name: str, expected: Fields) -> None:
        """Compare every field of every item of an output."""
        received = self.sinks[name].received
        cycles = [cycle for cycle, _payload in received]
        layout = self.outputs[name]
        got = unpack(layout, from_integers([payload for _cycle, payload in received], layout.size))
        for field, values in expected.items():
            what = field if len(self.outputs) == 1 else f"{name}.{field}"
            read = self.integers(got[field])
            wanted = np.asarray(np.ma.getdata(values), np.int64)
            if np.ma.isMaskedArray(values) and wanted.shape == read.shape:
                wanted = np.where(np.ma.getmaskarray(values), read, wanted)
            self.bench.compare(what, wanted, read, cycles=cycles, show=self.shown)

    def integers(self, value: Any) -> NDArray[np.int64]:
        """Convert a received field for comparison."""
        return value

    def shown(self, value: int) -> str:
        """Format a value of a field for the report of a difference."""
        return str(value)

"""VEDA with the AXI shell: loads a model's lines, and runs blocks of tokens."""

import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.shell.veda_axi import line_place, results_of
from golden.veda.veda import Codes
from golden.veda.whole_model import Block
from hdl.shell.veda_axi_parameters import VedaAxiParameters
from hdl.veda.instructions import Space
from systola.host.device import DeviceError
from systola.host.shell import TIMEOUT, ShellHost
from systola.host.transport import Transport
from testbenches.packing import Bits, to_integers
from testbenches.veda.driver import Driver, Round
from testbenches.veda.model_lines import CacheLines, address, bytes_of_line, fixed_space

MOST_LINES = 1 << 16
"""Lines that are written to memory at once."""


class MemoryCache(CacheLines):
    """Keys and values in the memory of the accelerator."""

    def __init__(self, host: ShellHost, p: VedaAxiParameters) -> None:
        super().__init__(p.veda)
        self.host = host

    def layer_lines(self, layer: int) -> Codes:
        """Read all lines of a layer."""
        size = self.p.cache_line.size
        words = self.host.read_words("cache", layer << size, 1 << size)
        return words[:, : bytes_of_line(self.p)].copy().view("<u2")

    def keep(self, layer: int, lines: Codes) -> None:
        """Write all lines of a layer."""
        self.host.write_words("cache", layer << self.p.cache_line.size, lines.view(np.uint8))


class MemoryCounts(MutableMapping[int, NDArray[Any]]):
    """Vote counts in the memory of the accelerator, in two copies.

    A block reads one copy of a layer's counts and writes the other one. A block that ended with an
    error can be repeated, since it has not changed the copy that it read.

    Members
    -------
    copies : list[int]
        For each layer, the copy that holds its counts.
    """

    def __init__(self, host: ShellHost, p: VedaAxiParameters, layers: int) -> None:
        self.host, self.slots, self.layers = host, p.veda.slots, layers
        self.copies = [0] * layers

    def place(self, layer: int, copy: int) -> int:
        """Return the address of a copy of a layer's counts."""
        return (copy * self.layers + layer) * self.slots

    def __getitem__(self, layer: int) -> NDArray[Any]:
        words = self.host.read_words("counts", self.place(layer, self.copies[layer]), self.slots)
        size = words.shape[1]
        return np.pad(words, ((0, 0), (0, 8 - size))).view("<u8").reshape(-1)

    def __setitem__(self, layer: int, counts: NDArray[Any]) -> None:
        size = self.host.shell.regions["counts"]
        words = np.ascontiguousarray(counts, "<u8").view(np.uint8).reshape(-1, 8)[:, :size]
        self.host.write_words("counts", self.place(layer, self.copies[layer]), words)

    def __delitem__(self, layer: int) -> None:
        raise TypeError("the counts of a layer must remain in memory")

    def __len__(self) -> int:
        return self.layers

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.layers))


class VedaHost(ShellHost, Driver):
    """A model in the memory of VEDA with the AXI shell.

    A block that ended with an error is not counted in `length`, and `run` can repeat it.

    Parameters
    ----------
    transport : Transport
        Access to registers and memory.
    parameters : VedaAxiParameters
        Dimensions of the accelerator.
    layers : int
        Layers of the model.
    lines : numpy.ndarray
        The model's lines from `fixed_space` on, by VEDA's addresses, shape (lines, bytes); see
        `model_pieces`.
    timeout : float
        Seconds after which a job is stopped.

    Raises
    ------
    UserError
        If the accelerator has other parameters, or the memory is too small. Then nothing is
        written to memory.
    """

    def __init__(
        self,
        transport: Transport,
        parameters: VedaAxiParameters,
        layers: int,
        lines: NDArray[np.uint8],
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self.parameters = parameters
        p = parameters.veda
        words = {
            "instructions": layers,
            "vote_steps": layers * p.block,
            # Keys, values and queries of a search for the victims of all layers.
            "vectors": layers * p.projected_rows,
            "states": p.state_elements,
            "cache": layers << p.cache_line.size,
            "weights": layers << p.weight_line.size,
            "angles": 1 << p.angle_line.size,
            "vocabulary": 1 << p.vocabulary_line.size,
            "counts": 2 * layers * p.slots,
            "outputs": layers * p.rounds,
            "states_out": p.state_elements,
        }
        ShellHost.__init__(self, transport, parameters, "VEDA", words, timeout=timeout)
        self.votes = MemoryCounts(self, parameters, layers)
        Driver.__init__(self, p, layers, MemoryCache(self, parameters), self.votes)
        self._reset = False
        first = fixed_space(p)
        for space, bits, own in (
            (Space.WEIGHTS, p.weight_line.size, range(layers)),
            (Space.ANGLES, p.angle_line.size, range(1)),
            (Space.VOCABULARY, p.vocabulary_line.size, range(1)),
        ):
            for layer in own:
                start = address(p, space, layer=layer)
                region, place = line_place(parameters, start)
                # The file of a model ends with its last line.
                part = lines[start - first :][: 1 << bits]
                for number in range(0, len(part), MOST_LINES):
                    self.write_words(region, place + number, part[number : number + MOST_LINES])

    def run(self, block: Block, states: Codes, watch: Callable[..., None] | None = None) -> Round:
        """Execute all layers for a block's states; after a reset, restore the slot table first.

        Raises
        ------
        DeviceError
            If a job ends with an error, or does not end in time.
        """
        if self._reset:
            self.search_victims()
            self._reset = False
        return super().run(block, states, watch)

    def round(
        self,
        inputs: dict[str, Bits],
        expected: dict[str, int],
        steps: list[tuple[int, int, int]],
        watch: Callable[..., None] | None,
    ) -> Round:
        """Execute instructions as a job.

        Raises
        ------
        DeviceError
            If the job ends with an error, or does not end in time.
        """
        started = time.monotonic()
        streams = {"instructions": "instructions", "vectors": "vectors", "states": "states_in"}
        parts = {name: to_integers(inputs[own]) for name, own in streams.items() if own in inputs}
        parts = {"vectors": [], "states": [], "vote_steps": self._steps(steps)} | parts
        try:
            last = self.run_job(parts)
        except DeviceError:
            # The stop has reset the accelerator.
            self._reset = True
            raise
        for layer in {layer for layer, _reads, _writes in steps}:
            self.votes.copies[layer] ^= 1
        predictions, victims = results_of(self.parameters, last.tokens)
        rows = self.read_words("states_out", 0, expected.get("states_out", 0))
        states = np.ascontiguousarray(rows[:, :2]).view("<u2").reshape(-1, self.p.hidden_size)
        return Round(
            cycles=last.cycles,
            seconds=time.monotonic() - started,
            evictions=victims,
            prediction=predictions[0] if predictions else None,
            states=states,
        )

    def _steps(self, steps: list[tuple[int, int, int]]) -> list[int]:
        """Return the packed places of the vote counts of each step.

        The first step of a layer reads the present copy; all steps write the other one.
        """
        layout, found, begun = self.parameters.step_layout, list[int](), set[int]()
        for layer, reads, writes in steps:
            copy = self.votes.copies[layer]
            fields = {
                "read_address": self.votes.place(layer, copy ^ (layer in begun)),
                "reads": reads,
                "write_address": self.votes.place(layer, copy ^ 1),
                "writes": writes,
            }
            begun.add(layer)
            found.append(sum(value << layout[name].offset for name, value in fields.items()))
        return found

"""What the hosts of all accelerators with the AXI shell have in common: memory and jobs."""

from collections.abc import Mapping, Sequence

import numpy as np

from golden.shell.shell_jobs import Bytes, padded, program_words
from hdl.shell.shell_parameters import ShellParameters
from systola.host.device import Device, JobResult, place_regions
from systola.host.transport import Transport

TIMEOUT = 60.0
"""Seconds after which a job is stopped."""


class ShellHost:
    """The registers and the regions of memory of an accelerator.

    Parameters
    ----------
    transport : Transport
        Access to registers and memory.
    parameters : ShellParameters
        Dimensions of the accelerator.
    name : str
        Name of the accelerator in messages.
    words : Mapping[str, int]
        Number of words of each region.
    timeout : float
        Seconds after which a job is stopped.

    Members
    -------
    regions : dict[str, Region]
        Places of the regions.
    last : JobResult | None
        Result of the last job.

    Raises
    ------
    UserError
        If the accelerator has other parameters, or the memory is too small. Then nothing is
        written to memory.
    """

    def __init__(
        self,
        transport: Transport,
        parameters: ShellParameters,
        name: str,
        words: Mapping[str, int],
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self.transport, self.shell, self.timeout = transport, parameters, timeout
        self.last: JobResult | None = None
        sources = [*(port.name for port in parameters.ports), name]
        self.device = Device(transport, parameters.registers, sources)
        sizes = {region: words[region] * size for region, size in parameters.regions.items()}
        self.regions = place_regions(sizes, transport.memory)
        self.device.set_regions(list(self.regions.values()))

    def write_words(self, region: str, address: int, words: Bytes) -> None:
        """Write words [words, bytes] to a region from an address on, which counts words."""
        size = self.shell.regions[region]
        place = self.regions[region].first + address * size
        self.transport.write_memory(place, padded(words, size).tobytes())

    def read_words(self, region: str, address: int, count: int) -> Bytes:
        """Return words [words, bytes] of a region, with the padding of each word."""
        size = self.shell.regions[region]
        place = self.regions[region].first + address * size
        content = self.transport.read_memory(place, count * size)
        return np.frombuffer(content, np.uint8).reshape(count, size)

    def run_job(self, parts: Mapping[str, Sequence[int]]) -> JobResult:
        """Write the payloads of each part of a program, and run it.

        Raises
        ------
        DeviceError
            If the job ends with an error, or does not end in time.
        """
        numbers = []
        for name in self.shell.program:
            words = program_words(parts[name], self.shell.regions[name])
            self.write_words(name, 0, words)
            numbers.append(len(words))
        self.last = self.device.run(numbers, self.timeout)
        return self.last

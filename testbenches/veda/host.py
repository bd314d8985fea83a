"""The host of VEDA for a whole model in simulation: files of lines, and vote counts in memory."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from golden.veda.voting.vote_threshold import PAPER
from hdl.veda.instructions import Space
from hdl.veda.parameters import VedaParameters
from testbenches.external_memory import External
from testbenches.harness import Harness
from testbenches.harness_memory import BurstMemory, Store
from testbenches.long_run import Moved
from testbenches.packing import Bits, pack, to_integer, unpack
from testbenches.veda.driver import Driver, Round
from testbenches.veda.model_lines import CacheFile, address, bytes_of_line

TIMEOUT = 20_000
"""Timeout in cycles without any transfer."""


class Host(Driver):
    """The host of a compiled accelerator, whose memory and vote counts are in files and here.

    Parameters
    ----------
    p : VedaParameters
        Dimensions of the accelerator.
    layers : int
        Layers of the model.
    cache : CacheFile
        File of keys and values.
    fixed : Sequence[tuple[Path, int]]
        Files of read-only lines, and their addresses.
    harness : Harness
        The compiled accelerator.
    seed : int
        Seed of the stalls of every stream; 0 for none.
    external : External, optional
        The memory of lines and vote counts; without it, all ports are ideal.

    Members
    -------
    lines_read, lines_before, cycle_before : int
        Beats that the last block fetched, and beats and cycles before it.
    """

    def __init__(
        self,
        p: VedaParameters,
        layers: int,
        cache: CacheFile,
        fixed: Sequence[tuple[Path, int]],
        harness: Harness,
        seed: int = 0,
        external: External | None = None,
    ) -> None:
        self._counts = {number: np.zeros(0, np.uint64) for number in range(layers)}
        super().__init__(p, layers, cache, self._counts)
        memory = BurstMemory(
            file=cache.file,
            fixed=fixed,
            reads="reads",
            words="words",
            writes="writes",
            read_layout=p.read_layout,
            write_layout=p.write_layout,
            channels=p.channels,
            line_width=8 * bytes_of_line(p),
            address_width=p.address_layout.size,
            spread=_spread(p),
        )
        memories = [external, memory] if external else [memory]
        if external:
            # The counts of a layer's slots are adjacent.
            count_bytes = -(-p.voting.count_bits // 8)
            stride = count_bytes * p.slots
            first = external.reserve(stride * layers)
            external.route("counts_in", first, item_bytes=count_bytes, stride=stride)
        self._open = contextlib.ExitStack()
        self._session = self._open.enter_context(harness.session(memories, seed))
        self.lines_read = self.lines_before = self.cycle_before = 0

    def close(self) -> None:
        """Terminate the simulation."""
        self._open.close()

    def _predicted(self, bits: Bits) -> tuple[int, int] | None:
        """Return the predicted token and the code of its logit."""
        if not len(bits):
            return None
        layout = self.p.prediction_layout
        token, code = (
            bits[0, layout[name].offset :][: layout[name].width] for name in ("token", "sum")
        )
        return to_integer(token), to_integer(code)

    def round(
        self,
        inputs: dict[str, Bits],
        expected: dict[str, int],
        steps: list[tuple[int, int, int]],
        watch: Callable[[Moved], None] | None,
    ) -> Round:
        """Run the accelerator with the host's store of vote counts."""
        store = Store(given="counts_in", taken="counts_out", steps=steps, kept=self._counts)
        self.cycle_before = self._session.cycle
        coefficients = {name: np.array([number]) for name, number in vars(PAPER).items()}
        run = self._session.run(
            inputs,
            expected,
            driven={
                "threshold_coefficients": pack(
                    self.p.voting.threshold.coefficients_layout, coefficients
                ),
                "clear_flags": np.zeros((1, 1), np.uint8),
            },
            store=store,
            timeout=TIMEOUT,
            progress=0.25,
            watch=watch,
        )
        self.lines_read = run.counts["beats"] - self.lines_before
        self.lines_before = run.counts["beats"]
        found = unpack(self.p.eviction_layout, run.outputs["evictions"])
        left = unpack(16, run.outputs["states_out"][:, :16]).astype(np.uint16)
        return Round(
            cycles=run.cycle,
            seconds=run.seconds,
            evictions=list(zip(found["layer"].tolist(), found["slot"].tolist(), strict=True)),
            prediction=self._predicted(run.outputs["predictions"]),
            states=left.reshape(-1, self.p.hidden_size),
            run=run,
        )

    def written_at(self, done: Round, layer: int, place: tuple[int, ...], *, value: bool) -> str:
        """Return the time of the last write to a line of the cache in a run, as text."""
        assert done.run is not None
        p, layout, run = self.p, self.p.cache_line, done.run
        kv_head, slot, element = place
        line = (
            (slot << layout["slot"].offset)
            + (element // p.array.plane_width << layout["part"].offset)
            + (int(value) << layout["value"].offset)
            + (kv_head << layout["kv_head"].offset)
        )
        here = address(p, Space.CACHE, layer=layer, line=line)
        cycles = run.writes[run.writes[:, 0] == here, 1]
        return f", written in cycle {cycles[-1]}" if len(cycles) else ", written before"


def _spread(p: VedaParameters) -> dict[int, tuple[int, int]]:
    """Return the field of each space that is lowest in memory: offset and width in bits.

    The lines of one beat are then adjacent: those of all channels, or those of all heads.
    """
    fields = {
        Space.CACHE: (p.cache_line, "kv_head"),
        Space.WEIGHTS: (p.weight_line, "channel"),
        Space.VOCABULARY: (p.vocabulary_line, "channel"),
        Space.ANGLES: (p.angle_line, "part"),
    }
    return {
        space.value: (layout[name].offset, layout[name].width)
        for space, (layout, name) in fields.items()
    }

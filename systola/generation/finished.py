"""A finished run of the verb ``generate``: its comparisons and its table."""

import contextlib
import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from systola.options import console

BARE_CYCLES = 50_000
"""Cycles of the idle model, whose simulation speed is the reference for a run's."""


class Finished(ABC):
    """A finished run and its comparisons; a comparison that fails never hides the run's table.

    Members
    -------
    problems : list of str
        A sentence for each comparison that failed.
    """

    def __init__(self, run: Any) -> None:
        self.run = run
        self.problems: list[str] = []
        self._theirs: list[int] | None = None

    @property
    def files(self) -> list[Path]:
        """The files that the run has written."""
        return [self.run.checkpoint.record]

    @property
    @abstractmethod
    def title(self) -> str:
        """Title of the table."""

    @abstractmethod
    def rows(self) -> dict[str, str]:
        """Return the rows of the table without comparisons."""

    def compare(self, *, transformers: bool) -> None:
        """Generate the same text with `transformers`, if it is asked for."""
        from systola.generation.continuation import reference

        if not transformers:
            return
        with console.status("running transformers"), self._survived("transformers"):
            run = self.run
            self._theirs = reference(run.model, run.prompt, len(run.progress.tokens))

    @contextlib.contextmanager
    def _survived(self, what: str) -> Any:
        """Note an exception as a sentence."""
        try:
            yield
        # What a library raises for a model that it cannot run is not documented.
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self.problems.append(f"no comparison with {what}, which failed: {lines[0]}")

    def table(self) -> Table:
        """Return the table of the run."""
        table = Table(title=Text(self.title), title_style="italic")
        table.show_header = False
        rows = self.rows()
        if self.run.resumed:
            rows["resumed"] = f"after {self.run.resumed} processed tokens"
        for name, value in (rows | self._comparison()).items():
            # As `Text`, brackets of a generated text are no markup.
            table.add_row(Text(name), Text(value))
        return table

    def _comparison(self) -> dict[str, str]:
        """Return the rows about `transformers`."""
        from systola.generation.continuation import first_difference_of
        from systola.generation.text_stream import printable

        if self._theirs is None:
            return {}
        place = first_difference_of(self.run.progress.tokens, self._theirs)
        if place is None:
            return {"transformers, float32": "the same tokens"}
        return {
            "transformers, float32": f"differs from token {place + 1}",
            "its text": printable(self.run.continuation(self._theirs)),
        }


class FinishedPolicy(Finished):
    """A run of the model in float32 with a cache policy."""

    @property
    def title(self) -> str:
        """The model's file and the policy."""
        return f"{self.run.about['file']} with {self.run.system.named.name}, float32"

    def rows(self) -> dict[str, str]:
        """Return the rows of the cache, its evictions and their comparison.

        Raises
        ------
        UserError
            If the policy's fast form decides otherwise than its second source.
        """
        run, system = self.run, self.run.system
        policy, figures = system.named.policy, run.progress.figures
        most = f"at most {policy.budget:,}" if policy.budget < system.longest else "all"
        caches = policy.unit.caches(run.model.shape.heads, run.model.shape.kv_heads)
        steps = figures[1:] or figures
        each = sum(own["seconds"] for own in steps) / len(steps)
        rows = {
            "tokens": f"{len(run.prompt)} of the prompt, {len(run.progress.tokens)} generated",
            "Verilog": f"none runs: the model in float32 evicts by {system.named.name}",
            "cached tokens": f"{most}; one cache per {policy.unit.value}, {caches} in a layer",
            "evictions": f"{sum(own['evictions'] for own in figures):,}",
            "time": f"{each:.2f} s/token, {sum(own['seconds'] for own in figures):,.1f} s in total",
        }
        if system.sample:
            checked = system.sample.check()
            checked.require_equal(system.named.name)
            if checked.single.evictions:
                rows["evictions equal to float64"] = checked.single.share
            if checked.exact.evictions:
                rows["evictions equal to bit-exact"] = checked.exact.share
        hardware = system.named.hardware
        if hardware and hardware.accelerator:
            words = [f"{name}={shlex.quote(value)}" for name, value in hardware.accelerator.items()]
            rows["in Verilog by"] = f"make generate {' '.join(words)}"
        return rows


class FinishedVerilog(Finished):
    """A run of an accelerator's Verilog."""

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        self._idle: float | None = None

    @property
    def files(self) -> list[Path]:
        """The record, and the waveform if there is one."""
        samples = self.run.system.samples
        return [*super().files, *([samples.file] if samples else [])]

    @property
    def title(self) -> str:
        """The model's file and the accelerator."""
        return f"{self.run.about['file']} on {self.run.system.name}"

    def compare(self, *, transformers: bool) -> None:
        """Measure the simulation speed of the Verilog with constant inputs, in cycles/s, first."""
        # With a waveform this would overwrite the run's.
        if not self.run.system.samples:
            with (
                console.status("measuring the speed of the idle Verilog"),
                self._survived("the Verilog"),
            ):
                self._idle = self.run.system.idle_speed(BARE_CYCLES)
        super().compare(transformers=transformers)

    def rows(self) -> dict[str, str]:
        """Return the rows of cycles, traffic and decisions."""
        run = self.run
        figures = run.progress.figures
        steps = generated_blocks(figures)

        def mean(value: Any) -> float:
            return sum(value(own) for own in steps) / len(steps)

        cycles, bound = mean(lambda f: f["cycles"]), mean(lambda f: f["bound"])
        moved = mean(lambda f: f["bytes_read"] + f["bytes_written"])
        seconds = sum(f["seconds"] for f in figures)
        rate = sum(f["cycles"] for f in figures) / seconds
        rows = {
            "tokens": f"{len(run.prompt)} of the prompt, {len(run.progress.tokens)} generated",
            "cycles/token": f"{cycles:,.0f}",
            "lower bound": f"{bound:,.0f} ({bound / cycles:.1%}): {run.system.bound}",
            run.system.moved: f"{moved:,.0f}",
        }
        if external := run.system.external:
            rows |= _memory_rows(external, cycles, steps)
        if unpacked := mean(lambda f: f["bytes_unpacked"]):
            rows["with unpacked weights"] = f"{unpacked:,.0f} ({unpacked / moved:.2f} times)"
        if run.system.evicts:
            rows["evictions"] = f"{sum(len(f['evictions']) for f in figures):,}"
        for what in steps[-1]["decided"]:
            rows[f"{what}/token"] = f"{mean(lambda f, what=what: f['decided'][what]):,.1f}"
        rows["simulation"] = (
            f"{rate:,.0f} cycles/s, {mean(lambda f: f['seconds']):.1f} s/token, "
            f"{seconds:,.0f} s in total"
        )
        if self._idle:
            rows["idle simulation"] = (
                f"{self._idle:,.0f} cycles/s; the run: {rate / self._idle:.2f}"
            )
        if run.settings.check:
            rows["golden model"] = f"{run.system.compared} are equal"
        return rows


def _memory_rows(external: Any, cycles: float, steps: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the rows of the external memory: means per generated token."""

    def mean(value: Any) -> float:
        return sum(value(own["memory"]) for own in steps) / len(steps)

    waiting = mean(lambda m: m["waiting"])
    causes = {
        cause: mean(lambda m, cause=cause: m["port_cycles"][cause])
        for cause in steps[-1]["memory"]["port_cycles"]
    }
    total = sum(causes.values()) or 1
    shares = ", ".join(f"{name} {count / total:.0%}" for name, count in causes.items() if count)
    return {
        "tokens/s": f"{external.clock_mhz * 1e6 / cycles:,.1f} at {external.clock_mhz:,.0f} MHz",
        "external memory": f"{external.memory.name}, {external.gb_s:,.1f} GB/s",
        "waiting for it": f"{waiting:,.0f} cycles ({waiting / cycles:.1%})"
        + (f": {shares}" if shares else ""),
        "bandwidth in use": f"{mean(lambda m: m['utilization']):.1%}",
    }


def generated_blocks(blocks: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the blocks of a run's record whose means are its figures per token."""
    # The first predicted token includes the prompt's work in some systems.
    return [block for block in blocks if block["token"] is not None][1:] or blocks[-1:]

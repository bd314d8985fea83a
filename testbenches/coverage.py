"""Report of line, toggle and functional coverage."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_FIELD = re.compile(r"\x01([^\x02]+)\x02([^\x01]*)")


@dataclass
class _File:
    """Counts of one Verilog file: of lines by number, of toggles by signal bit."""

    lines: dict[int, int] = field(default_factory=dict)
    toggles: dict[str, int] = field(default_factory=dict)


def write_report(directory: Path, bins: Mapping[str, int]) -> list[Path]:
    """Write ``coverage.md`` from the ``coverage.dat`` of Verilator and the bins of the streams.

    Parameters
    ----------
    directory : Path
        Directory in which the simulator ran.
    bins : Mapping[str, int]
        Cycles by bin, see `testbenches.functional`; the name of a bin begins with its stream.

    Returns
    -------
    list[Path]
        The report and the data.
    """
    dump = directory / "coverage.dat"
    files = _read(dump)
    rows = ["| module | lines hit | toggles hit |", "|---|---|---|"]
    missed: list[str] = []
    for name, hits in sorted(files.items()):
        rows.append(f"| {name} | {share(hits.lines)} | {share(hits.toggles)} |")
        missed += [f"- {name}: line {line}" for line, n in sorted(hits.lines.items()) if not n]
        missed += [f"- {name}: {bit}" for bit, n in sorted(hits.toggles.items()) if not n]
    streams: dict[str, dict[str, int]] = defaultdict(dict)
    for name, hits in bins.items():
        streams[name.partition(": ")[0]][name] = hits
    rows += ["", "| stream | bins hit |", "|---|---|"]
    rows += [f"| {stream} | {share(own)} |" for stream, own in streams.items()]
    missed += [f"- {name}" for name, hits in bins.items() if not hits]
    report = directory / "coverage.md"
    text = ["# Coverage", "", *rows, "", "## Never hit", "", *(missed or ["nothing"]), ""]
    report.write_text("\n".join(text))
    return [report, dump]


def share(hits: Mapping[int, int] | Mapping[str, int]) -> str:
    """Return how many of some counts are not zero, for a table."""
    hit = sum(1 for count in hits.values() if count)
    return f"{hit} of {len(hits)} ({100 * hit / len(hits):.1f} %)" if hits else "none"


def _read(dump: Path) -> dict[str, _File]:
    """Read Verilator's counters; add up those of several instances of a module."""
    files: dict[str, _File] = defaultdict(_File)
    for line in dump.read_text(errors="replace").splitlines():
        if not line.startswith("C '"):
            continue
        key, _, count = line[3:].rpartition("' ")
        fields = dict(_FIELD.findall(key))
        file = files[Path(fields["f"]).stem]
        hits = int(count)
        if fields.get("page", "").startswith("v_toggle"):
            bit = fields["o"]
            # Yosys's dummy trigger of an always block is constant by design.
            if "dump_module" in bit:
                continue
            file.toggles[bit] = file.toggles.get(bit, 0) + hits
        else:
            number = int(fields["l"])
            file.lines[number] = file.lines.get(number, 0) + hits
    return files

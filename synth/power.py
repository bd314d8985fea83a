"""The verb ``power``: power of stored netlists of ``synth`` during a simulation.

Mapping a large design takes most of an hour. Its netlists are stored, and any simulation can be
replayed through them.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hdl.digest import verilog_digest
from hdl.errors import UserError
from hdl.paths import replace_text
from synth.liberty import Library
from synth.mapped_design import Memory, Netlist
from synth.replay import activity_of
from synth.timing import MISSING, analyse
from synth.waveforms import read_waveforms


@dataclass(frozen=True, kw_only=True)
class PowerPoint:
    """The power of one netlist.

    Parameters
    ----------
    recipe : str
        The recipe of the mapping.
    frequency_mhz : float
        Clock frequency: the netlist's maximum, or that of the period of the mapping.
    dynamic_mw, leakage_mw : float
        Switching and leakage power at that frequency.
    dynamic_pj, leakage_pj : float
        Switching and leakage energy per cycle.
    activity : str
        Description of the simulation.
    """

    recipe: str
    frequency_mhz: float
    dynamic_mw: float
    leakage_mw: float
    dynamic_pj: float
    leakage_pj: float
    activity: str


@dataclass(frozen=True, kw_only=True)
class PowerResult:
    """The contents of ``power.json``, which is `file`; all figures exclude memories."""

    top: str
    preset: str
    verilog_digest: str
    liberty: str
    corner: str
    vcd: str
    points: tuple[PowerPoint, ...]
    file: Path


def measure_power(
    verilog: Sequence[Path],
    top: str,
    library: Library,
    directory: Path,
    vcd: Path,
    *,
    preset: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> PowerResult:
    """Replay a simulation through the stored netlists, and write ``power.json``.

    Parameters
    ----------
    verilog : Sequence[Path]
        The emitted Verilog; the netlists must be of this Verilog.
    top, preset : str
        The design.
    library : Library
        The cells; the netlists must be mapped to this library.
    directory : Path
        ``build/<top>/<preset>``.
    vcd : Path
        The simulation, of RTL or of a netlist.
    progress : Callable[[str], None], optional
        Called with a description of each step.

    Raises
    ------
    UserError
        If there are no such netlists, OpenSTA is missing, or the file is no dump of the design.
    """
    digest = verilog_digest(verilog)
    points: list[PowerPoint] = []
    netlists = kept_netlists(directory, top, library, digest)
    recorded = read_waveforms(vcd, top)
    for netlist, period_ps in netlists:
        progress(f"replaying through {netlist.recipe}")
        activity = activity_of(recorded, netlist)
        progress(f"power of {netlist.recipe}")
        timing = analyse(netlist, period_ps=period_ps, activity=activity, kinds=())
        if timing is None or timing.power is None:
            raise UserError(MISSING)
        power = timing.power
        points.append(
            PowerPoint(
                recipe=netlist.recipe,
                frequency_mhz=round(power.frequency_mhz, 2),
                dynamic_mw=round(power.dynamic_mw, 6),
                leakage_mw=round(power.leakage_mw, 6),
                # 1 mW * 1 ps = 1 fJ.
                dynamic_pj=round(power.dynamic_mw * power.period_ps / 1e3, 6),
                leakage_pj=round(power.leakage_mw * power.period_ps / 1e3, 6),
                activity=timing.activity,
            )
        )
    result = PowerResult(
        top=top,
        preset=preset,
        verilog_digest=digest,
        liberty=library.name,
        corner=library.corner,
        vcd=vcd.name,
        points=tuple(points),
        file=directory / "power.json",
    )
    values = {name: value for name, value in asdict(result).items() if name != "file"}
    replace_text(result.file, json.dumps(values, indent=1) + "\n")
    return result


def kept_netlists(
    directory: Path, top: str, library: Library, digest: str
) -> list[tuple[Netlist, float]]:
    """Return the netlists that ``synth`` stored for a library, each with its period.

    The period is that of the mapping, or else the netlist's minimum.

    Raises
    ------
    UserError
        If there are none, or they are of other Verilog or of another version of the library.
    """
    file = directory / "synth" / library.name / "synth.json"
    if not file.is_file():
        raise UserError(
            f"TOP={top} must be synthesised by `make synth` with {library.name} before `make power`"
        )
    values = json.loads(file.read_text())
    for key, own in (("verilog_digest", digest), ("liberty_digest", library.digest)):
        if values[key] != own:
            raise UserError(
                f"the netlists of TOP={top} must be of the present design and library: "
                f"{key} must be {own}, not {values[key]}; run `make synth` again"
            )
    memories = tuple(
        Memory(**{name: value for name, value in memory.items() if name != "bits"})
        for memory in values["memories"]
    )
    return [
        (
            _kept_netlist(top, library, directory / point["netlist"], point, memories),
            values["period_ps"] or point["critical_path_ps"],
        )
        for point in values["points"]
    ]


def _kept_netlist(
    top: str,
    library: Library,
    verilog: Path,
    point: dict[str, Any],
    memories: tuple[Memory, ...],
) -> Netlist:
    """Return a netlist for timing analysis, without costs."""
    return Netlist(
        top=top,
        library=library,
        recipe=point["recipe"],
        target_ps=None,
        directory=verilog.parent,
        stem=verilog.stem,
        modules=(),
        memories=memories,
        abc_delay_ps=point["mapper_delay_ps"] or 0.0,
        cell_counts={},
    )

"""The jobs of a sweep, and the expected duration of each."""

from collections.abc import Iterable, Mapping
from statistics import fmean

from hdl.parameter_list import settings_text
from systola.exploration.checkout import this_checkout
from systola.exploration.job import Job, Result
from systola.exploration.sweep import Points, Sweep
from systola.units import PackagedUnit


def plan_jobs(sweep: Sweep, points: Points, library: tuple[str, str]) -> list[Job]:
    """Return one job per point and verb, and for simulations one per seed."""
    here = this_checkout()
    entry = points.entry
    packaged = isinstance(entry, PackagedUnit)
    sources = f"{here.sources}-{entry.digest}" if packaged else here.sources
    jobs: list[Job] = []
    for name, parameters in points.legal.items():
        for verb in sweep.verbs:
            simulated = range(sweep.seed, sweep.seed + sweep.seeds)
            liberty, digest = library if verb == "synth" else ("", "")
            jobs += [
                Job(
                    top=sweep.top,
                    point=name,
                    parameters=settings_text(parameters),
                    verb=verb,
                    sources=sources,
                    packages=here.packages,
                    seed=seed,
                    liberty=liberty,
                    liberty_digest=digest,
                )
                for seed in (simulated if verb == "sim" else (None,))
            ]
    return jobs


def expected_seconds(job: Job, known: Iterable[Result], weight: Mapping[str, float]) -> float:
    """Return the mean duration of the unit's earlier jobs, or else the verb's weight."""
    alike = [
        result.seconds
        for result in known
        if result.values.get("top") == job.top and _verb(result) == job.verb
    ]
    return fmean(alike) if alike else weight[job.verb]


def _verb(result: Result) -> str:
    """Return the verb that wrote a result."""
    if "devices" in result.values:
        return "fpga"
    return "synth" if "points" in result.values else "sim"

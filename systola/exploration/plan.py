"""From a sweep's points to jobs, and what each of them will take."""

from collections.abc import Iterable, Mapping
from statistics import fmean

from hdl.parameter_list import settings_text
from systola.exploration.checkout import this_checkout
from systola.exploration.job import Job, Result
from systola.exploration.sweep import Points, Sweep


def plan_jobs(sweep: Sweep, points: Points, library: tuple[str, str]) -> list[Job]:
    """Return a job a point and verb, and of simulations a job a seed."""
    here = this_checkout()
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
                    sources=here.sources,
                    packages=here.packages,
                    seed=seed,
                    liberty=liberty,
                    liberty_digest=digest,
                )
                for seed in (simulated if verb == "sim" else (None,))
            ]
    return jobs


def expected_seconds(job: Job, known: Iterable[Result], weight: Mapping[str, float]) -> float:
    """Return how long a job may take: as others of its unit did, else by its verb alone."""
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

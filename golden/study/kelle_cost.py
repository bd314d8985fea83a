"""Kelle's latency and energy: Equations 4 to 8, Table 1, and the systems of Section 8.

A decode step of a batch reads all weights and the cached vectors from off-chip memory while the
array computes; the longer of the two is the step's latency. `ASSUMPTIONS` lists what the paper does
not state.
"""

from dataclasses import dataclass, replace

from hdl.kelle.edram.refresh_intervals import RefreshIntervals
from hdl.parameters import require

SRAM_PJ_A_BYTE, EDRAM_PJ_A_BYTE = 185.9, 84.8
SRAM_LEAKAGE_W, EDRAM_LEAKAGE_W = 0.415 / 4, 0.154 / 4
"""Leakage power per MB (Table 1)."""
REFRESH_MJ = 1.14
"""Energy of one refresh of all 4 MB (Table 1)."""
RETENTION_MS = 0.045
DRAM_GB_S, SRAM_GB_S, EDRAM_GB_S = 64.0, 128.0, 256.0
DRAM_W, CHIP_W, ARRAY_SHARE, FUNCTIONS_SHARE = 11.74, 6.52, 0.17, 0.13
GIGA = 1e9

ASSUMPTIONS = (
    "LLaMA2-7B: 32 layers, hidden_size 4096, 6.6e9 weights of 8 bits, cached vectors of 16 bits",
    "batch 16; weights are read once per step, cached vectors once per sequence",
    "array and off-chip memory overlap completely; the longer one is the latency",
    "each PE multiplies 16 by 8 bits per cycle, so products of two 16-bit vectors take two cycles",
    "off-chip memory takes 11.74 W at 64 GB/s: 183 pJ/byte, and no idle power",
    "the array takes 17 % of 6.52 W when it is busy, the functions 13 % always",
    "4 MB on chip store a negligible part of gigabytes of cached vectors",
    "every byte from off-chip is written to and read from on-chip memory once",
    "one in four cached vectors is recomputed (Section 8.3.2), in no time: the RTL takes time",
    "prefill is excluded",
)


@dataclass(frozen=True)
class Lifetimes:
    """Lifetimes of transient data in the embedded DRAM (Equations 7 and 8), in seconds."""

    baseline: float
    kelle: float


def lifetimes(weight_bytes: float, cached_bytes: float) -> Lifetimes:
    """Apply Equations 5 to 8, for the bytes of a weight matrix in SRAM and of keys in eDRAM."""
    sram, edram = weight_bytes / (SRAM_GB_S * GIGA), cached_bytes / (EDRAM_GB_S * GIGA)
    return Lifetimes(baseline=6 * sram + 4 * edram, kelle=4 * sram + edram)


@dataclass(frozen=True, kw_only=True)
class System:
    """One of the five systems of Section 8.1.

    Parameters
    ----------
    side : int
        Rows and columns of the array.
    embedded : bool
        Whether cached vectors pass through embedded DRAM instead of SRAM.
    refresh_ms : float
        Refresh interval of the embedded DRAM.
    evicts : bool
        Whether the cache is limited to its budget.
    recomputed : float
        Share of cached vectors that are recomputed.
    input_loads : bool
        Whether the inputs of recomputed vectors, half as large, are read from off-chip memory.
    multiplies : bool
        Whether the array's products of the recomputation count.
    resident : bool
        Whether cached vectors cost no off-chip traffic at all.
    """

    side: int
    embedded: bool
    refresh_ms: float = RETENTION_MS
    evicts: bool = False
    recomputed: float = 0.0
    input_loads: bool = False
    multiplies: bool = False
    resident: bool = False

    def __post_init__(self) -> None:
        """Check every rule."""
        require(self.side > 0, "side must be positive", self.side)
        require(self.refresh_ms > 0, "refresh_ms must be positive", self.refresh_ms)
        require(0 <= self.recomputed < 1, "recomputed must be from 0 to below 1", self.recomputed)


ADAPTIVE_MS = RefreshIntervals().mean_us / 1000
ORIGINAL_SRAM = System(side=24, embedded=False)
SYSTEMS = {
    "Original+SRAM": ORIGINAL_SRAM,
    "Original+eDRAM": System(side=32, embedded=True),
    "AEP+SRAM": replace(ORIGINAL_SRAM, evicts=True),
    "AERP+SRAM": replace(ORIGINAL_SRAM, evicts=True, recomputed=0.25),
    "Kelle+eDRAM": System(
        side=32, embedded=True, refresh_ms=ADAPTIVE_MS, evicts=True, recomputed=0.25
    ),
}


KELLE = SYSTEMS["Kelle+eDRAM"]
ACCOUNTINGS = {
    "as in the assumptions": KELLE,
    "the inputs of recomputed vectors are loaded": replace(KELLE, input_loads=True),
    "nothing is recomputed": replace(KELLE, recomputed=0.0),
    "the array's products of the recomputation count": replace(KELLE, multiplies=True),
    "cached vectors cost no off-chip traffic": replace(KELLE, resident=True),
}
"""Kelle+eDRAM under alternative assumptions; the paper states none of them."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Context, decoded tokens, and the budget N' of Section 7.1."""

    context: int
    decoded: int
    budget: int


TASKS = {
    "LA": Task(context=128, decoded=512, budget=128),
    "TQ": Task(context=512, decoded=2048, budget=1024),
    "QP": Task(context=1024, decoded=5120, budget=1024),
    "PG19": Task(context=512, decoded=8192, budget=2048),
}

LAYERS, WIDTH, WEIGHTS, BATCH = 32, 4096, 6.6e9, 16


@dataclass(frozen=True)
class Cost:
    """Seconds and joules of a task's decoding."""

    seconds: float
    joules: float


def decode_cost(system: System, task: Task) -> Cost:
    """Return the total cost of all decode steps of a batch."""
    seconds = joules = 0.0
    rate = system.side**2 * GIGA
    for step in range(task.decoded):
        length = task.context + step
        if system.evicts:
            length = min(length, task.budget)
        pairs = BATCH * length * LAYERS * 2 * WIDTH
        kept = 1 - system.recomputed / (2 if system.input_loads else 1)
        cached = 0.0 if system.resident else pairs * 2 * kept
        products = WEIGHTS * BATCH + 2 * pairs
        if system.multiplies:
            products += pairs * system.recomputed * WIDTH
        compute = products / rate
        step_seconds = max(compute, (WEIGHTS + cached) / (DRAM_GB_S * GIGA))
        array_pj = CHIP_W * ARRAY_SHARE / (32**2 * GIGA) * 1e12
        vector_pj = EDRAM_PJ_A_BYTE if system.embedded else SRAM_PJ_A_BYTE
        dram_pj = DRAM_W / (DRAM_GB_S * GIGA) * 1e12
        picojoules = products * array_pj + (WEIGHTS + cached) * dram_pj
        picojoules += 2 * (WEIGHTS * SRAM_PJ_A_BYTE + cached * vector_pj)
        watts = CHIP_W * FUNCTIONS_SHARE
        if system.embedded:
            watts += 4 * EDRAM_LEAKAGE_W + 2 * SRAM_LEAKAGE_W + REFRESH_MJ / system.refresh_ms
        else:
            watts += 4 * SRAM_LEAKAGE_W
        seconds += step_seconds
        joules += picojoules * 1e-12 + watts * step_seconds
    return Cost(seconds, joules)


def factors(better: System, worse: System) -> tuple[float, float]:
    """Return speedup and energy factor of one system over another, averaged over the tasks."""
    pairs = [(decode_cost(better, task), decode_cost(worse, task)) for task in TASKS.values()]
    speed = sum(slow.seconds / fast.seconds for fast, slow in pairs) / len(pairs)
    energy = sum(more.joules / less.joules for less, more in pairs) / len(pairs)
    return speed, energy


def overlapped_us(vectors: int, recomputed: int, load: float = 1.1, compute: float = 3.2) -> float:
    """Return the time in us to load cached vectors while `recomputed` of them are recomputed."""
    return max((vectors - recomputed) * load, recomputed * compute)

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
    fills : bool
        Whether as many vectors are recomputed as the array has time for while the off-chip memory
        is in use, instead of a fixed share; their products count.
    embedded_mb : float
        Size of the embedded DRAM in MB.
    cached_bits : int
        Bits of an element of cached vectors.
    """

    side: int
    embedded: bool
    refresh_ms: float = RETENTION_MS
    evicts: bool = False
    recomputed: float = 0.0
    input_loads: bool = False
    multiplies: bool = False
    resident: bool = False
    fills: bool = False
    embedded_mb: float = 4.0
    cached_bits: int = 16

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
    "as many are recomputed as the array has time for": replace(KELLE, fills=True),
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


@dataclass(frozen=True, kw_only=True)
class Model:
    """Dimensions of a language model; `cached_size` elements of keys are cached per layer."""

    layers: int
    hidden_size: int
    cached_size: int
    weights: float


LLAMA2_7B = Model(layers=32, hidden_size=4096, cached_size=4096, weights=6.6e9)
LLAMA2_13B = Model(layers=40, hidden_size=5120, cached_size=5120, weights=13e9)
LLAMA32_3B = Model(layers=28, hidden_size=3072, cached_size=1024, weights=3.2e9)
BATCH = 16


@dataclass(frozen=True)
class Cost:
    """Seconds of some work, and its joules by part."""

    seconds: float
    parts: dict[str, float]

    @property
    def joules(self) -> float:
        """Energy of all parts."""
        return sum(self.parts.values())

    def __add__(self, other: "Cost") -> "Cost":
        """Return the cost of both."""
        parts = {name: joules + other.parts[name] for name, joules in self.parts.items()}
        return Cost(self.seconds + other.seconds, parts)


@dataclass(frozen=True)
class Step:
    """Work between two reads of all weights: products of 16 by 8 bits, and off-chip bytes."""

    products: float
    cached: float
    activations: float = 0.0


def step_of(system: System, length: int, model: Model) -> Step:
    """Return the work of a decode step of a batch with `length` tokens per sequence."""
    pairs = BATCH * length * model.layers * 2 * model.cached_size
    loaded = 0.0 if system.resident else pairs * system.cached_bits / 8
    products = model.weights * BATCH + 2 * BATCH * length * model.layers * 2 * model.hidden_size
    # Each element of a recomputed key or value takes a product per element of the hidden state.
    recomputing = pairs * model.hidden_size
    share = system.recomputed
    if system.fills:
        rate, bandwidth = system.side**2 * GIGA, DRAM_GB_S * GIGA
        idle = (model.weights + loaded) / bandwidth - products / rate
        share = max(idle, 0.0) / (recomputing / rate + loaded / bandwidth)
    if system.fills or system.multiplies:
        products += recomputing * share
    return Step(products, loaded * (1 - share / (2 if system.input_loads else 1)))


def step_cost(system: System, step: Step, model: Model) -> Cost:
    """Return the cost of a step, whose longer one of array and off-chip memory is its latency."""
    moved = model.weights + step.cached + step.activations
    seconds = max(step.products / (system.side**2 * GIGA), moved / (DRAM_GB_S * GIGA))
    vectors = step.cached + step.activations
    vector_pj = EDRAM_PJ_A_BYTE if system.embedded else SRAM_PJ_A_BYTE
    refresh_w, leakage_w = 0.0, 4 * SRAM_LEAKAGE_W
    if system.embedded:
        refresh_w = REFRESH_MJ * system.embedded_mb / 4 / system.refresh_ms
        leakage_w = system.embedded_mb * EDRAM_LEAKAGE_W + 2 * SRAM_LEAKAGE_W
    return Cost(
        seconds,
        {
            "DRAM": moved * DRAM_W / (DRAM_GB_S * GIGA),
            "on-chip accesses": 2e-12 * (model.weights * SRAM_PJ_A_BYTE + vectors * vector_pj),
            "array": step.products * CHIP_W * ARRAY_SHARE / (32**2 * GIGA),
            "refresh": refresh_w * seconds,
            "other power": (CHIP_W * FUNCTIONS_SHARE + leakage_w) * seconds,
        },
    )


def decode_cost(system: System, task: Task, model: Model = LLAMA2_7B) -> Cost:
    """Return the total cost of all decode steps of a batch."""
    lengths = (task.context + number for number in range(task.decoded))
    costs = (
        step_cost(
            system,
            step_of(system, min(length, task.budget) if system.evicts else length, model),
            model,
        )
        for length in lengths
    )
    first = next(costs)
    return sum(costs, first)


def prefill_cost(system: System, task: Task, model: Model = LLAMA2_7B) -> Cost:
    """Return the cost of the prefill of a batch.

    All tokens of a batch pass a layer together, and so the weights are read once. The states
    between layers do not fit on chip: each of both blocks reads and writes them. The keys and
    values that stay are written once.
    """
    tokens = BATCH * task.context
    pairs = tokens * model.layers * model.hidden_size
    kept = min(task.context, task.budget) if system.evicts else task.context
    cached = BATCH * kept * model.layers * 2 * model.cached_size * system.cached_bits / 8
    # Attention is causal: half of the pairs of tokens, for scores and for values, in two cycles.
    products = model.weights * tokens + 2 * pairs * task.context
    return step_cost(system, Step(products, cached, activations=4 * 2 * pairs), model)


def factors(better: System, worse: System) -> tuple[float, float]:
    """Return speedup and energy factor of one system over another, averaged over the tasks."""
    pairs = [(decode_cost(better, task), decode_cost(worse, task)) for task in TASKS.values()]
    speed = sum(slow.seconds / fast.seconds for fast, slow in pairs) / len(pairs)
    energy = sum(more.joules / less.joules for less, more in pairs) / len(pairs)
    return speed, energy


def overlapped_us(vectors: int, recomputed: int, load: float = 1.1, compute: float = 3.2) -> float:
    """Return the time in us to load cached vectors while `recomputed` of them are recomputed."""
    return max((vectors - recomputed) * load, recomputed * compute)

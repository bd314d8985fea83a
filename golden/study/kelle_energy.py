"""Energy of a generated token on Kelle with its memories, by the paper's constants (Table 1).

`python -m golden.study.kelle_energy` prints the table of `docs/kelle/study.md`. Cycles and bytes
are those of a run of the Verilog; the rows of the KV eDRAM are those of the program.
"""

from dataclasses import dataclass, replace

from golden.study.kelle_cost import (
    DRAM_GB_S,
    DRAM_W,
    EDRAM_LEAKAGE_W,
    EDRAM_PJ_A_BYTE,
    REFRESH_MJ,
    SRAM_LEAKAGE_W,
    SRAM_PJ_A_BYTE,
)
from hdl.catalog import entry_named
from hdl.kelle.edram.refresh_intervals import RefreshIntervals
from hdl.kelle.parameters import KelleParameters
from hdl.parameters import require

PUBLISHED_BYTES = 1 << 22
"""Bytes of the KV eDRAM that Table 1 describes."""
SRAM_MB = 2
"""Weight SRAM of the paper, in MB."""
SAFE = RefreshIntervals(hst_msb=45, lst_msb=45, hst_lsb=45, lst_lsb=45)
SHORTEST = RefreshIntervals(hst_msb=360, lst_msb=360, hst_lsb=360, lst_lsb=360)
REFRESHES = {
    "every 45 us": SAFE,
    "every 0.36 ms": SHORTEST,
    "one interval with as many refreshes as 2DRP": RefreshIntervals().uniform(),
    "2DRP": RefreshIntervals(),
}
"""Refresh policies of Section 8.3.3, and the one that Table 4 implies."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """What a run measures per generated token.

    Parameters
    ----------
    cycles : int
        Cycles of the Verilog.
    moved, weights : int
        Bytes at the ports of off-chip memory, and those of them that are weights.
    clock_mhz : int
        Clock that converts cycles to time.

    Raises
    ------
    ValueError
        If a value is not positive.
    """

    cycles: int
    moved: int
    weights: int
    clock_mhz: int = 1000

    def __post_init__(self) -> None:
        """Check every rule."""
        for name in ("cycles", "moved", "weights", "clock_mhz"):
            require(getattr(self, name) > 0, f"{name} must be above 0", getattr(self, name))

    @property
    def seconds(self) -> float:
        """Time of the token."""
        return self.cycles / (self.clock_mhz * 1e6)


FEW_TOKENS = Token(cycles=1_096_727, moved=134_584_743, weights=134_479_872)
ALL_SLOTS = replace(FEW_TOKENS, cycles=1_278_177, moved=134_586_034)
"""Runs of a quarter of the array: with some ten cached tokens, and with all 128 slots full."""


def cached_bytes(p: KelleParameters) -> int:
    """Return the bytes of keys and values in all slots of all layers and sequences."""
    return p.caches * p.kv_heads * p.slots * 2 * 2 * p.head_size


def energies(
    p: KelleParameters, token: Token, intervals: RefreshIntervals, share: float = 1.0
) -> dict[str, float]:
    """Return the energy of a token in mJ by part.

    Parameters
    ----------
    p : KelleParameters
        Dimensions of the accelerator.
    token : Token
        The measured run.
    intervals : RefreshIntervals
        Refresh intervals of four equally large groups.
    share : float
        Share of the slots in use; only these are refreshed. The program reads all slots.

    Raises
    ------
    ValueError
        If the share is not from 0 to 1.
    """
    require(0 <= share <= 1, "share must be from 0 to 1", share)
    # Each step reads all rows, and writes a key and a value per head.
    read = cached_bytes(p) * (1 + 1 / p.slots)
    refreshes = token.seconds / (intervals.mean_us * 1e-6)
    held = share * cached_bytes(p) / PUBLISHED_BYTES
    leakage = SRAM_MB * SRAM_LEAKAGE_W + PUBLISHED_BYTES / (1 << 20) * EDRAM_LEAKAGE_W
    return {
        "DRAM": token.moved * DRAM_W / (DRAM_GB_S * 1e9) * 1e3,
        "weight SRAM, written and read": 2 * token.weights * SRAM_PJ_A_BYTE * 1e-9,
        "KV eDRAM, rows": read * EDRAM_PJ_A_BYTE * 1e-9,
        "KV eDRAM, refresh": REFRESH_MJ * held * refreshes,
        "leakage of both": leakage * token.seconds * 1e3,
    }


def generating() -> KelleParameters:
    """Return the dimensions of the runs: thirty layers of SmolLM2 on a quarter of the array."""
    smollm2: KelleParameters = entry_named("kelle").parameters("smollm2")
    return replace(smollm2, rows=16, bands=8, layers=30, words=1 << 14)


def main() -> None:
    """Print the energies of a token with all slots full, by refresh policy."""
    p = generating()
    by_policy = {name: energies(p, ALL_SLOTS, own) for name, own in REFRESHES.items()}
    print("| mJ/token, 128 slots full, 1 GHz | " + " | ".join(by_policy) + " |")
    print("|---|" + "---|" * len(by_policy))
    for part in by_policy["2DRP"]:
        cells = " | ".join(f"{own[part]:.2f}" for own in by_policy.values())
        print(f"| {part} | {cells} |")
    cells = " | ".join(f"{sum(own.values()):.2f}" for own in by_policy.values())
    print(f"| sum | {cells} |")


if __name__ == "__main__":
    main()

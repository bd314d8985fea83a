"""Accesses, capacity and lifetimes of Kelle's activations, by the program and Table 1.

The paper holds activations in an eDRAM of 256 KB (Section 5, Figure 10). The accelerator has a
memory for each kind of vector instead. `python -m golden.study.kelle_activations` prints the table
of `docs/kelle/study.md`: what these memories hold, how many bytes each token writes and reads, and
how long each vector is held relative to the retention time.
"""

from dataclasses import dataclass, replace

from golden.study.kelle_cost import EDRAM_PJ_A_BYTE, REFRESH_MJ
from golden.study.kelle_energy import FEW_TOKENS, PUBLISHED_BYTES, Token, generating
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters

ACTIVATION_BYTES = 1 << 18
"""Bytes of the paper's activation eDRAM."""

SAFE_US = 45
"""Retention time of the eDRAM, below which no bit is lost (Table 1)."""

ELEMENT_BYTES = 2

VOCABULARY = 49152
"""Tokens of SmolLM2's LM head."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """A memory of activations.

    Parameters
    ----------
    held : int
        Elements that it has room for.
    written, read : int
        Elements written and read per step of one layer.
    """

    held: int
    written: int
    read: int


def vectors(p: KelleParameters, recomputed: int = 0) -> dict[Operation, int]:
    """Return the vectors that the array multiplies in a step of a layer, by operation.

    Parameters
    ----------
    p : KelleParameters
        Dimensions of the accelerator.
    recomputed : int
        Recomputed tokens per step.
    """
    heads, head, hidden = p.token_heads, p.head_slices, p.hidden_slices
    members = p.step_tokens + recomputed
    # Keys and values are two tiles of bytes, which each query head of a group is multiplied by.
    cached = heads * head * 2 * p.group_size
    wide = p.operations(Operation.UP) + p.operations(Operation.GATE)
    return {
        Operation.QUERY: p.heads * head * hidden * p.step_tokens,
        Operation.KEY: p.kv_heads * head * hidden * members,
        Operation.VALUE: p.kv_heads * head * hidden * members,
        Operation.SCORE: cached * p.cache_tiles,
        Operation.OWN: cached,
        Operation.ATTEND: cached * (p.cache_tiles + 1),
        Operation.OUTPUT: p.heads * head * hidden * p.step_tokens,
        Operation.UP: wide * head * hidden * p.step_tokens,
        Operation.DOWN: p.heads * head * p.intermediate_slices * p.step_tokens,
    }


def stores(p: KelleParameters, recomputed: int = 0) -> dict[str, Store]:
    """Return the memories of activations by their content."""
    n = vectors(p, recomputed)
    state, wide = p.step_tokens * p.hidden_size, p.step_tokens * p.intermediate_size
    rows = p.step_tokens * p.heads * (p.cache_tiles + 1) * p.rows
    inputs = n[Operation.QUERY] + n[Operation.KEY] + n[Operation.VALUE] + n[Operation.UP]
    return {
        # Inputs of the attention block, of recomputed tokens, and of the feed-forward block.
        "normalised inputs": Store(
            held=p.members * p.hidden_size,
            written=2 * state + recomputed * p.hidden_size,
            read=inputs * p.rows,
        ),
        "queries": Store(
            held=state, written=state, read=(n[Operation.SCORE] + n[Operation.OWN]) * p.rows
        ),
        "scores": Store(held=rows, written=rows, read=rows),
        "probabilities": Store(held=rows, written=rows, read=n[Operation.ATTEND] * p.rows),
        "attention outputs": Store(held=state, written=state, read=n[Operation.OUTPUT] * p.rows),
        "intermediate vector": Store(held=wide, written=wide, read=n[Operation.DOWN] * p.rows),
        # Two copies, for the sums and for the norm: the input, and the sum of the first block. The
        # sum of the second block is output.
        "hidden states": Store(held=2 * state, written=4 * state, read=4 * state),
    }


def lm_head_bytes(p: KelleParameters) -> int:
    """Return the bytes of inputs that a step of the LM head reads: a slice per tile."""
    tiles = p.vocabulary_operations * p.head_slices * p.hidden_slices
    return tiles * p.rows * ELEMENT_BYTES


def moved_bytes(p: KelleParameters, recomputed: int = 0) -> tuple[int, int]:
    """Return the bytes of activations that a token writes and reads, in all layers and the head."""
    found = stores(p, recomputed).values()
    written, read = sum(s.written for s in found), sum(s.read for s in found)
    once = p.step_tokens * p.hidden_size if p.vocabulary_size else 0
    layers = p.layers * ELEMENT_BYTES
    return written * layers + once * ELEMENT_BYTES, read * layers + lm_head_bytes(p)


def refresh_mj(token: Token, bytes_held: int) -> float:
    """Return the energy per token to refresh a memory at the retention time."""
    return REFRESH_MJ * bytes_held / PUBLISHED_BYTES * token.seconds / (SAFE_US * 1e-6)


def main() -> None:
    """Print what each memory holds, and the energies of a token."""
    p = replace(generating(), vocabulary_size=VOCABULARY)
    print("| memory | KB | written, bytes/step | read, bytes/step |")
    print("|---|---|---|---|")
    found = stores(p)
    for name, store in found.items():
        held, written, read = (ELEMENT_BYTES * n for n in (store.held, store.written, store.read))
        print(f"| {name} | {held / 1024:.1f} | {written:,} | {read:,} |")
    total = ELEMENT_BYTES * sum(store.held for store in found.values())
    written, read = moved_bytes(p)
    print(f"sum {total / 1024:.1f} KB; {written:,} bytes/token written, {read:,} read")
    accesses = (written + read) * EDRAM_PJ_A_BYTE * 1e-9
    print(f"accesses {accesses:.2f} mJ/token")
    print(f"refresh every {SAFE_US} us: {refresh_mj(FEW_TOKENS, ACTIVATION_BYTES):.2f} mJ/token")


if __name__ == "__main__":
    main()

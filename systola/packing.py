"""The verbs ``pack`` and ``unpack``: conversion of a model's weights to MEADOW's packets."""

from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from hdl.errors import UserError, unknown
from hdl.output_folder import output_folder
from hdl.paths import BUILD
from systola import environment
from systola.options import (
    PACKED,
    UserPath,
    choose,
    console,
    out_option,
    parameters_option,
    path_shown,
    preset_option,
    settings_option,
)

UNPACKED = "weights.safetensors"
"""File that the verb ``unpack`` writes."""

LEVELS = ("naive", "packet", "reindexed", "classes", "raw")

LEVEL, CHUNK, PACKET_BITS, SCALE = "classes", 2, 128, "tensor"
"""Options of a file for no accelerator, if they are absent."""

ACCELERATOR_LEVEL = "reindexed"
"""Level of packing for an accelerator, if LEVEL is absent."""


@click.command()
@out_option("build/packed")
@click.option(
    "--model",
    type=UserPath(),
    help="A .gguf, .safetensors or .npy file; SmolLM2 if absent.",
)
@click.option("--level", help="naive, packet, reindexed, classes or raw.")
@click.option("--chunk", type=int, help=f"Weights per chunk: 1, 2 or 4; {CHUNK} if absent.")
@click.option(
    "--packet-bits", type=int, help=f"64, 128, 256, 512 or 1024; {PACKET_BITS} if absent."
)
@click.option("--scale", help=f"Scales of rounded weights: tensor, channel; {SCALE} if absent.")
@click.option("--top", help="Accelerator that generates text from the file: meadow, meadow_axi.")
@preset_option
@parameters_option
@settings_option
def pack(
    out: Path | None,
    model: Path | None,
    level: str | None,
    chunk: int | None,
    packet_bits: int | None,
    scale: str | None,
    top: str | None,
    preset: str | None,
    parameters: Path | None,
    settings: str,
) -> None:
    """Pack a model's weights: unique chunks, IDs, packets (MEADOW)."""
    folder = out or BUILD / "packed"
    if top is not None:
        if (chunk, packet_bits, scale) != (None, None, None):
            raise UserError(f"CHUNK, PACKET_BITS and SCALE are not for {top}, which has its own")
        items = _pack_for(top, (preset, parameters, settings), model, level, folder)
        _print_sizes(items)
    elif preset or parameters or settings:
        raise UserError("PRESET, PARAMETERS and SET need a TOP")
    else:
        _pack_matrices(
            folder,
            model,
            level or LEVEL,
            chunk or CHUNK,
            packet_bits or PACKET_BITS,
            scale or SCALE,
        )
    console.print(f"wrote {path_shown(folder / PACKED)}")


def _pack_for(
    top: str,
    dimensions: tuple[str | None, Path | None, str],
    file: Path | None,
    level: str | None,
    folder: Path,
) -> dict[str, Any]:
    """Pack a model in the form that an accelerator loads; return the packed matrices."""
    from systola.generate import GENERATORS, adapter_of, cache_settings, fitted_system

    if top not in GENERATORS:
        raise UserError(unknown("TOP", top, GENERATORS))
    environment.require("llm", "sim")
    from golden.llm.language_model import open_language_model
    from golden.llm.model import DataFileError
    from testbenches.meadow.accelerator_file import levels_of, write_model

    kind = adapter_of(top)
    if not kind.packs:
        raise UserError(f"TOP must be an accelerator with packed weights, not {top}")
    chosen = choose(top, *dimensions)
    try:
        model = open_language_model(file)
        system = fitted_system(kind, model, chosen, cache_settings(kind, None, None))
        level, levels = level or ACCELERATOR_LEVEL, levels_of(system.meadow)
        if level not in levels:
            raise UserError(
                f"LEVEL for {chosen.title} must be one of {', '.join(levels)}, not {level}"
            )
        with console.status("opening the model") as status, output_folder(folder) as scratch:
            system.prepare_golden(status.update)
            status.update("packing the weights")
            return write_model(
                scratch / PACKED,
                system.packed.integers,
                system.meadow,
                digest=model.digest,
                level=level,
            )
    except DataFileError as error:
        raise UserError(str(error)) from error


def _pack_matrices(
    folder: Path, model: Path | None, level: str, chunk: int, packet_bits: int, scale: str
) -> None:
    """Pack all matrices of a model file, row by row."""
    environment.require("model", *([] if model else ["data"]))
    from golden.llm.model import find_gguf
    from golden.meadow.packing.chunks import CHUNKS
    from golden.meadow.packing.model_file import SCALES, Unusable, open_model
    from golden.meadow.packing.packed_file import Item, write_packed
    from golden.meadow.packing.weight_packer import Level, pack_matrix
    from hdl.meadow.wilu.packet_format import PACKETS
    from hdl.parameters import require_choice

    if level not in LEVELS:
        raise UserError(unknown("LEVEL", level, LEVELS))
    require_choice("CHUNK", chunk, CHUNKS)
    require_choice("PACKET_BITS", packet_bits, PACKETS)
    require_choice("SCALE", scale, SCALES)
    opened = open_model(model or find_gguf(), scale)
    items: dict[str, Item] = {}
    unusable: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("packing", total=len(opened.names))
        for name, read in opened.matrices():
            bars.update(task, description=escape(f"packing {name}"), advance=1)
            if isinstance(read, Unusable):
                unusable[name] = read.reason
                continue
            packed = pack_matrix(
                read[0], Level[level.upper()], chunk=chunk, packet_bits=packet_bits
            )
            items[name] = Item(packed, read[1])
    if not items:
        name, reason = next(iter(unusable.items()))
        raise UserError(f"MODEL must contain a matrix that can be packed; {name!r}: {reason}")
    with output_folder(folder) as scratch:
        write_packed(scratch / PACKED, items)
    _print_sizes(items)
    console.print(f"origin: {opened.origin}")
    if opened.left_out:
        console.print(f"omitted, because they are no matrices: {len(opened.left_out)} tensors")
    if unusable:
        reasons = Table("omitted matrix", "reason")
        for name, reason in unusable.items():
            reasons.add_row(Text(name), Text(reason))
        console.print(reasons)


@click.command()
@out_option("build/unpacked")
@click.option("--model", type=UserPath(), required=True, help="Folder or file that pack wrote.")
def unpack(out: Path | None, model: Path) -> None:
    """Write the integers of packed weights to a safetensors file."""
    environment.require("model")
    import numpy as np
    from safetensors.numpy import save_file

    from golden.meadow.packing.model_file import SUFFIX
    from golden.meadow.packing.packed_file import read_packed
    from golden.meadow.packing.weight_packer import unpack_matrix

    file = model / PACKED if model.is_dir() else model
    if not file.is_file():
        raise UserError(f"MODEL must be a file that exists, not {file}")
    folder = out or BUILD / "unpacked"
    tensors: dict[str, np.ndarray] = {}
    for name, item in read_packed(file.read_bytes()).items():
        tensors[name] = np.ascontiguousarray(unpack_matrix(item.matrix))
        if len(item.scales):
            tensors[name + SUFFIX] = np.ascontiguousarray(item.scales)
    with output_folder(folder) as scratch:
        save_file(tensors, scratch / UNPACKED)
    console.print(f"{len(tensors)} tensors, unpacked")
    console.print(f"wrote {path_shown(folder / UNPACKED)}")


def _print_sizes(items: dict[str, Any]) -> None:
    """Print the bytes of weights, packets and unique matrices, and the number of raw matrices.

    A raw matrix is one that packets would not reduce.
    """
    from golden.meadow.packing.weight_packer import Level

    table = Table("matrices", "raw", "weights, bytes", "packets", "unique", "bits/weight")
    matrices = [item.matrix for item in items.values()]
    raw, packets = sum(m.raw_bytes for m in matrices), sum(m.packet_bytes for m in matrices)
    unique = sum(m.unique.size for m in matrices)
    kept = sum(m.level is Level.RAW for m in matrices)
    bits = f"{8 * (packets + unique) / raw:.3f}"
    table.add_row(str(len(matrices)), str(kept), f"{raw:,}", f"{packets:,}", f"{unique:,}", bits)
    console.print(table)


COMMANDS: tuple[click.Command, ...] = (pack, unpack)
"""What `systola.cli` adds to its own verbs."""

"""Energy of a multiply-add: P3-LLM's processing element and VEDA's FP16 element, on one layer.

``python -m testbenches.multiply_energy --liberty FILE`` lets both elements multiply the same
weights of SmolLM2 by the same inputs, each in its own formats. It maps both for one clock period,
replays the simulations on the netlists, and prints pJ/multiply-add. The paper's ratio is in Table
VIII.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from golden.p3llm.pim import real_operands
from golden.p3llm.pim.pim_processing_element import Cycles
from hdl.arith.float_format import BINARY32
from hdl.emit import Emission, write_verilog
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.p3llm.pim.pim_processing_element import (
    PimProcessingElement,
    PimProcessingElementParameters,
)
from hdl.unit import Unit
from hdl.veda.array.processing_element import ElementMode, ElementType, ProcessingElement
from synth.liberty import Library, find_library
from synth.replay import activity_of
from synth.synthesis import Point, measure_design
from synth.timing import MISSING
from synth.waveforms import read_waveforms
from testbenches.harness import Harness
from testbenches.p3llm.pim.tb_pim_processing_element import (
    INPUTS,
    columns_of,
    cycles_of,
    port_values,
)
from testbenches.packing import Bits, pack
from testbenches.waves import Samples

LAYER, MATRIX, OUTPUTS, TERMS, PUMPS = 14, "q_proj", 16, 128, 2


@dataclass(frozen=True, kw_only=True)
class Element:
    """A processing element and its stimuli.

    Parameters
    ----------
    name, words : str
        Name of the module, and description in the table.
    unit : Unit
        The element.
    driven : dict[str, numpy.ndarray]
        Bits of its inputs, one row per cycle.
    output : str
        Port of its sums.
    products : int
        Multiply-adds per cycle.
    """

    name: str
    words: str
    unit: Unit
    driven: dict[str, Bits]
    output: str
    products: int

    def simulate(self, folder: Path) -> tuple[list[Path], Path, Bits]:
        """Return the Verilog files, the waveform, and the output's bits in every cycle."""
        emission = Emission(top=self.unit, name=self.name)
        files = [file for file in write_verilog(emission, folder / "rtl") if file.suffix == ".v"]
        samples = Samples(folder / "waves.vcd", cycles=1, every=1)
        harness = Harness.built(self.name, emission.modules[-1].ports, files, samples)
        cycles = len(next(iter(self.driven.values())))
        run = harness.run({}, {}, driven=self.driven, record=[self.output], trail=cycles)
        return files, samples.file, run.outputs[self.output]

    def measure(self, library: Library, period_ps: float) -> Point:
        """Map the element for a clock period, and measure its power with its stimuli."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            files, waves, _sums = self.simulate(folder)
            recorded = read_waveforms(waves, self.name)
            return measure_design(
                files,
                self.name,
                library,
                folder,
                period_ps=period_ps,
                activity=lambda netlist: activity_of(recorded, netlist),
            ).headline


def low_precision_cycles() -> Cycles:
    """Return the work of P3-LLM's element: one column per two cycles, for two tokens, not idle."""
    operands = real_operands.linear(LAYER, MATRIX, outputs=OUTPUTS, inputs=TERMS, tokens=PUMPS)
    return cycles_of(columns_of([operands], PUMPS), PUMPS, np.random.default_rng(1), idle=0)


def low_precision() -> Element:
    """Return P3-LLM's element: 4-bit codes with their decoders, inputs in E4M3."""
    values = port_values(low_precision_cycles())
    return Element(
        name="low_precision",
        words="P3-LLM's, with decoders",
        unit=PimProcessingElement(parameters=PimProcessingElementParameters(pumps=PUMPS)),
        driven={name: pack(INPUTS[name], value) for name, value in values.items()},
        output="finished",
        products=PE_LANES,
    )


def half_precision_operands() -> tuple[np.ndarray, np.ndarray]:
    """Return the same weights [outputs, terms] and inputs [tokens, terms] in FP16."""
    real = real_operands.trace().linear(LAYER, MATRIX)
    weights, inputs = real.weight[:OUTPUTS, :TERMS], real.inputs[-PUMPS:, :TERMS]
    return weights.astype(np.float16), inputs.astype(np.float16)


def half_precision() -> Element:
    """Return VEDA's element A: the same products one by one, in FP16 with sums in FP32."""
    unit = ProcessingElement(element_type=ElementType.A, sum_format=BINARY32)
    weights, inputs = half_precision_operands()
    weight = np.repeat(weights, PUMPS, axis=0).reshape(-1)
    # Each partial sum that the adder interleaves starts a new sum.
    begins = np.arange(len(weight)) % TERMS < unit.add_stages
    mode = np.where(begins, ElementMode.CLEAR.value, ElementMode.LOCAL.value)
    values = {
        "weight": (16, weight.view(np.uint16).astype(np.int64)),
        "vector": (16, np.tile(inputs.reshape(-1), OUTPUTS).view(np.uint16).astype(np.int64)),
        "load": (1, np.ones(len(weight), np.int64)),
        # The mode applies to the weight of the previous cycle.
        "mode": (2, np.concatenate([mode[:1], mode[:-1]])),
        "valid": (1, np.ones(len(weight), np.int64)),
    }
    # An input that nothing drives would keep its random initial value.
    for name, width in {"scalar": 16, "broadcast": 1, "fold": 1, "transmitted": 32}.items():
        values[name] = (width, np.zeros(len(weight), np.int64))
    return Element(
        name="half_precision",
        words="FP16 with FP32 sums",
        unit=unit,
        driven={name: pack(width, value) for name, (width, value) in values.items()},
        output="sum",
        products=1,
    )


@click.command()
@click.option("--liberty", help="Cell library, .lib or .lib.gz; default: Debian's OSU018.")
@click.option("--period", type=float, default=1000.0, help="Clock period in ps; default: 1000.")
def main(liberty: str | None, period: float) -> None:
    """Print the energy of a multiply-add in both elements."""
    library = find_library(liberty)
    table = Table("element", "recipe", "um2", "slack, ps", "mW", "pJ/multiply-add", "ratio")
    first = 0.0
    for element in (half_precision(), low_precision()):
        point = element.measure(library, period)
        timing = point.timing
        if timing is None or timing.power is None:
            raise click.ClickException(MISSING)
        energy = timing.power.total_mw * period / 1e3 / element.products
        first = first or energy
        table.add_row(
            element.words,
            point.netlist.recipe,
            f"{point.netlist.area_um2:,.0f}",
            f"{min(path.slack_ps for path in timing.paths):.0f}",
            f"{timing.power.total_mw:.3f}",
            f"{energy:.3f}",
            f"{energy / first:.3f}",
        )
        Console().print(f"{element.words}: {timing.activity}")
    Console().print(table)


if __name__ == "__main__":
    main()

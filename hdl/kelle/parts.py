"""The units of the paper's Figure 9, and the units that control them."""

from dataclasses import dataclass

from hdl.kelle.array.matrix_unit import MatrixUnit
from hdl.kelle.control.activated_products import ActivatedProducts
from hdl.kelle.control.gated_products import GatedProducts
from hdl.kelle.control.kv_fetch import KvFetch
from hdl.kelle.control.load_issue import LoadIssue
from hdl.kelle.control.residual_stream import ResidualStream
from hdl.kelle.control.result_router import ResultRouter
from hdl.kelle.control.sequence_turns import SequenceTurns
from hdl.kelle.control.sequencer import Scheduler
from hdl.kelle.control.softmax_rows import SoftmaxRows
from hdl.kelle.control.step_control import StepControl
from hdl.kelle.control.vector_issue import VectorIssue
from hdl.kelle.edram.refreshed_edram import RefreshedEdram
from hdl.kelle.eviction.eviction_controller import EvictionController
from hdl.kelle.eviction.prefill_selector import PrefillSelector
from hdl.kelle.parameters import KelleParameters


@dataclass(frozen=True)
class Parts:
    """The submodules of `Kelle`, one of each; the field names are the submodules' names."""

    array: MatrixUnit
    controller: EvictionController
    selector: PrefillSelector
    memory: RefreshedEdram
    fetch: KvFetch
    load_issue: LoadIssue
    vector_issue: VectorIssue
    router: ResultRouter
    softmax: SoftmaxRows
    scheduler: Scheduler
    control: StepControl
    turns: SequenceTurns
    products: GatedProducts | ActivatedProducts
    residual: ResidualStream

    @classmethod
    def of(cls, p: KelleParameters) -> "Parts":
        """Create the parts of an accelerator, without connections."""
        products = GatedProducts if p.gated else ActivatedProducts
        return cls(
            array=MatrixUnit(parameters=p.array),
            controller=EvictionController(parameters=p.eviction),
            selector=PrefillSelector(parameters=p.selector),
            memory=RefreshedEdram(parameters=p.memory),
            fetch=KvFetch(parameters=p),
            load_issue=LoadIssue(parameters=p),
            vector_issue=VectorIssue(parameters=p),
            router=ResultRouter(parameters=p),
            softmax=SoftmaxRows(parameters=p),
            scheduler=Scheduler(parameters=p),
            control=StepControl(parameters=p),
            turns=SequenceTurns(parameters=p),
            products=products(parameters=p),
            residual=ResidualStream(parameters=p),
        )

"""NNCF's quantizer propagation solver on residual blocks, in an environment of its own; prints JSON.

Blocks of two convolutions and an add, as `topologies.residual` has them, as an `NNCFGraph`; the solver is
called as NNCF's post-training quantization calls it. Knows nothing of planner; run by `benchmarks.scale` as
`.oracles/nncf/bin/python -P benchmarks/nncf_side.py REGIONS`.
"""

import json
import logging
import resource
import sys
import time
from typing import Any

from nncf.common.graph import NNCFGraph
from nncf.common.graph.layer_attributes import Dtype
from nncf.common.graph.operator_metatypes import INPUT_NOOP_METATYPES, OperatorMetatype
from nncf.common.insertion_point_graph import InsertionPointGraph
from nncf.common.quantization.quantizer_propagation.solver import QuantizerPropagationSolver
from nncf.common.quantization.quantizer_propagation.structs import QuantizationTrait
from nncf.common.quantization.quantizer_setup import QuantizationPointBase
from nncf.common.quantization.structs import QuantizerConfig

SHAPE = (1, 16, 8, 8)


@INPUT_NOOP_METATYPES.register()
class Input(OperatorMetatype):
    """The model's input."""

    name = "input"


class Conv(OperatorMetatype):
    """A convolution; its weight is no edge."""

    name = "conv"
    hw_config_names = ["Convolution"]  # noqa: RUF012 - as NNCF declares them


class Add(OperatorMetatype):
    """The add at the end of a block."""

    name = "add"
    hw_config_names = ["Add"]  # noqa: RUF012 - as NNCF declares them


def residual(regions: int) -> NNCFGraph:
    """Blocks of two convolutions and an add of the block's input."""
    graph = NNCFGraph()

    def node(kind: type[OperatorMetatype], *inputs: Any) -> Any:
        made = graph.add_nncf_node(f"{kind.name}{graph.get_nodes_count()}", kind.name, kind)
        for port, before in enumerate(inputs):
            graph.add_edge_between_nncf_nodes(before.node_id, made.node_id, SHAPE, port, 0, Dtype.FLOAT)
        return made

    x, count = node(Input), 0
    while count < regions:
        x = node(Add, node(Conv, node(Conv, x)), x)
        count += 3
    return graph


def solve(regions: int) -> dict[str, Any]:
    """Seconds and results of one run."""
    graph = InsertionPointGraph(residual(regions))
    solver = QuantizerPropagationSolver(
        default_trait_to_metatype_map={QuantizationTrait.INPUTS_QUANTIZABLE: [Conv, Add]},
        default_qconfig_list=[QuantizerConfig()],
    )
    start = time.process_time()
    proposal = solver.run_on_ip_graph(graph)
    chosen = proposal.quantizer_setup.select_first_qconfig_for_each_point()
    setup = solver.get_final_quantizer_setup(proposal.finalize(chosen))
    seconds = time.process_time() - start
    points: dict[int, QuantizationPointBase] = setup.quantization_points
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"regions": regions, "solver_s": seconds, "quantizers": len(points), "rss_mb": peak}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(solve(int(sys.argv[1]))))

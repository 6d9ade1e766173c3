"""Write the annotations of a PT2E quantizer as JSON for `qplan target import FILE --from pt2e`.

Needs torch and torchao, which the planner does not. As a script it asks torchao's X86InductorQuantizer about
a small net; `dump(program, quantizer, name)` does it for a quantizer and an exported program of yours:

    python examples/pt2e_specs.py specs.json
    qplan target import specs.json --from pt2e -o my-device.yaml
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.fx import GraphModule, Node

FORMAT = "qplan.pt2e/1"
KEPT = ("dtype", "quant_min", "quant_max", "qscheme", "ch_axis", "is_dynamic", "scale", "zero_point")


def dump(program: GraphModule, quantizer: object, name: str = "") -> dict[str, object]:
    """Let a quantizer annotate an exported program, and collect what it said, each pattern once.

    Args:
      program: `torch.export.export(model, inputs).module()`.
      quantizer: an object with `annotate`, and `transform_for_annotation` where it has one.
      name: of the quantizer, by default its class.
    """
    if hasattr(quantizer, "transform_for_annotation"):
        program = quantizer.transform_for_annotation(program)
    quantizer.annotate(program)
    found: dict[str, dict[str, object]] = {}
    within: set[Node] = set()
    for node in program.graph.nodes:
        if node not in within and annotation_of(node):
            chain = chain_from(node)
            within.update(chain)
            entry = entry_of(chain)
            if any(entry["inputs"]) or entry["output"]:
                found.setdefault(json.dumps(entry), entry)
    return {
        "format": FORMAT,
        "quantizer": name or type(quantizer).__name__,
        "annotations": list(found.values()),
    }


def annotation_of(node: Node) -> object | None:
    """The annotation of a node that computes something."""
    found = node.meta.get("quantization_annotation") if node.op == "call_function" else None
    return found if getattr(found, "_annotated", False) else None


def chain_from(node: Node) -> list[Node]:
    """A node, and those that run in one kernel with it: between them nothing is quantized."""
    chain = [node]
    while True:
        last = annotation_of(chain[-1])
        users = [user for user in chain[-1].users if annotation_of(user)]
        if last is None or last.output_qspec is not None or len(users) != 1 or len(chain[-1].users) != 1:
            return chain
        if users[0] in chain or chain[-1] in annotation_of(users[0]).input_qspec_map:
            return chain
        chain.append(users[0])


def entry_of(chain: list[Node]) -> dict[str, object]:
    """One entry of the file: operators, specs of the first one's operands, spec of the last one's result."""
    head, annotation = chain[0], annotation_of(chain[0])
    operands = [operand for operand in head.all_input_nodes if operand.op != "output"]
    ports = {(operand, head): f"input {i}" for i, operand in enumerate(operands)}
    ports |= dict.fromkeys(chain, "output")
    return {
        "ops": [str(node.target) for node in chain],
        "inputs": [spec_of(annotation.input_qspec_map.get(operand), ports) for operand in operands],
        "output": spec_of(annotation_of(chain[-1]).output_qspec, ports),
    }


def spec_of(spec: object | None, ports: dict[object, str]) -> dict[str, object] | None:
    """A spec as JSON; what it refers to beyond its own pattern is left out."""
    if spec is None:
        return None
    kind = type(spec).__name__
    if kind == "SharedQuantizationSpec":
        shared = ports.get(spec.edge_or_node)
        return None if shared is None else {"kind": kind, "with": shared}
    said: dict[str, object] = {"kind": kind}
    if kind == "DerivedQuantizationSpec":
        said["derived_from"] = [ports[source] for source in spec.derived_from if source in ports]
    for key in KEPT:
        value = getattr(spec, key, None)
        if value is not None:
            said[key] = str(value).removeprefix("torch.") if key in ("dtype", "qscheme") else value
    return said


class SmallNet(nn.Module):
    """A convolution, a sum, a pool and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.last = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classify pictures of 8 x 8."""
        a = torch.relu(self.first(x))
        b = torch.max_pool2d(torch.relu(self.second(a) + a), 2)
        return self.last(torch.flatten(b, 1))


def main() -> None:
    """Write what X86InductorQuantizer says of the small net."""
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    program = torch.export.export(SmallNet().eval(), (torch.randn(1, 3, 8, 8),)).module()
    Path(sys.argv[1]).write_text(json.dumps(dump(program, quantizer), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

"""What tests run in the environments of PyTorch and of ExecuTorch: one process, JSON out."""

import json
import logging
import sys
import warnings
from typing import Any

import numpy as np
import torch
from torchao.quantization.pt2e import move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

import planner
import planner.torch
from tests.training.nets import digits, fitted, loss_of

TARGET = "litert-int8"
COUNT = 64


def planned(net: Any, images: Any, target: str = TARGET) -> tuple[Any, Any, Any]:
    """A network's program, its annotated model and its plan."""
    program = torch.export.export(net, (images,))
    model = planner.load_model(program)
    ready = planner.annotate(model, stats=planner.calibrate(model, {model.inputs[0]: images.numpy()}))
    return program, ready, planner.plan(ready, target)


def by_device(model: Any, plan: Any, images: Any) -> Any:
    """What the plan computes."""
    found = planner.evaluate(model, plan, {model.inputs[0]: images.numpy()})
    return found.outputs[model.outputs[0]]


def by_xnnpack(converted: Any, images: Any) -> tuple[Any, list[str], list[int]]:
    """What ExecuTorch computes on XNNPACK, operators that XNNPACK did not take, `quantized_products`."""
    from executorch.backends.xnnpack import xnnpack_preprocess
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    graphs: list[Any] = []
    write = xnnpack_preprocess.serialize_xnnpack_binary
    xnnpack_preprocess.serialize_xnnpack_binary = lambda graph, *rest: (
        graphs.append(graph) or write(graph, *rest)
    )
    exported = torch.export.export(converted, (images,))
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    nodes = lowered.exported_program().graph.nodes
    others = [str(node.target) for node in nodes if node.op == "call_function"]
    # The runtime reads the buffer and the program where they are, and keeps neither.
    buffer = lowered.to_executorch().buffer
    program = Runtime.get().load_program(buffer)
    method = program.load_method("forward")
    left = [name for name in others if "delegate" not in name and "getitem" not in name]
    return method.execute([images])[0].numpy().copy(), left, quantized_products(graphs)


def quantized_products(graphs: Any) -> list[int]:
    """Convolutions and matrix products of XNNPACK's graphs: those of quantized data and weights, and all."""
    found = []
    for graph in graphs:
        values = {}
        for value in graph.xvalues:
            one = value.xvalue_union
            values[getattr(one, "tensor_value", one).id_out] = hasattr(one, "quant_params")
        nodes = [node.xnode_union for node in graph.xnodes if hasattr(node.xnode_union, "filter_id")]
        found += [values[node.input1_id] and values[node.filter_id] for node in nodes]
    return [sum(found), len(found)]


def beside(a: Any, b: Any, step: float) -> dict[str, float]:
    """The largest difference in steps of the output, the share and the answers that differ, and counts."""
    off = np.abs(a - b) / step
    return {
        "numbers": off.size,
        "equal": int((off < 0.5).sum()),
        "one_step": int(((off >= 0.5) & (off < 1.5)).sum()),
        "steps": float(off.max()),
        "share": float((off > 0.5).mean()),
        "answers": int((a.argmax(1) != b.argmax(1)).sum()),
    }


def step_of(plan: Any) -> float:
    """The scale of the only output."""
    return float(plan.values[plan.graph.outputs[0]].type.scale)


def calibrated(name: str) -> dict[str, Any]:
    """A network planned, annotated and converted: PT2E beside the plan."""
    images, _ = digits()
    images = images[:COUNT]
    program, model, plan = planned(fitted(name), images)
    prepared = prepare_pt2e(program.module(), planner.torch.PlanQuantizer(plan))
    prepared(images)
    found = convert_pt2e(prepared)(images).detach().numpy()
    return {
        "off": beside(found, by_device(model, plan, images), step_of(plan)),
        "in float": [kernel.name for kernel in plan.kernels_in_order if kernel.row is None],
    }


def lowered(name: str) -> dict[str, Any]:
    """A network planned, annotated, lowered and run: XNNPACK beside the plan."""
    images, _ = digits()
    images = images[:COUNT]
    program, model, plan = planned(fitted(name), images)
    prepared = prepare_pt2e(program.module(), planner.torch.PlanQuantizer(plan, biases=False))
    prepared(images)
    found, left, products = by_xnnpack(convert_pt2e(prepared), images)
    off = beside(found, by_device(model, plan, images), step_of(plan))
    return {"off": off, "left": left, "products": products}


def trained(name: str) -> dict[str, Any]:
    """A network trained by `prepare_qat_pt2e` under its plan."""
    images, labels = digits()
    net = fitted(name)
    _, model, plan = planned(net, images[:COUNT])
    # With a BatchNorm the program is that of training; the plan's model has it folded.
    has_norm = any(isinstance(module, torch.nn.BatchNorm2d) for module in net.modules())
    program = torch.export.export(net.train() if has_norm else net, (images[:COUNT],))
    quantizer = planner.torch.PlanQuantizer(plan, biases=not has_norm)
    prepared = prepare_qat_pt2e(program.module(), quantizer)
    optimizer = torch.optim.Adam(prepared.parameters(), 2e-3)
    losses = []
    for step in range(6):
        batch = torch.arange(step * COUNT, step * COUNT + COUNT) % len(labels)
        loss = loss_of(prepared(images[batch]), labels[batch], name)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    move_exported_model_to_eval(prepared)
    learned_scales = {id(p): p for name, p in prepared.named_parameters() if name.endswith("log2")}
    answer: dict[str, Any] = {
        "losses": losses,
        "scales": len(learned_scales),
        "moved": max(float(p.abs().max()) for p in learned_scales.values()),
    }
    if has_norm:
        try:
            quantizer.learned(prepared)
        except planner.PlannerError as error:
            answer["refused"] = str(error)
        converted = convert_pt2e(prepared)
        before = fitted(name)(images[:COUNT])
        answer["answers"] = int((converted(images[:COUNT]).argmax(1) != before.argmax(1)).sum())
        return answer
    learned = planner.with_learned(model, quantizer.learned(prepared))
    again = planner.plan(learned, TARGET)
    converted = convert_pt2e(prepared)
    ours = by_device(learned, again, images[:COUNT])
    shapes = [
        [(str(p.type.storage), p.type.zero_points) if p.type else None for p in ports]
        for ports in (
            [port for kernel in one.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
            for one in (plan, again)
        )
    ]
    return answer | {
        "same": shapes[0] == shapes[1] and len(plan.rescales) == len(again.rescales),
        "cost": [plan.cost, again.cost],
        "off": beside(converted(images[:COUNT]).detach().numpy(), ours, step_of(again)),
    }


class Scaled(torch.nn.Module):
    """A network that adds a number."""

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return torch.relu(x + 0.5)


def refused() -> dict[str, str]:
    """Messages of what PT2E cannot express, and of another program."""
    images = digits()[0][:4]
    plain = fitted("plain", 0)
    program, _, plan = planned(plain, images)
    other = torch.export.export(fitted("mobile", 0), (images,)).module()
    number, _, of_number = planned(Scaled(), images)
    _, _, blocks = planned(plain, images, "llm-w4")
    attempts = {
        "another program": lambda: planner.torch.PlanQuantizer(plan).annotate(other),
        "a number": lambda: planner.torch.PlanQuantizer(of_number).annotate(number.module()),
        "blocks": lambda: planner.torch.PlanQuantizer(blocks),
        "no plan": lambda: planner.torch.PlanQuantizer(program),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except planner.PlannerError as error:
            found[name] = str(error)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    for what in sys.argv[1:]:
        kind, _, name = what.partition(" ")
        result[what] = (
            refused()
            if kind == "refused"
            else {"lower": lowered, "plan": calibrated, "train": trained}[kind](name)
        )
    sys.stdout.write("\n" + json.dumps(result) + "\n")

"""What tests run in the environment of PyTorch: one process, JSON out."""

import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import planner
import planner.torch
from planner.interpreter.calls import Operand
from planner.interpreter.kernels.htp import added, multiplied
from planner.interpreter.kernels.pooling import max_pool
from planner.ir.graph import Op
from planner.ir.types.qtypes import uniform
from planner.ir.types.typetext import parse_storage
from planner.ops.geometry.windows import pool_geometry
from planner.torch.arithmetic import Result, Term, scaled_sum
from planner.torch.operators import FUNCTIONS

SEED = 3


def annotated(model: Any, bits: int) -> Any:
    """The example, with narrow weights and results of its convolutions below 8 bits."""
    stats = planner.calibrate(model, "examples/digits/calibration.npz")
    if bits == 8:
        return planner.annotate(model, stats=stats)
    signed = {"res/conv2", "separable/pointwise"}
    convs = [op.name for op in model.ops if op.type == "Conv"]
    kernels = {n: {"in": ["*", "*"], "out": [f"{'i' if n in signed else 'u'}{bits}"]} for n in convs}
    values = {"*_weight": f"!quant.any<i{bits}>"}
    asked = {"format": "qplan.annotations/1", "values": values, "kernels": kernels}
    return planner.annotate(model, stats=stats, annotations=asked)


def optimizer_of(module: Any) -> Any:
    """One with two learning rates, that of scales high enough to move them in some steps."""
    return torch.optim.Adam(
        [{"params": module.weights(), "lr": 2e-3}, {"params": module.scales(), "lr": 1e-2}]
    )


def fit(module: Any, images: Any, labels: Any, steps: int) -> list[float]:
    """Train for some steps of 64 images; the losses."""
    torch.manual_seed(SEED)
    return fit_from(0, module, optimizer_of(module), (images, labels), steps)


def loss_of(outputs: Any, labels: Any) -> Any:
    """The loss of probabilities, in these tests alone: one that is 0 has a huge gradient."""
    return torch.nn.functional.nll_loss(torch.log(outputs + 1e-6), labels)


def fit_from(start: int, module: Any, optimizer: Any, data: Any, steps: int) -> list[float]:
    """Go on training from a step; the losses."""
    images, labels = data
    losses = []
    for step in range(start, start + steps):
        batch = torch.arange(step * 64, step * 64 + 64) % len(labels)
        loss = loss_of(module(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def shape_of(plan: Any) -> Any:
    """Rows, storages and rescales of a plan."""
    kernels = [
        (
            k.name,
            k.row,
            [p.type and (str(p.type.storage), p.type.zero_points) for p in (*k.inputs, *k.outputs)],
        )
        for k in plan.kernels_in_order
    ]
    return kernels, [(r.id, r.kind, r.consumers, r.cost) for r in plan.rescales]


def law(target: str, bits: int, data: Any) -> dict[str, Any]:
    """Train under a plan, plan again, and compare plans and numbers."""
    images, labels = torch.tensor(data["image"]), torch.tensor(data["label"])
    model = annotated(planner.load_model("examples/digits/digits.onnx"), bits)
    plan = planner.plan(model, target)
    module = planner.torch.fake_quantized(model, plan)
    sample = {"image": data["image"][:64]}
    before = planner.evaluate(model, plan, sample).outputs["probabilities"]
    start = module(images[:64]).detach().numpy()
    losses = fit(module, images, labels, 8)
    trained = planner.with_learned(model, module)
    again = planner.plan(trained, target)
    planner.check(again, trained, target)
    after = planner.evaluate(trained, again, sample).outputs["probabilities"]
    end = module(images[:64]).detach().numpy()
    last = next(e for e in module.spec.edges if e.value == "probabilities") if target != "finn-fpga" else None
    step = module.spec.type_of(last, module.learned().scales).scale if last else 1e-3
    return {
        "same": shape_of(plan) == shape_of(again),
        "cost": [plan.cost, again.cost],
        "groups": len(module.scales()),
        "moved": max(float(p.abs().max()) for p in module.scales()),
        "losses": losses,
        "steps_off": [float(np.abs(a - b).max() / step) for a, b in ((start, before), (end, after))],
        "off": [float(np.mean(np.abs(a - b) > step / 2)) for a, b in ((start, before), (end, after))],
    }


def modules(data: Any) -> dict[str, Any]:
    """What PyTorch's own means do with a module: checkpoints, frozen scales, compile, mixed precision."""
    images = torch.tensor(data["image"][:32])
    model = annotated(planner.load_model("examples/digits/digits.onnx"), 8)
    plan = planner.plan(model, "litert-int8")
    module = planner.torch.fake_quantized(model, plan)
    fit(module, torch.tensor(data["image"]), torch.tensor(data["label"]), 2)
    resumed = planner.torch.fake_quantized(model, plan)
    resumed.load_state_dict(module.state_dict())
    both = planner.torch.fake_quantized(model, plan, outputs=["head/gemm_out", "probabilities"])
    both.load_state_dict(module.state_dict())
    inner, whole = both(images)
    one = planner.torch.fake_quantized(model, plan, outputs="head/gemm_out")
    one.load_state_dict(module.state_dict())
    module.freeze_scales()
    module.zero_grad()
    labels = torch.tensor(data["label"][:32])
    loss_of(module(images), labels).backward()
    plain = [p.grad.clone() for p in module.weights()]
    compiled = {
        backend: like_plain(module, (images, labels), plain, backend) for backend in ("eager", "aot_eager")
    }
    module.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = module(images)
        loss = loss_of(mixed, torch.tensor(data["label"][:32]))
    loss.backward()
    finite = all(bool(torch.isfinite(p.grad).all()) for p in module.weights())
    module.save("learned.npz")
    read = planner.with_learned(model, "learned.npz")
    direct = planner.with_learned(model, resumed)
    return {
        "resumed": bool(torch.equal(resumed(images), module(images))),
        "outputs": bool(torch.equal(whole, module(images)) and torch.equal(inner, one(images))),
        "stored": float(np.abs(inner.detach().numpy() - by_plan(model, module, images)).max()),
        "frozen": all(p.grad is None for p in module.scales()) and module.weights()[0].grad is not None,
        "mixed": float((mixed - module(images)).abs().max()),
        "compiled": compiled,
        "mixed gradients": finite,
        "file": {k: v.facts for k, v in read.values.items()}
        == {k: v.facts for k, v in direct.values.items()},
        "kept": len(planner.torch.fake_quantized(model, plan, keep=["*"]).scales()),
    }


def by_plan(model: Any, module: Any, images: Any) -> Any:
    """The scores in front of the softmax, by the plan made again."""
    trained = planner.with_learned(model, module)
    plan = planner.plan(trained, "litert-int8")
    stored = planner.evaluate(trained, plan, {"image": images.numpy()}).stored["head/gemm_out"]
    kind = plan.values["head/gemm_out"].type
    return (stored.astype(np.float64) - kind.zero_point) * kind.scale


def like_plain(module: Any, data: Any, gradients: Any, backend: str) -> dict[str, Any]:
    """A compiled module beside itself: outputs that differ, and the largest difference of gradients."""
    images, labels = data
    torch.compiler.reset()
    module.zero_grad()
    found = torch.compile(module, backend=backend)(images)
    loss_of(found, labels).backward()
    pairs = zip(module.weights(), gradients, strict=True)
    return {
        "different": int((found != module(images)).sum()),
        "gradients": max(float((p.grad - g).abs().max() / g.abs().max()) for p, g in pairs),
    }


def inductor(data: Any) -> dict[str, Any]:
    """The example's module compiled to C++, trained for two steps, beside the module as it is."""
    images, labels = torch.tensor(data["image"][:32]), torch.tensor(data["label"][:32])
    model = annotated(planner.load_model("examples/digits/digits.onnx"), 8)
    plan = planner.plan(model, "litert-int8")
    module = planner.torch.fake_quantized(model, plan)
    loss_of(module(images), labels).backward()
    plain = [p.grad.clone() for p in module.weights()]
    answer = like_plain(module, (images, labels), plain, "inductor")
    optimizer, fast = optimizer_of(module), torch.compile(module, backend="inductor")
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of(fast(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    trained = planner.with_learned(model, module)
    return answer | {
        "losses": losses,
        "same": shape_of(plan) == shape_of(planner.plan(trained, "litert-int8")),
    }


def checkpoint(data: Any) -> bool:
    """Whether training goes on from a file as if it had never stopped."""
    images, labels = torch.tensor(data["image"]), torch.tensor(data["label"])
    model = annotated(planner.load_model("examples/digits/digits.onnx"), 8)
    plan = planner.plan(model, "litert-int8")
    whole = planner.torch.fake_quantized(model, plan)
    optimizer = optimizer_of(whole)
    fit_from(0, whole, optimizer, (images, labels), 2)
    torch.save({"module": whole.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
    fit_from(2, whole, optimizer, (images, labels), 2)
    again = planner.torch.fake_quantized(model, plan)
    found, other = torch.load("checkpoint.pt", weights_only=True), optimizer_of(again)
    again.load_state_dict(found["module"])
    other.load_state_dict(found["optimizer"])
    fit_from(2, again, other, (images, labels), 2)
    return all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))


def in_process(rank: int, module: Any, data: Any, store: str, answers: Any) -> None:
    """A step of data-parallel training: this process's half of the images."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    parallel = torch.nn.parallel.DistributedDataParallel(module)
    images, labels = (torch.tensor(data[name][rank * 32 : rank * 32 + 32]) for name in ("image", "label"))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    loss_of(parallel(images), labels).backward()
    optimizer.step()
    answers.put((rank, [p.detach().numpy() for p in module.parameters()]))
    torch.distributed.destroy_process_group()


def parallel(data: Any) -> dict[str, bool]:
    """Two processes with gloo beside one with all images."""
    arrays = {name: data[name][:64] for name in ("image", "label")}
    model = annotated(planner.load_model("examples/digits/digits.onnx"), 8)
    module = planner.torch.fake_quantized(model, planner.plan(model, "litert-int8"))
    context = multiprocessing.get_context("fork")  # as what is forked has imported everything
    answers, store = context.Queue(), str(Path("store").absolute())
    shared = [(rank, module, arrays, store, answers) for rank in range(2)]
    workers = [context.Process(target=in_process, args=arguments) for arguments in shared]
    for worker in workers:
        worker.start()
    found = dict(answers.get(timeout=300) for _ in workers)
    for worker in workers:
        worker.join()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    loss_of(module(torch.tensor(arrays["image"])), torch.tensor(arrays["label"])).backward()
    optimizer.step()
    # The gradient of a scale depends on how many numbers it is of, in LSQ, and so on the batch.
    alone = {id(p): p.detach().numpy() for p in module.weights()}
    pairs = [(a, alone[id(p)]) for a, p in zip(found[0], module.parameters(), strict=True) if id(p) in alone]
    return {
        "alike": all(np.array_equal(a, b) for a, b in zip(*found.values(), strict=True)),
        "as alone": all(np.allclose(a, b, atol=1e-5) for a, b in pairs),
    }


class Net(torch.nn.Module):
    """A user's own network, with a residual."""

    def __init__(self) -> None:
        """Make its layers."""
        super().__init__()
        self.a = torch.nn.Conv2d(1, 8, 3, padding=1)
        self.b = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.f = torch.nn.Linear(8 * 16, 10)

    def forward(self, x: Any) -> Any:
        """Compute the scores of images of 8 by 8."""
        h = torch.relu(self.a(x))
        h = torch.relu(self.b(h) + h)
        return self.f(torch.flatten(torch.max_pool2d(h, 2), 1))


def owned(data: Any) -> dict[str, Any]:
    """Train a network of one's own in place: its weights move, and the plan has them."""
    torch.manual_seed(SEED)
    net, x = Net().eval(), torch.tensor(data["image"][:16])
    sizes = ({0: torch.export.Dim("n", min=2, max=1024)},)
    model = planner.load_model(torch.export.export(net, (x,), dynamic_shapes=sizes))
    ready = planner.annotate(model, stats=planner.calibrate(model, {"x": x.numpy()}))
    plan = planner.plan(ready, "litert-int8")
    module = planner.torch.fake_quantized(ready, plan, owner=net)
    before = net.a.weight.detach().clone()
    optimizer = torch.optim.Adam([*net.parameters(), *module.scales()], 1e-3)
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(module(x), torch.tensor(data["label"][:16]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained = planner.with_learned(ready, module)
    again = planner.plan(trained, "litert-int8")
    name = model.outputs[0]
    stored = planner.evaluate(trained, again, {"x": x.numpy()}).outputs[name]
    try:
        planner.torch.fake_quantized(ready, plan, owner=torch.nn.Linear(2, 2))
    except planner.PlannerError as error:
        other = str(error)
    return {
        "moved": float((net.a.weight - before).detach().abs().max()),
        "in place": bool((trained.constants["a.weight"].array == net.a.weight.detach().numpy()).all()),
        "same": shape_of(plan) == shape_of(again),
        "difference": float(np.abs(stored - module(x).detach().numpy()).max()),
        "other": other,
    }


def prepared(data: Any) -> dict[str, Any]:
    """A network of one's own in one call: as the long way has it, its rates, its plan when it is trained."""
    torch.manual_seed(SEED)
    net, x, labels = Net().train(), torch.tensor(data["image"][:64]), torch.tensor(data["label"][:64])
    narrow = {"format": "qplan.annotations/1", "values": {"*.weight": "!quant.any<i3>"}}
    module = planner.torch.prepare(net, x, "finn-fpga", annotations=narrow)
    sizes = ({0: torch.export.Dim("n", min=2, max=1024)},)
    model = planner.load_model(torch.export.export(net, (x,), dynamic_shapes=sizes))
    stats = planner.calibrate(model, {"x": x.numpy()})
    plan = planner.plan(planner.annotate(model, stats=stats, annotations=narrow), "finn-fpga")
    before = net.a.weight.detach().clone()
    groups = planner.torch.parameter_groups(module, 1e-3)
    other = planner.torch.parameter_groups(module, 1e-3, scales_lr=2e-3)
    optimizer = torch.optim.AdamW(groups)
    for batch in torch.arange(64).split(16):
        loss = torch.nn.functional.cross_entropy(module(x[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained, again = module.planned()
    stored = planner.evaluate(trained, again, {"x": x.numpy()}).outputs[model.outputs[0]]
    norm = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    folded = planner.torch.prepare(norm, x, "litert-int8")
    weight = norm[0].weight.detach().clone()
    folded(x[:2]).sum().backward()
    torch.optim.SGD(planner.torch.parameter_groups(folded, 0.1)).step()
    messages = []
    for attempt in (
        lambda: planner.torch.prepare(net, x[:1], "litert-int8"),
        lambda: planner.torch.prepare(net, [], "litert-int8"),
        lambda: planner.torch.prepare(model, x, "litert-int8"),
    ):
        try:
            attempt()
        except planner.PlannerError as error:
            messages.append(str(error))
    return {
        "as the long way": shape_of(module.plan) == shape_of(plan),
        "same": shape_of(again) == shape_of(plan),
        "mode": net.training,
        "moved": float((net.a.weight - before).detach().abs().max()),
        "in place": bool((trained.constants["a.weight"].array == net.a.weight.detach().numpy()).all()),
        "rates": [group["lr"] for group in (*groups, *other)],
        "all": sum(len(group["params"]) for group in groups) == len([*module.parameters()]),
        "scales": {id(p) for p in groups[1]["params"]} == {id(p) for p in module.scales()},
        "decay": [group["weight_decay"] for group in optimizer.param_groups],
        "difference": float(np.abs(stored - module(x).detach().numpy()).max()),
        "another batch": list(folded(x[:5]).shape),
        "a folded weight": bool(torch.equal(weight, norm[0].weight)),
        "no scales": len(planner.torch.parameter_groups(net, 1e-3)),
        "messages": messages,
    }


def starts(data: Any) -> dict[str, float]:
    """The mean squared error of scores, weights at 2 bits, beside 16 bits, by the start of training.

    With results of 2 bits too, the share of right answers.
    """
    images = torch.tensor(data["image"])
    wide = annotated(planner.load_model("examples/digits/digits.onnx"), 8)
    narrow = {"format": "qplan.annotations/1", "values": {"*_weight": "!quant.any<i2>"}}
    models = {
        "": planner.annotate(wide, annotations=narrow),
        ", results": annotated(planner.load_model("examples/digits/digits.onnx"), 2),
    }
    found = planner.evaluate(wide, planner.plan(wide, "hls4ml-fpga"), {"image": data["image"]})
    wanted = found.outputs["probabilities"]
    scored = {}
    for what, model in models.items():
        plan = planner.plan(model, "finn-fpga")
        for name, inputs in {"plan": None, "weights": (), "inputs": (images[:128],)}.items():
            module = planner.torch.fake_quantized(model, plan)
            if inputs is not None:
                module.fit_weights(*inputs)
            with torch.no_grad():
                scores = module(images).numpy()
            right = float(np.mean(scores.argmax(1) == data["label"]))
            scored[name + what] = right if what else float(np.mean((scores - wanted) ** 2))
    return scored


def refused() -> list[str]:
    """Messages of what cannot be trained."""
    found = []
    model = annotated(planner.load_model("examples/digits/digits.onnx"), 8)
    other = planner.load_model("examples/digits/digits.onnx")
    plan = planner.plan(model, "litert-int8")
    changed = planner.correct_biases(
        model, "litert-int8", planner.calibrate(other, "examples/digits/calibration.npz")
    )
    module = planner.torch.fake_quantized(model, plan)
    with torch.no_grad():
        module.scales()[0].fill_(float("nan"))
    for attempt in (
        lambda: planner.torch.fake_quantized(changed, plan),
        lambda: planner.with_learned(model, module),
        lambda: module(torch.zeros(1), torch.zeros(1)),
        lambda: planner.torch.fake_quantized(model, plan, outputs=["stem/conv_out"]),
    ):
        try:
            attempt()
        except planner.PlannerError as error:
            found.append(str(error))
    return found


def sums() -> dict[str, list[int]]:
    """Random sums by each arithmetic, of one term and of two, as `numbers.npz` has them."""
    drawn = np.load("numbers.npz")
    terms = [Term((torch.tensor(drawn["integers"]),), torch.tensor(drawn["ratios"]))]
    bytes_of = torch.tensor(drawn["others"])
    two = [
        Term((bytes_of.flip(0),), torch.tensor(drawn["ratios"][:1])),
        Term((bytes_of,), torch.tensor(drawn["other_ratio"])),
    ]
    names = ("exact_even", "power_of_two", "tosa_single", "tosa_double", "gemmlowp", "litert")
    found = {name: scaled_sum(terms, name, Result(8, 0)).long().flatten().tolist() for name in names}
    for name in names:
        found[f"{name} of two"] = scaled_sum(two, name, Result(8, 0)).long().flatten().tolist()
    return found


def pairs() -> dict[str, int]:
    """Numbers of Qualcomm's sums, differences and products that differ from the interpreter's."""
    random, wrong = (
        np.random.default_rng(SEED),
        dict.fromkeys(("Add u8", "Sub u8", "Mul u8", "Sub u16", "Mul u16"), 0),
    )
    for name in wrong:
        op, store = name.split()
        bits = int(store[1:])
        for _ in range(40):
            scales = 2.0 ** random.uniform(-12, -2, 3)
            scales[2] *= scales[0] * 2 ** (bits / 2) if op == "Mul" else 1.0
            zeros = random.integers(0, 1 << bits, 3)
            kinds = [
                uniform(parse_storage(store), float(np.float32(s)), int(z))
                for s, z in zip(scales, zeros, strict=True)
            ]
            stored = random.integers(0, 1 << bits, (2, 500)).astype(f"uint{bits}")
            a, b = (Operand(array, kind) for array, kind in zip(stored, kinds, strict=False))
            y = kinds[2]
            sides = tuple(torch.tensor(side.shifted()) for side in (a, b))
            result = Result(bits, y.zero_point)
            unit = [np.float64(kind.scale) for kind in kinds]
            if op == "Mul":
                ratio = torch.tensor(unit[0] * unit[1] / unit[2])
                single = torch.tensor(
                    np.float32(np.float32(unit[0]) * np.float32(unit[1])) / np.float32(unit[2])
                )
                product = Term(sides, ratio, 1, (a.kind.zero_point, b.kind.zero_point), single)
                steps, wanted = scaled_sum([product], "htp", result), multiplied(a, b, y)
            else:
                sign = -1 if op == "Sub" else 1
                parts = zip(sides, unit, (1, sign), (a, b), strict=False)
                terms = [
                    Term((side,), torch.tensor(one / unit[2]), by, (x.kind.zero_point,))
                    for side, one, by, x in parts
                ]
                steps, wanted = scaled_sum(terms, "htp", result), added(a, b, y, sign=sign)
            if wanted is not None:
                mine = (steps.numpy() + y.zero_point).clip(0, (1 << bits) - 1)
                wrong[name] += int((mine != wanted).sum())
    return wrong


class Pairs(torch.nn.Module):
    """A product, a difference and a sum."""

    def forward(self, x: Any, y: Any) -> Any:
        """Compute them."""
        z = x * y
        return z, x - z, (x - z) + y


def two_tensors() -> dict[str, int]:
    """Stored numbers of a product, a difference and a sum that differ from the plan's, by target."""
    random = np.random.default_rng(SEED)
    x, y = (np.float32(random.normal(0.3, 1.0, (8, 64))) for _ in range(2))
    model = planner.load_model(torch.export.export(Pairs(), (torch.tensor(x), torch.tensor(y))))
    ready = planner.annotate(model, stats=planner.calibrate(model, {"x": x, "y": y}))
    found = {}
    for target in ("finn-fpga", "hls4ml-fpga", "litert-int8", "onnxruntime-cpu", "qnn-htp", "tosa-int8"):
        plan = planner.plan(ready, target)
        mine = planner.torch.fake_quantized(ready, plan)(torch.tensor(x), torch.tensor(y))
        device = planner.evaluate(ready, plan, {"x": x, "y": y}).outputs
        pairs = zip(model.outputs, mine, strict=True)
        found[target] = sum(
            int((np.abs(device[name] - part.detach().numpy()) > 1e-6).sum()) for name, part in pairs
        )
    return found


def pools() -> list[bool]:
    """Whether windows that start in the end padding are left out, as the interpreter has it."""
    x = np.random.default_rng(SEED).integers(-9, 9, (1, 2, 3, 5)).astype(np.int32)
    found = []
    for ceil_mode in (0, 1):
        said = {"kernel_shape": (2, 2), "strides": (2, 2), "pads": (1, 1, 1, 1), "ceil_mode": ceil_mode}
        op = Op("p", "MaxPool", ("x",), ("y",), said)
        mine = FUNCTIONS["MaxPool"](op, [torch.tensor(x).float()], [None])
        found.append(np.array_equal(mine, max_pool(x, pool_geometry(said, x.shape[2:]))))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    test = np.load("examples/digits/test.npz")
    asked = json.loads(sys.argv[1])
    answer: dict[str, Any] = {f"{target} {bits}": law(target, bits, test) for target, bits in asked["law"]}
    answer |= (
        {
            "modules": modules(test),
            "checkpoint": checkpoint(test),
            "parallel": parallel(test),
            "owned": owned(test),
            "prepared": prepared(test),
            "refused": refused(),
            "sums": sums(),
            "pools": pools(),
            "starts": starts(test),
            "pairs": pairs(),
            "two tensors": two_tensors(),
        }
        if asked.get("rest")
        else {}
    )
    if asked.get("inductor"):
        answer["inductor"] = inductor(test)
    sys.stdout.write(json.dumps(answer))

"""A network of PyTorch made ready in one call: exported, calibrated, planned, with a module of its plan.

The long way is `load_model`, `calibrate`, `annotate`, `plan` and `fake_quantized`, of models from anywhere.
Source: docs/howto/train-under-a-plan.md.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from planner.errors import InputError, expect
from planner.factors.form import form_of_plan
from planner.ir.graph import Graph
from planner.pipeline import annotate, calibrate, load_model, plan
from planner.plans.plan import Plan
from planner.target.records import Target
from planner.torch.module import FakeQuantized
from planner.torch.quantizers import GroupScale
from planner.training.groups import training_spec
from planner.training.learned import with_learned


class Prepared(FakeQuantized):
    """The module of `prepare`.

    Attributes:
      model: annotated, as the plan was made of it.
      plan: that it trains under.
    """

    def __init__(
        self, model: Graph, target: Any, made: Plan, keep: Sequence[str], owner: torch.nn.Module
    ) -> None:
        """See `prepare`."""
        form = form_of_plan(model, made.graph)
        super().__init__(form, made, training_spec(made, keep=keep), owner)
        self.model, self.plan, self._target = model, made, target

    def planned(self) -> tuple[Graph, Plan]:
        """Return the model as it has been trained so far, and its plan, for `evaluate` and `export_to`."""
        trained = with_learned(self.model, self)
        return trained, plan(trained, self._target)


def prepare(
    net: torch.nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    target: str | Path | Target,
    *,
    annotations: str | Path | Mapping[str, Any] | None = None,
    keep: Sequence[str] = (),
) -> Prepared:
    """Plan a network of PyTorch, and return the module to train in its place.

    Weights that the network has under the same names are trained in it, so that its checkpoints hold them. A
    BatchNorm is folded into the weights before it, which then are the module's own.

    Args:
      net: with trained weights.
      inputs: a batch of its inputs, a hundred or so: they give the ranges, and the start of training.
      target: a built-in one, or a file.
      annotations: requests for widths and types, as `annotate` takes them.
      keep: names or globs of values whose scales stay as they are.

    Raises:
      InputError: no network or batch; a plan that cannot be trained under.

    Example:
      >>> module = planner.torch.prepare(net, images[:256], "litert-int8")  # doctest: +SKIP
      >>> optimizer = torch.optim.Adam(planner.torch.parameter_groups(module, 1e-3))  # doctest: +SKIP
      >>> model, plan = module.planned()  # doctest: +SKIP
    """
    expect(net, torch.nn.Module, "a network is a torch.nn.Module")
    batch = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if not batch or not all(isinstance(x, Tensor) and x.ndim and len(x) > 1 for x in batch):
        raise InputError("inputs are a batch of two or more samples: a tensor, or one for each input")
    read = load_model(_exported(net, batch))
    sample = {name: x.detach().cpu().numpy() for name, x in zip(read.inputs, batch, strict=True)}
    model = annotate(read, stats=calibrate(read, sample), annotations=annotations)
    module = Prepared(model, target, plan(model, target), keep, net).to(batch[0].device)
    module.fit_weights(*batch)
    return module


def _exported(net: torch.nn.Module, batch: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    """The network as a program that takes batches of any size, where it can."""
    was_training = net.training
    sizes = tuple({0: torch.export.Dim.AUTO} for _ in batch)
    try:
        return torch.export.export(net.eval(), batch, dynamic_shapes=sizes)
    finally:
        net.train(was_training)


def parameter_groups(
    module: torch.nn.Module, lr: float, *, scales_lr: float | None = None
) -> list[dict[str, Any]]:
    """Return the parameters of a module for an optimizer of PyTorch: weights, and scales without decay.

    Args:
      module: a `fake_quantized` or prepared one, a program of `prepare_qat_pt2e` with a `PlanQuantizer`, or
        one around these.
      lr: rate of weights.
      scales_lr: rate of scales, which are logarithms; that of weights by default.

    Example:
      >>> optimizer = torch.optim.Adam(planner.torch.parameter_groups(module, 1e-3))  # doctest: +SKIP
    """
    parts = [part for part in module.modules() if isinstance(part, GroupScale)]
    scales = {id(parameter): parameter for part in parts for parameter in part.parameters()}
    weights = [parameter for parameter in module.parameters() if id(parameter) not in scales]
    groups: list[dict[str, Any]] = [{"params": weights, "lr": lr}]
    if scales:
        # A decayed scale would go back to where it started.
        rate = lr if scales_lr is None else scales_lr
        groups.append({"params": [*scales.values()], "lr": rate, "weight_decay": 0.0})
    return groups

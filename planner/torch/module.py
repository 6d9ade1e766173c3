"""FakeQuantized: a planned model as a torch module, which computes what the plan does and can be trained.

Kernels run one after the other, as the reference interpreter runs them: operands are seen through the types
of their ports, results are rounded onto theirs. Source: docs/howto/train-under-a-plan.md.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from planner.checker.origins import check_model
from planner.errors import InputError, expect, unknown_name
from planner.factors.form import form_of_plan
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan, require_plan
from planner.torch.arithmetic import EXACT, Result, Term, scaled_mean, scaled_sum
from planner.torch.fitting import TrainedProduct, fitted_to, gains_of, trained_product
from planner.torch.operators import FUNCTIONS
from planner.torch.quantizers import EdgeQuantizer, GroupScale, derived_scale, spread
from planner.torch.steps import Maker, Part, Read, Step, Sum, Write
from planner.training.groups import training_spec
from planner.training.learned import Learned
from planner.training.spec import Edge, TrainingSpec


class FakeQuantized(torch.nn.Module):
    """A planned model whose weights and scales are parameters.

    Call it with the inputs of the model in order; it returns its output, or a tuple of them. Checkpoints are
    its `state_dict`. `parameter_groups` gives an optimizer its weights and scales.

    Attributes:
      spec: what the plan asks of training.
    """

    def __init__(
        self,
        model: Graph,
        plan: Plan,
        spec: TrainingSpec,
        owner: torch.nn.Module | None = None,
        outputs: Sequence[str] = (),
    ) -> None:
        """See `fake_quantized`."""
        super().__init__()
        self.spec = spec
        self._inputs, self._outputs = model.inputs, tuple(outputs) or model.outputs
        self._dtypes = {name: model.values[name].is_float for name in model.inputs}
        self._names = _attribute_names((*spec.groups, *model.constants))
        edges = {(edge.value, spec.type_of(edge)): f"edge{i}" for i, edge in enumerate(spec.all_edges)}
        self.quantizers = torch.nn.ModuleDict(
            {f"edge{i}": EdgeQuantizer(edge) for i, edge in enumerate(spec.all_edges)}
        )
        self.group_scales = torch.nn.ModuleDict(
            {
                self._names[name]: GroupScale(group)
                for name, group in spec.groups.items()
                if group.moves != "derived"
            }
        )
        self.constants = torch.nn.ParameterDict()
        self._steps = tuple(Maker(model, plan, edges, {}).steps())
        made = {*model.inputs, *(write.name for step in self._steps for write in step.writes)}
        for name in self._outputs:
            if name not in made:
                raise unknown_name("value between kernels", name, made)
        self._trained = tuple(_trained(model, plan, spec))
        shared = {} if owner is None else _shared(model, self._trained, owner)
        self._owned = frozenset(shared)
        for name in _read_constants(self._steps, model):
            if name not in shared:
                numbers = torch.tensor(np.asarray(model.constants[name].array, np.float32))
                shared[name] = torch.nn.Parameter(numbers, requires_grad=name in self._trained)
            self.constants[self._names[name]] = shared[name]
        pins = {name: plan.stored_pins.get(name) for name in model.inputs}
        self._stored = {name: edges[name, kind] for name, kind in pins.items() if isinstance(kind, Uniform)}

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Compute the outputs; one of a fixed type is on its grid, as reals."""
        scales = self._all_scales()
        values = self._fed(inputs, scales)
        seen: dict[tuple[str, str], Tensor] = {}
        for step in self._steps:
            self._run(step, values, seen, scales)
        outputs = tuple(values[name] for name in self._outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def require_owner(self, owner: torch.nn.Module) -> None:
        """Check that a network has some of the weights that are trained.

        Raises:
          InputError: it has none of them.
        """
        if self._trained and not self._owned:
            names = ", ".join(map(repr, [name for name, _ in owner.named_parameters()][:3]))
            wanted = ", ".join(map(repr, self._trained[:3]))
            raise InputError(
                f"the network has none of the weights {wanted}; its own: {names}",
                hint="export it with its weights as they are now; BatchNorm is folded into others",
            )

    def weights(self) -> list[torch.nn.Parameter]:
        """The constants that are trained."""
        return [
            self.constants[self._names[name]] for name in self._trained if self._names[name] in self.constants
        ]

    def scales(self) -> list[torch.nn.Parameter]:
        """The scales that are learned, one parameter for each tied group: logarithms, 0 at the start."""
        return [*self.group_scales.parameters()]

    def freeze_scales(self, frozen: bool = True) -> None:  # noqa: FBT001, FBT002 - as torch's requires_grad_
        """Stop learning scales, or go on."""
        for parameter in self.scales():
            parameter.requires_grad_(not frozen)

    @torch.no_grad()
    def fit_weights(self, *inputs: Tensor) -> None:
        """Start the scales of weights where rounding has the least squared error, for training at few bits.

        Plans hold the largest weight: at 2 bits most others are 0 then, and training starts far off.

        Args:
          inputs: a batch of the model's inputs, a hundred images or so. With them the scales of results start
            so too, and every channel of a product with the mean and the gain that it has in float.
        """
        reads = {name: self._names[name] for name in self._trained if self._names[name] in self.constants}
        reals = {name: self.constants[attribute] for name, attribute in reads.items()}
        self._fit(reals)
        if inputs:
            found = self._in_float(inputs)
            self._fit({**reals, **found}, found)
            self._match(inputs, found)

    def _fit(self, reals: Mapping[str, Tensor], some: Collection[str] | None = None) -> None:
        """Fit every free scale of which all tensors are known, and one of them is of these."""
        for name, group in self.spec.groups.items():
            edges = [edge for edge in self.spec.all_edges if edge.group == name]
            is_known = all(edge.value in reals for edge in edges)
            if group.moves == "free" and is_known and (some is None or any(e.value in some for e in edges)):
                tensors = [(edge, self._fitted_to(edge, reals[edge.value])) for edge in edges]
                self.group_scales[self._names[name]].fit(tensors)

    def _fitted_to(self, edge: Edge, x: Tensor) -> Tensor:
        return x if edge.value in self._trained else fitted_to(x, self.spec.type_of(edge))

    def _in_float(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """The values between kernels, and the sums of products, without any rounding."""
        fed = zip(self._inputs, inputs, strict=True)
        reals = {name: x.float() if self._dtypes[name] else x for name, x in fed}
        for step in self._steps:
            inner: dict[str, Tensor] = {}
            for call in step.calls:
                operands = [self._real(read, reals, inner) for read in call.reads]
                found = FUNCTIONS[call.op.type](call.op, operands, call.statics)
                results = found if isinstance(found, tuple) else (found,)
                inner.update(zip(call.op.outputs, results, strict=False))
            product = trained_product(step.calls, self._trained)
            kept = [write.name for write in step.writes] + ([] if product is None else [product.result])
            reals.update((name, inner[name]) for name in kept)
        return reals

    def _match(self, inputs: Sequence[Tensor], reals: Mapping[str, Tensor]) -> None:
        """Give the channels of every product the gain and mean that they have in float, in order."""
        values = self._fed(inputs, self._all_scales())
        for step in self._steps:
            product = trained_product(step.calls, self._trained)
            if product is not None:
                self._match_product(product, product.by_channel(reals[product.result]), values)
            self._run(step, values, {}, self._all_scales())

    def _real(
        self, read: Read | None, reals: Mapping[str, Tensor], inner: Mapping[str, Tensor]
    ) -> Tensor | None:
        if read is None:
            return None
        for known in (inner, reals):
            if read.name in known:
                return known[read.name]
        return self.constants[self._names[read.name]]

    def _match_product(self, product: TrainedProduct, wanted: Tensor, values: Mapping[str, Tensor]) -> None:
        """Move the weight, its scale and the bias of a product; all integers of the weight stay."""
        op, edge = product.call.op, self.quantizers[product.weight.edge].edge
        scales = self._all_scales()
        # The sums without what is added to them.
        operands = [self._operand(read, values, {}, {}, scales) for read in product.call.reads[:2]]
        operands += [None] * len(product.call.reads[2:])
        sums = product.by_channel(FUNCTIONS[op.type](op, operands, product.call.statics))
        mean, wanted_mean = sums.mean(1, keepdim=True), wanted.mean(1, keepdim=True)
        group = self.spec.groups[edge.group]
        is_alone = sum(other.group == edge.group for other in self.spec.all_edges) == len(edge.consumers) == 1
        moves = group.moves == "free" and not group.power_of_two and len(group.scales) in {1, len(sums)}
        gains = mean.new_ones(1)
        if is_alone and moves:
            parts = (sums - mean, wanted - wanted_mean) if product.bias else (sums, wanted)
            gains = gains_of(*parts, len(group.scales))
            weight = self.constants[self._names[product.weight.name]]
            weight *= spread(gains.float(), edge, weight.shape)
            self.group_scales[self._names[group.name]].log2 += gains.log2().float()
        bias = self.constants[self._names[product.bias]] if product.bias else None
        if bias is not None and bias.numel() == len(sums):
            found = wanted_mean - gains[:, None] * mean
            bias.copy_((found / op.attributes.get("beta", 1.0)).reshape(bias.shape))

    def learned(self) -> Learned:
        """The weights and scales as they are now, which `planner.with_learned` takes."""
        with torch.no_grad():
            scales = {
                name: tuple(self.group_scales[self._names[name]]().cpu().double().tolist())
                for name, group in self.spec.groups.items()
                if group.moves != "derived"
            }
            constants = {
                name: self.constants[self._names[name]].detach().cpu().float().numpy().copy()
                for name in self._trained
                if self._names[name] in self.constants
            }
        return Learned(self.spec, scales, constants)

    def save(self, path: str | Path) -> None:
        """Write the learned weights and scales, which `planner.with_learned` reads without torch."""
        self.learned().save(path)

    def _fed(self, inputs: Sequence[Tensor], scales: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The model's inputs as its kernels see them."""
        if len(inputs) != len(self._inputs):
            told = ", ".join(map(repr, self._inputs))
            raise InputError(f"{len(inputs)} inputs; the model has {len(self._inputs)}: {told}")
        found = {}
        for name, x in zip(self._inputs, inputs, strict=True):
            edge = self._stored.get(name, "")
            found[name] = self._through(edge, x.float() if self._dtypes[name] else x, scales, "even")
        return found

    def _run(
        self,
        step: Step,
        values: dict[str, Tensor],
        seen: dict[tuple[str, str], Tensor],
        scales: Mapping[str, Tensor],
    ) -> None:
        """Add the results of a kernel to the values."""
        inner: dict[str, Tensor] = {}
        whole: dict[str, Tensor] = {}
        of_products = {
            write.sums.source: write.sums
            for write in step.writes
            if write.sums is not None and not write.sums.parts[0].factors
        }
        for call in step.calls:
            operands = [self._operand(read, values, inner, seen, scales) for read in call.reads]
            added = None
            if any(of_products[name].is_operand for name in of_products.keys() & {*call.op.outputs}):
                added, operands[2] = operands[2], None
            found = FUNCTIONS[call.op.type](call.op, operands, call.statics)
            results = found if isinstance(found, tuple) else (found,)
            inner.update(zip(call.op.outputs, results, strict=False))
            for name in of_products.keys() & {*call.op.outputs}:
                sums, x = of_products[name], inner[name]
                whole[name], exact = self._exact(sums, x, values, inner, seen, scales)
                if added is not None:
                    spread_out = added.reshape(-1, *[1] * sums.trailing)
                    x, exact = x + spread_out, exact + spread_out.detach().double()
                exact = exact.float()
                # What is 0, or an end of a range, has to be that: gradients stop there.
                inner[name] = exact + (x - x.detach()) if x.requires_grad else exact
        for write in step.writes:
            x = inner[write.name]
            for i, edge in enumerate(write.edges):
                known = None
                if i and write.rescales:
                    known = self._rescaled(write.edges[0], edge, x, scales, write.rescales)
                elif not i and write.sums is not None:
                    known = self._known(write, whole, values, inner, seen, scales)
                x = self._through(edge, x, scales, write.ties, known)
            values[write.name] = x

    def _all_scales(self) -> dict[str, Tensor]:
        """The scales of every group; those of biases follow from the others."""
        found = {
            name: self.group_scales[self._names[name]]()
            for name, group in self.spec.groups.items()
            if group.moves != "derived"
        }
        for name, group in self.spec.groups.items():
            if group.moves == "derived":
                found[name] = derived_scale(group.of, found)
        return found

    def _operand(
        self,
        read: Read | None,
        values: Mapping[str, Tensor],
        inner: Mapping[str, Tensor],
        seen: dict[tuple[str, str], Tensor],
        scales: Mapping[str, Tensor],
    ) -> Tensor | None:
        if read is None:
            return None
        if read.name in inner:
            return inner[read.name]
        key = read.name, read.edge
        if key not in seen:
            attribute = self._names.get(read.name)
            is_constant = read.name not in values and attribute in self.constants
            x = self.constants[attribute] if is_constant else values[read.name]
            known = self._rescaled(read.base, read.edge, x, scales, read.arithmetic) if read.base else None
            seen[key] = self._through(read.edge, x, scales, read.ties, known)
        return seen[key]

    def _through(
        self, edge: str, x: Tensor, scales: Mapping[str, Tensor], ties: str, known: Tensor | None = None
    ) -> Tensor:
        if not edge:
            return x
        quantizer = self.quantizers[edge]
        found: Tensor = quantizer(x, scales[quantizer.edge.group], ties, known)
        return found

    @torch.no_grad()
    def _rescaled(
        self, base: str, edge: str, x: Tensor, scales: Mapping[str, Tensor], arithmetic: str
    ) -> Tensor:
        """The whole steps of integers of one grid on another."""
        unit, to = self._scale(base, scales).reshape(()), self._scale(edge, scales).reshape(())
        kind = self.quantizers[edge].edge
        term = Term((torch.round(x.double() / unit).long(),), unit / to)
        return scaled_sum([term], arithmetic, Result(kind.storage.bits, kind.zero_points[0]))

    def _integers(self, x: Tensor | None, edge: str, scales: Mapping[str, Tensor]) -> Tensor:
        if x is None:
            raise TypeError(f"an operand of {self.quantizers[edge].edge.value!r} is absent")
        scale = spread(self._scale(edge, scales), self.quantizers[edge].edge, x.shape)
        return torch.round(x.double() / scale).long()

    def _again(
        self,
        sums: Sum,
        values: Mapping[str, Tensor],
        inner: Mapping[str, Tensor],
        seen: dict[tuple[str, str], Tensor],
        scales: Mapping[str, Tensor],
    ) -> Tensor:
        """The integers of a sum by its operators on integers, which float64 holds."""
        whole: dict[str, Tensor] = {}
        for call, edges in sums.again:
            operands = [
                None
                if read is None or (sums.is_operand and i == 2)
                else whole[read.name]
                if read.name in whole
                else self._integers(self._operand(read, values, inner, seen, scales), edge, scales).double()
                for i, (read, edge) in enumerate(zip(call.reads, edges, strict=True))
            ]
            found = FUNCTIONS[call.op.type](call.op, operands, call.statics)
            whole[call.op.outputs[0]] = found[0] if isinstance(found, tuple) else found
        return torch.round(whole[sums.source])

    def _scale(self, edge: str, scales: Mapping[str, Tensor]) -> Tensor:
        return scales[self.quantizers[edge].edge.group].detach().double()

    def _unit(self, sums: Sum, part: Part, scales: Mapping[str, Tensor]) -> Tensor:
        """The float64 step of a term."""
        unit: Tensor | float = sums.factor
        for one in part.units:
            scale = self._scale(one, scales)
            unit = unit * (
                scale.reshape(-1, *[1] * sums.trailing) if scale.numel() > 1 else scale.reshape(())
            )
        return torch.as_tensor(unit)

    @torch.no_grad()
    def _exact(  # noqa: PLR0917 - what a forward has
        self,
        sums: Sum,
        x: Tensor,
        values: Mapping[str, Tensor],
        inner: Mapping[str, Tensor],
        seen: dict[tuple[str, str], Tensor],
        scales: Mapping[str, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """The integers of a sum of products or of a mean, and their reals: float32 has rounded on its way."""
        unit = self._unit(sums, sums.parts[0], scales)
        if sums.again:
            integers = self._again(sums, values, inner, seen, scales)
        else:
            integers = torch.round((x.double() if sums.count == 1 else x.double() * sums.count) / unit)
        # Exact arithmetics go on in float64.
        integers = integers if sums.arithmetic in EXACT else integers.long()
        reals = integers.double() * unit
        return integers, reals if sums.count == 1 else reals / sums.count

    @torch.no_grad()
    def _known(  # noqa: PLR0917 - what a forward has
        self,
        write: Write,
        whole: Mapping[str, Tensor],
        values: Mapping[str, Tensor],
        inner: Mapping[str, Tensor],
        seen: dict[tuple[str, str], Tensor],
        scales: Mapping[str, Tensor],
    ) -> Tensor:
        """The whole steps of a result as its kernel's arithmetic gives them, before they saturate."""
        sums, edge = write.sums, self.quantizers[write.edges[0]].edge
        if sums is None:
            raise TypeError(f"{write.name!r} has no sums")
        to = self._scale(write.edges[0], scales).reshape(())
        result = Result(edge.storage.bits, edge.zero_points[0], edge.storage.signed)
        terms = []
        for part in sums.parts:
            stored = [
                self._integers(self._operand(read, values, inner, seen, scales), one, scales)
                for read, one in zip(part.factors, part.units, strict=False)
            ]
            zero_points = tuple(self.quantizers[one].edge.zero_points[0] for one in part.units)
            single = None
            if len(stored) > 1:
                first, second = (self._scale(one, scales).float().reshape(()) for one in part.units)
                single = first * second / to.float()
            integers = tuple(stored) or (whole[sums.source],)
            terms.append(Term(integers, self._unit(sums, part, scales) / to, part.sign, zero_points, single))
        bias = self._operand(sums.bias, values, inner, seen, scales)
        if bias is not None:
            reals = bias.double().reshape(-1, *[1] * sums.trailing)
            terms.append(Term((torch.ones_like(reals, dtype=torch.long),), reals / to))
        if sums.count > 1:
            steps = scaled_mean(terms[0], sums.count, sums.arithmetic, result)
        else:
            steps = scaled_sum(terms, sums.arithmetic, result)
        if write.activation is None:
            return steps
        ends = FUNCTIONS[write.activation.op.type](
            write.activation.op,
            [torch.tensor([-torch.inf, torch.inf], dtype=torch.float64, device=to.device)],
            write.activation.statics,
        )
        if isinstance(ends, tuple):
            raise TypeError("an activation has one result")
        low, high = torch.round(ends.float() / to.float()).double()
        return steps.clamp(low, high)


def fake_quantized(
    model: Graph,
    plan: Plan,
    *,
    keep: Sequence[str] = (),
    owner: torch.nn.Module | None = None,
    outputs: Sequence[str] = (),
) -> FakeQuantized:
    """Return a module that computes what `planner.evaluate` does, and trains weights and scales.

    Gradients pass straight through the rounding, and scales have those of LSQ. Scales that the plan ties are
    one parameter, so that planning again needs no rescale more.

    Args:
      model: the annotated model that the plan was made of.
      plan: of that model.
      keep: names or globs of values whose scales stay as they are.
      owner: the network that the model was exported from. The weights that it has under the same names are
        trained in it, so that its own checkpoints hold them; on its own device.
      outputs: values to return in the place of the model's outputs. A loss wants the scores in front of a
        softmax: of a probability that the device rounds to 0 the logarithm has no gradient, or a huge one.

    Raises:
      PlanInvalid: a plan of another model.
      InputError: a plan that cannot be trained under; names kernel and row. An owner without any of the
        model's weights.
      UnknownName: an operator that training has no function of; an output inside a kernel.

    Example:
      >>> module = planner.torch.fake_quantized(model, plan)  # doctest: +SKIP
    """
    expect(model, Graph, "a model is the result of load_model or annotate")
    require_plan(plan)
    form = form_of_plan(model, plan.graph)
    check_model(plan, form)
    outputs = (outputs,) if isinstance(outputs, str) else outputs
    module = FakeQuantized(form, plan, training_spec(plan, keep=keep), owner, outputs)
    if owner is not None:
        module.require_owner(owner)
    return module


def _attribute_names(names: Sequence[str]) -> dict[str, str]:
    """A name for each that torch takes as that of a parameter: without dots, and no two alike."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        plain = "p_" + name.replace(".", "_").replace("/", "_")
        while plain in taken:
            plain += "_"
        taken.add(plain)
        found[name] = plain
    return found


def _shared(model: Graph, trained: Sequence[str], owner: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Parameters of a network that are constants of the model, by their name and numbers."""
    known = dict(owner.named_parameters())
    found = {}
    for name in trained:
        parameter, array = known.get(name), model.constants[name].array
        if parameter is None or array is None or tuple(parameter.shape) != array.shape:
            continue
        if np.allclose(parameter.detach().cpu().float().numpy(), array, rtol=1e-6):
            found[name] = parameter
    return found


def _trained(model: Graph, plan: Plan, spec: TrainingSpec) -> Iterator[str]:
    """Float constants at the ports of kernels whose rows let them change."""
    frozen = {item.edge.value for item in spec.constants if not item.trained}
    ports = (port.value for kernel in plan.kernels_in_order for port in kernel.inputs if port.value)
    for name in dict.fromkeys(ports):
        constant = model.constants.get(name)
        if constant is not None and constant.array is not None and name not in frozen:
            yield name


def _read_constants(steps: Sequence[Step], model: Graph) -> dict[str, None]:
    reads = [read for step in steps for call in step.calls for read in call.reads if read is not None]
    return {read.name: None for read in reads if read.name in model.constants}

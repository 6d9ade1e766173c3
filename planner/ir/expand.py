"""Expand: the flat form of a model, every body of a call, loop or branch in its place.

A body's kernels and values are named by path (`w/body`). A call's body reads the caller's values as if it
stood there; at the borders of loops and branches stand ops that move data (`structure.BORDERS`). Constants of
a function are there once for all its places. Source: docs/specification.md, section 5; tests/cases, cases 40
and 41.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, Literal

from planner.errors import Conflict, InputError, ModelError
from planner.ir.graph import Facts, Graph, Op, Region, Value
from planner.ir.placing import (
    Flat,
    Place,
    all_named,
    kernel_name,
    named,
    new_value,
    observe,
    op_name,
    path_of,
    prefixed,
)
from planner.ir.structure import BEGIN, END, JOIN, Branches, Call, Loop, Scope, functions_of
from planner.ir.topology import topological
from planner.ir.types.qtypes import Calibrated
from planner.ir.types.ranges import hull_of_observed
from planner.ir.validity import validate

BRANCHES: Final = ("then", "else")
MOST_STEPS: Final = 1 << 20


def expand(graph: Graph) -> Graph:
    """Put the bodies of all calls, loops and branches in place; the same graph where there is none.

    Raises:
      InputError: no graph, which a caller's mistake may hand over.
      Conflict: a function that runs itself.
      ModelError: a graph that breaks a rule of validity, or grows beyond `MOST_STEPS` kernels.
    """
    if not isinstance(graph, Graph):
        raise InputError(f"a model is the result of load_model or annotate, not a {type(graph).__name__}")
    if not graph.functions:
        return graph
    # Counted first: twenty functions that each call the next twice are a million kernels.
    if _size(graph, graph.functions, {}, ()) > MOST_STEPS:
        raise ModelError(
            f"model {graph.name!r} has more than {MOST_STEPS:,} kernels with all bodies in place",
            hint="functions that call functions multiply: call fewer",
        )
    flat = Flat(graph, any(part.regions for part in (graph, *graph.functions.values())))
    flat.names.update(step.name for step in (*graph.steps(), *graph.all_ops()))
    _place(flat, Place(graph, "", "", 1, {name: name for name in graph.values}))
    for name, value in graph.values.items():
        flat.values.setdefault(name, value)
    ordered = {name: flat.values[name] for name in (*graph.values, *flat.values)}
    values = {name: _seen(value, flat.observed.get(name, ())) for name, value in ordered.items()}
    is_region = flat.in_regions
    return validate(
        replace(
            graph,
            values=values,
            constants=flat.constants,
            regions=tuple(step for step in flat.steps if isinstance(step, Region)) if is_region else (),
            ops=() if is_region else tuple(step for step in flat.steps if isinstance(step, Op)),
            functions={},
            scopes=flat.scopes,
        )
    )


def _size(graph: Graph, functions: Mapping[str, Graph], known: dict[str, int], chain: tuple[str, ...]) -> int:
    """The number of kernels with all bodies in place, counted without placing them."""
    total = 0
    for step in graph.steps():
        total += 1
        for name in functions_of(step.structure):
            _refuse_recursion((*chain, name))
            # Memoised per function, or the count itself would take as many steps as there are kernels.
            if name not in known:
                known[name] = _size(functions[name], functions, known, (*chain, name))
            total += known[name]
    return total


def _refuse_recursion(chain: tuple[str, ...]) -> None:
    """Refuse functions, each of which runs the next, that come round."""
    last = chain[-1]
    if last in chain[:-1]:
        told = " -> ".join(chain[chain.index(last) :])
        raise Conflict(
            f"function {last!r} runs itself: {told}",
            facts=tuple(f"function {a!r} runs {b!r}" for a, b in pairwise(chain)),
            hint="unroll the recursion, or write it as a loop",
        )


def _place(flat: Flat, place: Place) -> None:
    graph = place.graph
    for name, constant in graph.constants.items():
        flat.constants.setdefault(named(flat, place, name), constant)
    for path, scope in graph.scopes.items():
        parent = prefixed(place.path, scope.parent) if scope.parent else place.scope
        flat.scopes[prefixed(place.path, path)] = replace(scope, parent=parent, trips=place.trips)
    steps: tuple[Op | Region, ...] = (*topological(graph.regions), *topological(graph.ops))
    for step in steps:
        here = replace(place, scope=prefixed(place.path, step.scope)) if step.scope else place
        match step.structure:
            case None:
                _copy(flat, here, step)
            case Call() as call:
                _call(flat, here, step, call)
            case Loop() as loop:
                _loop(flat, here, step, loop)
            case Branches() as branches:
                _branches(flat, here, step, branches)


def _copy(flat: Flat, place: Place, step: Op | Region) -> None:
    changed: dict[str, Any] = {
        "name": kernel_name(flat, place, step.name) if place.path else step.name,
        "inputs": all_named(flat, place, step.inputs),
        "outputs": all_named(flat, place, step.outputs),
        "scope": place.scope,
    }
    if isinstance(step, Op):
        flat.steps.append(replace(step, captures=all_named(flat, place, step.captures), **changed))
        return
    ops = tuple(
        replace(
            op,
            name=op_name(flat, place, op.name, step.name, changed["name"]),
            inputs=all_named(flat, place, op.inputs),
            outputs=all_named(flat, place, op.outputs),
            captures=all_named(flat, place, op.captures),
            scope=changed["scope"],
        )
        for op in step.ops
    )
    flat.steps.append(replace(step, ops=ops, trip_count=step.trip_count * place.trips, **changed))


def _call(flat: Flat, place: Place, step: Op | Region, call: Call) -> None:
    path = path_of(flat, place, step.name)
    _scope(flat, place, step, path, "call", function=call.function, trips=place.trips)
    inner = _enter(flat, place, call.function, path, place.trips)
    for i, (own, given) in enumerate(zip(inner.graph.inputs, step.inputs, strict=True)):
        outer = named(flat, place, given)
        facts = _facts(step, "in", i)
        # A call is no border: its operand is the caller's value. Only where facts tell the two apart, a
        # kernel must stand between them, at which a rescale can be placed.
        if facts or (_hard(inner.graph.values[own].facts) and outer not in flat.constants):
            _begin(flat, place, inner, (i, own, outer), facts=facts)
        else:
            inner.flat_names[own] = outer
            observe(flat, outer, inner.graph.values[own].facts)
    kept = [_is_one(flat, place, inner, i, step) for i in range(len(step.outputs))]
    _place(flat, inner)
    for i, (own, result) in enumerate(zip(inner.graph.outputs, step.outputs, strict=True)):
        if result and not kept[i]:
            _end(flat, place, inner, (i, own, result), facts=_facts(step, "out", i))


def _is_one(flat: Flat, place: Place, inner: Place, i: int, step: Op | Region) -> bool:
    """Let a result of a call be the body's own value, where nothing tells them apart."""
    own, result = inner.graph.outputs[i], step.outputs[i]
    written = own not in inner.graph.constants and own not in inner.graph.inputs
    if not result or not written or own in inner.flat_names or _facts(step, "out", i):
        return False
    theirs, ours = inner.graph.values[own].facts, place.graph.values[result].facts
    if _hard(theirs) and _hard(ours) and set(_hard(theirs)) != set(_hard(ours)):
        return False
    name = inner.flat_names[own] = named(flat, place, result)
    value = flat.values[name]
    flat.values[name] = replace(value, facts=tuple(dict.fromkeys((*value.facts, *_hard(theirs)))))
    observe(flat, name, theirs)
    return True


def _loop(flat: Flat, place: Place, step: Op | Region, loop: Loop) -> None:
    path = path_of(flat, place, step.name)
    trips = place.trips * loop.trip_count
    _scope(flat, place, step, path, "loop", function=loop.body, trips=trips)
    inner = _enter(flat, place, loop.body, path, trips)
    handed = {read for read, _ in loop.carried}
    for i, (own, given) in enumerate(zip(inner.graph.inputs, step.inputs, strict=True)):
        outer = named(flat, place, given)
        # A constant is the same in every trip unless the loop carries or slices it; then no border is needed.
        if outer in flat.constants and i not in handed and i not in loop.varying:
            inner.flat_names[own] = outer
        else:
            _begin(
                flat,
                place,
                inner,
                (i, own, outer),
                carried=i if i in handed else -1,
                facts=_facts(step, "in", i),
            )
    _place(flat, inner)
    source = {written: read for read, written in loop.carried}
    for i, (own, result) in enumerate(zip(inner.graph.outputs, step.outputs, strict=True)):
        carried = source.get(i, -1)
        _end(flat, place, inner, (i, own, result), carried=carried, facts=_facts(step, "out", i))


def _branches(flat: Flat, place: Place, step: Op | Region, branches: Branches) -> None:
    given: list[list[str]] = []
    for n, function in enumerate(branches.bodies):
        label = BRANCHES[n] if len(branches.bodies) <= len(BRANCHES) else f"case{n}"
        path = path_of(flat, place, f"{step.name}/{label}")
        _scope(flat, place, step, path, "branch", function=function, index=n, trips=place.trips)
        inner = _enter(flat, place, function, path, place.trips)
        for i, (own, name) in enumerate(zip(inner.graph.inputs, step.inputs[1:], strict=True)):
            outer = named(flat, place, name)
            if outer in flat.constants:
                inner.flat_names[own] = outer
            else:
                _begin(flat, place, inner, (i + 1, own, outer), facts=_facts(step, "in", i + 1))
        _place(flat, inner)
        given.append([named(flat, inner, own) for own in inner.graph.outputs])
    condition = named(flat, place, step.inputs[0])
    for i, result in enumerate(step.outputs):
        if result:
            operands = (condition, *(names[i] for names in given))
            name = kernel_name(flat, place, f"{step.name}/join:{result}")
            op = Op(
                name,
                JOIN,
                operands,
                (named(flat, place, result),),
                _marks(prefixed(place.path, step.name), i),
                (),
                None,
                place.scope,
            )
            _border(flat, op, place.trips, ((), _facts(step, "out", i)))


def _enter(flat: Flat, place: Place, function: str, path: str, trips: int) -> Place:
    """A body about to be placed."""
    chain = (*place.chain, function)
    return Place(flat.source.functions[function], path, path, trips, {}, chain)


def _scope(
    flat: Flat,
    place: Place,
    step: Op | Region,
    path: str,
    kind: Literal["call", "loop", "branch"],
    *,
    function: str,
    index: int = 0,
    trips: int = 1,
) -> None:
    flat.scopes[path] = Scope(
        kind=kind,
        owner=prefixed(place.path, step.name),
        type=step.type if isinstance(step, Op) else kind,
        function=function,
        operands=all_named(flat, place, step.inputs),
        results=all_named(flat, place, step.outputs),
        attributes=step.attributes,
        parent=place.scope,
        index=index,
        trips=trips,
    )


def _begin(
    flat: Flat,
    place: Place,
    inner: Place,
    what: tuple[int, str, str],
    *,
    carried: int = -1,
    facts: Facts = (),
) -> None:
    index, own, outer = what
    arg = named(flat, inner, own)
    name = kernel_name(flat, inner, f"begin:{own}")
    op = Op(name, BEGIN, (outer,), (arg,), _marks(inner.path, index, carried), (), None, place.scope)
    _border(flat, op, place.trips, (facts, ()))


def _end(
    flat: Flat,
    place: Place,
    inner: Place,
    what: tuple[int, str, str],
    *,
    carried: int = -1,
    facts: Facts = (),
) -> None:
    index, own, result = what
    source = named(flat, inner, own)
    name = kernel_name(flat, inner, f"end:{own}")
    if result:
        target = named(flat, place, result)
    else:
        target = new_value(flat, f"{inner.path}/end:{own}", replace(inner.graph.values[own], facts=()))
    marks = _marks(inner.path, index, carried)
    op = Op(name, END, (source,), (target,), marks, (), None, inner.scope)
    _border(flat, op, inner.trips, ((), facts))


def _marks(body: str, index: int, carried: int = -1) -> Mapping[str, Any]:
    """Attributes of a border op: the body, the index of the operand or result, the carried input or -1."""
    return {"body": body, "index": index, "carried": carried}


def _border(flat: Flat, op: Op, trips: int, facts: tuple[Facts, Facts]) -> None:
    """Append a border op, as a kernel of its own where the model is made of kernels."""
    if not flat.in_regions and not any(facts):
        flat.steps.append(op)
        return
    skipped = 1 if op.type == JOIN else 0
    inputs = tuple(name for name in op.inputs[skipped:] if name and flat.values[name].is_float)
    outputs = tuple(name for name in op.outputs if flat.values[name].is_float)
    flat.steps.append(
        Region(
            name=op.name,
            kernel=op.type,
            inputs=inputs,
            outputs=outputs,
            ops=(op,),
            input_facts=(facts[0],) * len(inputs) if facts[0] else (),
            output_facts=(facts[1],) * len(outputs) if facts[1] else (),
            trip_count=trips,
            scope=op.scope,
        )
    )


def _facts(step: Op | Region, side: str, index: int) -> Facts:
    """Constraints on a port of the kernel that runs a body."""
    if isinstance(step, Op):
        return ()
    own = step.input_facts if side == "in" else step.output_facts
    return own[index] if own else ()


def _hard(facts: Facts) -> Facts:
    return tuple(fact for fact in facts if not isinstance(fact, Calibrated))


def _seen(value: Value, observed: Sequence[Calibrated]) -> Value:
    """A value with the hull of the ranges that bodies observed of it, unless it has one of its own."""
    if not observed or any(isinstance(fact, Calibrated) for fact in value.facts):
        return value
    return replace(value, facts=(*value.facts, hull_of_observed(observed)))

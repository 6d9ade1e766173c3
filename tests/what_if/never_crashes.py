"""Every what-if and accuracy verb on a plan, called in every way: results, or errors of ours."""

import planner
from planner.errors import PlannerError
from planner.target.load import target_ids
from tests.what_if.models import TYPES, seeded
from tests.what_if.random_models import random_model, random_samples


class Crash(AssertionError):
    """Something other than a result or an error of ours, and how to see it again."""


def attempted(what, job, *arguments, **more):
    """The result, or None where an error of ours says why there is none."""
    try:
        return job(*arguments, **more)
    except PlannerError:
        return None
    except Exception as error:
        raise Crash(f"{what}: {type(error).__name__}: {error}") from error


def prepared(seed, size):
    """A model with ranges, its samples; None where it cannot be read or run."""
    samples = random_samples(seed)
    model = attempted(f"load {seed}", planner.load_model, random_model(seed, size))
    stats = None if model is None else attempted(f"calibrate {seed}", planner.calibrate, model, samples)
    return None if stats is None else (planner.annotate(model, stats=stats), samples)


def walk(seed, size, target):
    """Make a plan and do everything with it; the number of things done."""
    ready = prepared(seed, size)
    if ready is None:
        return 0
    model, samples = ready
    where = f"random_model({seed}, {size}) on {target}"
    plan = attempted(f"plan {where}", planner.plan, model, target)
    if plan is None:
        return 0
    return verbs(plan, model, samples, seed, where)


def verbs(plan, model, samples, seed, where):
    """Every verb on a plan; the number of calls."""
    random, done, target = seeded(seed), 0, plan.whole_target

    def call(what, job, *arguments, **more):
        nonlocal done
        done += 1
        return attempted(f"{what}, {where}", job, *arguments, **more)

    for address in addresses(plan):
        call(f"explain {address!r}", planner.explain, plan, address)
    for rescale in plan.rescales[:3]:
        call(f"suggest {rescale.id!r}", planner.suggest, plan, rescale.id)
        call(f"pareto {rescale.id!r}", planner.pareto, plan, rescale.id)
    read = planner.plan_from_json(plan.to_json())
    kernels = list(plan.kernels)
    restored = plan
    for kernel in random.sample(kernels, len(kernels)):
        again = call(f"restore {kernel!r}", planner.restore, restored, kernel)
        if again is None:
            continue
        planner.check(again, again.annotated, target)
        assert again.kernels[kernel].row is None, f"{kernel} is not in float, {where}"
        call(f"diff {kernel!r}", planner.diff, plan, again)
        call(f"restore {kernel!r} twice", planner.restore, again, kernel)
        restored = again
    kernel = random.choice(kernels)
    call(f"restore {kernel!r} of a file", planner.restore, read, kernel, model=model, target=target)
    for edit in edits_of(plan, random):
        again = call(f"replan {edit}", planner.replan, plan, edit)
        if again is not None:
            planner.check(again, again.annotated, target)
            call("diff", planner.diff, plan, again)
            call("restore an edited one", planner.restore, again, kernel)
    other = random.choice(target_ids())
    for best_effort in (False, True):
        again = call(f"retarget {other}", planner.retarget, plan, other, best_effort=best_effort)
        if again is not None:
            call("diff", planner.diff, plan, again)
    for one in (plan, read, restored):
        found = call("losses", planner.losses, model, one, samples, limit=random.choice((0, 3, 50)))
        if found is not None:
            for remedy in found.remedies[:2]:
                assert remedy.how
    return done


def edits_of(plan, random):
    """One edit of a value, of a port and of a kernel, constants included."""
    ports = [port for one in plan.kernels_in_order for port in (*one.inputs, *one.outputs) if port.value]
    return (
        {"values": {random.choice(list(plan.graph.values)): random.choice(TYPES)}},
        {"ports": {random.choice(ports).address: random.choice(TYPES)}},
        {"kernels": {random.choice(list(plan.kernels)): random.choice(("float", "i8", "i16", "u8"))}},
    )


def check_edits(seed, size, target, count):
    """Plan again with edits; `check` must accept every plan that comes of it. The number of plans."""
    ready = prepared(seed, size)
    where = f"random_model({seed}, {size}) on {target}"
    plan = None if ready is None else attempted(f"plan {where}", planner.plan, ready[0], target)
    if plan is None:
        return 0
    random, done = seeded(seed), 0
    for edit in (edit for _ in range(count) for edit in edits_of(plan, random)):
        again = attempted(f"replan {edit}, {where}", planner.replan, plan, edit)
        if again is not None:
            try:
                planner.check(again, again.annotated, plan.whole_target)
            except PlannerError as error:
                raise Crash(f"check refuses the plan of {edit}, {where}: {error}") from error
            done += 1
    return done


def addresses(plan):
    """Everything that `explain` takes: ports, kernels, values, rescales."""
    ports = [port.address for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
    return [*ports, *plan.kernels, *plan.graph.values, *(rescale.id for rescale in plan.rescales)]

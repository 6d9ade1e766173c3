"""Random models of operators that move data between operators that compute, some of them in float.

As `randommodels`, with pads of all modes and values, masks, joins with constants, bounds, selections, loops
and branches: what ports have to hold there comes from far, and float stands in between.
"""

import numpy as np

from planner.ir.graph import Graph
from tests.awkward.net import BOOL, I64, Net
from tests.plans.randommodels import STEPS, Build, random_model

FLOATING = ("Erf", "Softplus", "Sin", "Exp", "Neg", "Softsign", "Tanh")
MASKED = (0.0, -1.0, -50.0, -np.inf)
MOST = 8


def pad(build: Build) -> None:
    x, (n, c, h, w) = build.pick()
    mode = build.random.choice(("constant", "constant", "constant", "edge", "reflect"))
    if mode == "reflect" and min(h, w) < 2:
        return
    operands = [build.net.ints(0, 0, 1, 0, 0, 0, 0, 1)]
    if mode == "constant" and build.random.random() < 0.8:
        operands.append(scalar(build, (0.0, 0.0, 0.5, -3.0, -np.inf)))
    build.add(build.net.op("Pad", x, *operands, mode=mode), (n, c, h + 1, w + 1))


def scalar(build: Build, numbers: tuple[float, ...]) -> str:
    return build.net.const(np.float32(build.random.choice(numbers)))


def mask(build: Build, x: str, shape: tuple[int, ...]) -> str:
    if build.random.random() < 0.5:
        kept = build.net.rng.random((1, 1, *shape[2:])) < 0.7
        return build.net.const(kept)
    return build.net.op(build.random.choice(("Greater", "Less")), x, scalar(build, (0.0, 0.4)))


def where(build: Build) -> None:
    x, shape = build.pick()
    other, _ = build.random.choice([item for item in build.known if item[1] == shape])
    other = other if build.random.random() < 0.4 else scalar(build, MASKED)
    sides = [x, other] if build.random.random() < 0.5 else [other, x]
    build.add(build.net.op("Where", mask(build, x, shape), *sides), shape)


def bound(build: Build) -> None:
    x, shape = build.pick()
    kind = build.random.choice(("Max", "Min", "Clip", "Clip", "Relu"))
    if kind == "Relu":
        build.add(build.net.op(kind, x), shape)
    elif kind == "Clip":
        low, high = scalar(build, (-1.0, 0.0, 0.2)), scalar(build, (0.5, 1.0, 6.0))
        bounds = build.random.choice(((low,), ("", high), (low, high), (high, low)))
        build.add(build.net.op(kind, x, *bounds), shape)
    else:
        # With a number it is read as Clip or Relu.
        number = scalar(build, (-0.5, 0.0, 0.3, -np.inf if kind == "Max" else np.inf))
        other, _ = build.random.choice([item for item in build.known if item[1] == shape])
        build.add(build.net.op(kind, x, build.random.choice((number, other))), shape)


def join(build: Build) -> None:
    """A Concat that reads a constant, or one value twice."""
    x, (n, c, h, w) = build.pick()
    other = x if build.random.random() < 0.4 else build.net.vector_weights(n, c, h, w)
    if 2 * c <= MOST:
        build.add(
            build.net.op("Concat", *build.random.choice(((x, other), (other, x))), axis=1), (n, 2 * c, h, w)
        )


def select(build: Build) -> None:
    x, (n, c, h, w) = build.pick()
    net, kind = build.net, build.random.choice(("Gather", "Tile", "Expand", "Resize", "ReduceMax", "TopK"))
    if kind == "Gather":
        build.add(net.op(kind, x, net.ints(c - 1), axis=1), (n, 1, h, w))
    elif kind == "Tile" and 2 * c <= MOST:
        build.add(net.op(kind, x, net.ints(1, 2, 1, 1)), (n, 2 * c, h, w))
    elif kind == "Expand" and c == 1:
        build.add(net.op(kind, x, net.ints(n, 3, h, w)), (n, 3, h, w))
    elif kind == "Resize" and h <= MOST:
        scales = net.const(np.asarray([1, 1, 2, 1], np.float32))
        mode = build.random.choice(("nearest", "linear"))
        build.add(net.op(kind, x, "", scales, mode=mode), (n, c, 2 * h, w))
    elif kind == "ReduceMax":
        build.add(net.op(kind, x, axes=[1], keepdims=1), (n, 1, h, w))
    elif kind == "TopK":
        best, _ = net.op(kind, x, net.ints(1), axis=1, out=[net.name("t"), net.name("i")])
        build.add(best, (n, 1, h, w))


def scatter(build: Build) -> None:
    x, shape = build.pick()
    update = build.net.vector_weights(1, 1, 1, 1)
    where_to = build.net.const(np.zeros((1, 1, 1, 1), np.int64))
    build.add(build.net.op("ScatterElements", x, where_to, update, axis=1), shape)


def in_float(build: Build) -> None:
    x, shape = build.pick()
    build.add(build.net.op(build.random.choice(FLOATING), x), shape)


def loop(build: Build) -> None:
    """A state that a body computes, moves, or hands on as it is, for a few trips."""
    x, shape = build.pick()
    body = Net(1000 + len(build.net.nodes))
    body.input(body.name("i"), [], I64)
    go = body.input(body.name("go"), [], BOOL)
    state = body.input(body.name("s"), shape)
    end = state
    for _ in range(build.random.choice((0, 1, 2))):
        kind = build.random.choice(("Tanh", "Relu", "Max", "Neg", "Add"))
        end = body.op(kind, end, *{"Max": [x], "Add": [state]}.get(kind, []))
    if end == state:
        end = body.op("Identity", end)
    body.output(body.op("Identity", go), [], BOOL)
    body.output(end, shape)
    trips = build.net.const(np.asarray(build.random.choice((1, 2, 3)), np.int64))
    build.add(build.net.op("Loop", trips, "", x, body=body.graph("body")), shape)


def branch(build: Build) -> None:
    """One of two bodies by a computed condition; each reads what is outside."""
    x, shape = build.pick()
    condition = build.net.op("Greater", build.net.op("ReduceMax", x, keepdims=0), scalar(build, (0.5, 100.0)))
    bodies = {}
    for number, side in enumerate(("then_branch", "else_branch")):
        body = Net(2000 + 2 * len(build.net.nodes) + number)
        body.output(body.op(build.random.choice(("Identity", "Relu", "Sigmoid", "Neg")), x), shape)
        bodies[side] = body.graph(side)
    build.add(build.net.op("If", condition, **bodies), shape)


KINDS = (*STEPS, *(pad, where, bound, join, select) * 3, scatter, *(in_float,) * 3, loop, branch)


def movement_model(seed: int, steps: int, *, facts: float = 0.15) -> Graph:
    """Make a calibrated model, as `random_model` does."""
    return random_model(seed, steps, facts=facts, kinds=KINDS)

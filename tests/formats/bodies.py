"""Models with loops and branches in ONNX's text form: for the interpreter, and for compiled formats."""

import numpy as np
from onnx import parser

import planner

HEAD = '<ir_version: 8, opset_import: ["" : 16]>'
# A state that grows by what a matrix makes of each slice, from the last to the first.
SCAN = """
g (float[2] s0, float[5,2] xs) => (float[2] sN, float[5,2] ys) <float[2,2] w = {1.0,0.5,-0.5,1.0}> {
  sN, ys = Scan <num_scan_inputs = 1, scan_input_directions = [1],
    body = b (float[2] s, float[2] x) => (float[2] s1, float[2] y) {
      h = MatMul(x, w)  s1 = Add(s, h)  y = Relu(s1) }> (s0, xs) }"""

# Slices along other axes than the first, results from the last to the first, no state.
COLUMNS = """
g (float[2,3] x, float[3,2] z) => (float[2,3] y) {
  y = Scan <num_scan_inputs = 2, scan_input_axes = [1, -2], scan_output_axes = [-1],
    scan_output_directions = [1],
    body = b (float[2] a, float[2] c) => (float[2] r) { r = Mul(a, c) }> (x, z) }"""

# A scan whose body reads a value of the model around it.
CAPTURED = """
g (float[2] s0, float[3,2] xs, float[2] v) => (float[2] sN) <float[2] k = {1.0,-2.0}> {
  u = Mul(v, k)
  sN = Scan <num_scan_inputs = 1,
    body = b (float[2] s, float[2] x) => (float[2] s1) { p = Mul(x, u)  s1 = Add(s, p) }> (s0, xs) }"""

# Stops once the state is large.
UNTIL = """
g (float[3,3] x) => (float[3,3] y)
<int64 most = {6}, bool yes = {1}, float[3,3] w = {1,0,0.5,0,1.1,0,0.2,0,1}, float limit = {3}> {
  y = Loop (most, yes, x) <
    body = b (int64 i, bool go, float[3,3] s) => (bool on, float[3,3] t) {
      t = MatMul(s, w)  top = ReduceMax<keepdims = 0>(t)  on = Less(top, limit) }> }"""

# Only the condition ends it; it may not even start.
WHILE = """
g (float[4] x) => (float[4] y) <float[4] k = {1.5,1.25,1.5,1.75}, float limit = {6}> {
  first = ReduceMax<keepdims = 0>(x)  start = Less(first, limit)
  y = Loop ("", start, x) <
    body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t) {
      t = Add(s, k)  top = ReduceMax<keepdims = 0>(t)  on = Less(top, limit) }> }"""

# The number of trips is a number of the model's input.
TIMES = """
g (float[4] x, int64 n) => (float[4] y) <bool yes = {1}, float[4] k = {0.5,-1,0.25,1}> {
  y = Loop (n, yes, x) <
    body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t) {
      on = Identity(go)  t = Add(s, k) }> }"""

# What each trip saw, and a count beside it.
COLLECTED = """
g (float[4] x) => (float[4] y, float[3,4] seen, int64[3] counts)
<int64 most = {3}, bool yes = {1}, float[4] k = {0.5,-1,0.25,1}> {
  y, seen, counts = Loop (most, yes, x) <
    body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t, float[4] out, int64 j) {
      on = Identity(go)  t = Add(s, k)  out = Relu(t)  j = Add(i, i) }> }"""

# The branches' results have one scale; which is taken depends on the data.
BRANCH = """
g (float[4] x) => (float[4] y) <float[4] k = {1,2,3,4}, float zero = {0}> {
  s = ReduceSum<keepdims = 0>(x)  c = Greater(s, zero)  a = Add(x, k)
  r = If (c) <then_branch = t () => (float[4] p) { p = Mul(a, k) },
              else_branch = e () => (float[4] q) { q = Sub(a, x) }>
  y = Relu(r) }"""

# A branch that hands on what it captures, another that gives a constant, and two results.
PASSES = """
g (float[4] x) => (float[4] y, float[4] z) <float[4] k = {1,2,3,4}, float zero = {0}> {
  s = ReduceSum<keepdims = 0>(x)  c = Greater(s, zero)  a = Add(x, k)
  y, z = If (c) <then_branch = t () => (float[4] p, float[4] p2) { p = Identity(a)  p2 = Mul(x, k) },
                 else_branch = e () => (float[4] q, float[4] q2) { q = Identity(k)  q2 = Relu(x) }> }"""

# The branch that is not taken could not be: the condition is a matter of shapes.
SHAPES = """
g (float[1,4] x) => (float[4] y) <int64 one = {1}, int64[1] zero = {0}, float[4] k = {1,2,3,4}> {
  n = Shape(x)  first = Gather(n, zero)  c = Equal(first, one)
  r = If (c) <then_branch = t () => (float[d] p) { p = Squeeze(x, zero) },
              else_branch = e () => (float[f,4] q) { q = Identity(x) }>
  y = Add(r, k) }"""

# What a branch in a loop takes changes from trip to trip.
BOTH = """
g (float[4] x) => (float[4] y)
<int64 most = {4}, bool yes = {1}, int64 two = {2}, float[4] k = {0.5,-1,0.25,1}> {
  y = Loop (most, yes, x) <body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t) {
    on = Identity(go)  early = Less(i, two)
    t = If (early) <then_branch = t1 () => (float[4] p) { p = Add(s, k) },
                    else_branch = e1 () => (float[4] q) { q = Mul(s, k) }> }> }"""

# A loop in a branch, and a loop in a loop.
DEEP = """
g (float[4] x) => (float[4] y)
<int64 two = {2}, bool yes = {1}, float zero = {0}, float[4] k = {0.5,-1,0.25,1}> {
  s = ReduceSum<keepdims = 0>(x)  c = Greater(s, zero)
  y = If (c) <
    then_branch = t () => (float[4] p) {
      p = Loop (two, yes, x) <body = b (int64 i, bool go, float[4] a) => (bool on, float[4] d) {
        on = Identity(go)
        d = Loop (two, yes, a) <body = b2 (int64 i2, bool go2, float[4] a2) => (bool on2, float[4] d2) {
          on2 = Identity(go2)  d2 = Add(a2, k) }> }> },
    else_branch = e () => (float[4] q) { q = Mul(x, k) }> }"""

# As many slices as there are trips before the condition fails.
UNKNOWN = """
g (float[3,3] x) => (float[3,3] y, float[n,3,3] seen)
<int64 most = {6}, bool yes = {1}, float[3,3] w = {1,0,0.5,0,1.1,0,0.2,0,1}, float limit = {9}> {
  y, seen = Loop (most, yes, x) <
    body = b (int64 i, bool go, float[3,3] s) => (bool on, float[3,3] t, float[3,3] out) {
      t = MatMul(s, w)  top = ReduceMax<keepdims = 0>(t)  on = Less(top, limit)  out = Relu(t) }> }"""

# A state that gets longer from trip to trip.
GROWING = """
g (float[2] x) => (float[n] y) <int64 most = {3}, bool yes = {1}> {
  y = Loop (most, yes, x) <
    body = b (int64 i, bool go, float[a] s) => (bool on, float[b] t) {
      on = Identity(go)  t = Concat<axis = 0>(s, x) }> }"""

# Two branches that differ in how much they give.
UNEQUAL = """
g (float[4] x) => (float[n] y) <float zero = {0}> {
  s = ReduceSum<keepdims = 0>(x)  c = Greater(s, zero)
  y = If (c) <then_branch = t () => (float[4] p) { p = Relu(x) },
              else_branch = e () => (float[8] q) { q = Concat<axis = 0>(x, x) }> }"""

REFUSED = {
    "unknown": (
        UNKNOWN,
        "Loop_0 (Loop): 'seen' has a slice of every trip, and their number is known only at run time; ",
        "accepts a constant number of trips and no other end",
    ),
    "growing": (
        GROWING,
        "Loop_0 (Loop): a trip takes and leaves 'Loop_0/s' as ",
        "accepts one shape",
    ),
    "unequal": (
        UNEQUAL,
        "If_2 (If): its branches give 'y' as ",
        "accepts one shape",
    ),
}
"""What has no place in a program of fixed sizes, with words of the refusal."""

MODELS = {
    "branch": (BRANCH, {"x": (4,)}),
    "branch_in_a_loop": (BOTH, {"x": (4,)}),
    "captured": (CAPTURED, {"s0": (2,), "xs": (3, 2), "v": (2,)}),
    "collected": (COLLECTED, {"x": (4,)}),
    "columns": (COLUMNS, {"x": (2, 3), "z": (3, 2)}),
    "deep": (DEEP, {"x": (4,)}),
    "passes": (PASSES, {"x": (4,)}),
    "scan": (SCAN, {"s0": (2,), "xs": (5, 2)}),
    "shapes": (SHAPES, {"x": (1, 4)}),
    "times": (TIMES, {"x": (4,), "n": None}),
    "until": (UNTIL, {"x": (3, 3)}),
    "while": (WHILE, {"x": (4,)}),
}


def written(text):
    """The bytes of a file."""
    return parser.parse_model(f"{HEAD} {text}").SerializeToString()


def loaded(text):
    """The model as it is read."""
    return planner.load_model(written(text))


def prepared(text, shapes, count=12):
    """The model with ranges, and samples; an input of shape None is a number of trips."""
    model = loaded(text)
    random = np.random.default_rng(7)
    samples = [
        {
            key: np.asarray(random.integers(0, 5)) if shape is None else random.normal(size=shape).astype("f")
            for key, shape in shapes.items()
        }
        for _ in range(count)
    ]
    return planner.annotate(model, stats=planner.calibrate(model, samples)), samples

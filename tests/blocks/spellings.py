"""Norms and activations as exporters write them: ops of one block each, between two products.

Sources: graphs of torch.onnx, tf2onnx, jax2onnx and paddle2onnx, and of the models of docs/results/blocks.md.
"""

import numpy as np
import onnx.parser
import onnx.shape_inference
from onnx import numpy_helper

SHAPE = (2, 6, 16)
CONSTANTS = """
    float half = {0.5}, float one = {1.0}, float two = {2.0}, float three = {3.0}, float zero = {0.0},
    float six = {6.0}, float sixth = {0.16666667}, float root2 = {1.4142135}, float eps = {0.00001},
    float rsqrt2 = {0.70710677}, float nrsqrt2 = {-0.70710677}, float cube = {0.044715},
    float rho = {0.7978846}, float rho2 = {1.5957692}, float rho3 = {0.035677407}, float alpha = {1.702},
    float nhalf = {-0.5}, float n = {0.0625}, int64[1] last = {-1}, int64[1] keep = {-1}
"""

LAYER_NORM = {
    "torch": """m = ReduceMean<axes=[-1]>(x)
        d = Sub(x, m)
        p = Pow(d, two)
        v = ReduceMean<axes=[-1]>(p)
        e = Add(v, eps)
        s = Sqrt(e)
        q = Div(d, s)
        g = Mul(q, w)
        y = Add(g, b)""",
    "two_subtractions": """m = ReduceMean<axes=[-1]>(x)
        d = Sub(x, m)
        d2 = Sub(x, m)
        p = Mul(d2, d2)
        v = ReduceMean<axes=[-1]>(p)
        e = Add(eps, v)
        s = Sqrt(e)
        r = Reciprocal(s)
        q = Mul(d, r)
        g = Mul(w, q)
        y = Add(b, g)""",
    "gain_first": """m = ReduceMean<axes=[2]>(x)
        d = Sub(x, m)
        p = Mul(d, d)
        v = ReduceMean<axes=[2]>(p)
        e = Add(v, eps)
        s = Pow(e, nhalf)
        f = Mul(s, w)
        g = Mul(d, f)
        y = Add(g, b)""",
    "flax": """t = ReduceSum<keepdims=0>(x, last)
        sq = Mul(x, x)
        t2 = ReduceSum<keepdims=0>(sq, last)
        m = Mul(t, n)
        m2 = Mul(t2, n)
        mm = Mul(m, m)
        c = Sub(m2, mm)
        v = Max(zero, c)
        vu = Unsqueeze(v, keep)
        mu = Unsqueeze(m, keep)
        e = Add(vu, eps)
        s = Sqrt(e)
        r = Reciprocal(s)
        f = Mul(r, w)
        d = Sub(x, mu)
        g = Mul(d, f)
        y = Add(g, b)""",
    "keras": """m = ReduceMean<axes=[-1]>(x)
        d = Sub(x, m)
        p = Mul(d, d)
        v = ReduceMean<axes=[-1]>(p)
        e = Add(v, eps)
        s = Sqrt(e)
        r = Reciprocal(s)
        f = Mul(r, w)
        l = Mul(x, f)
        o = Mul(m, f)
        k = Sub(b, o)
        y = Add(l, k)""",
    "no_offset": """m = ReduceMean<axes=[-1]>(x)
        d = Sub(x, m)
        p = Pow(d, two)
        v = ReduceMean<axes=[-1]>(p)
        e = Add(v, eps)
        s = Sqrt(e)
        q = Div(d, s)
        y = Mul(q, w)""",
}
NO_GAIN = """m = ReduceMean<axes=[-1]>(x)
    d = Sub(x, m)
    p = Pow(d, two)
    v = ReduceMean<axes=[-1]>(p)
    e = Add(v, eps)
    s = Sqrt(e)
    y = Div(d, s)"""
RMS_NORM = {
    "torch": """p = Pow(x, two)
        v = ReduceMean<axes=[-1]>(p)
        e = Add(v, eps)
        s = Sqrt(e)
        r = Reciprocal(s)
        q = Mul(x, r)
        y = Mul(w, q)""",
    "quotient": """p = Mul(x, x)
        v = ReduceMean<axes=[-1]>(p)
        e = Add(v, eps)
        s = Sqrt(e)
        r = Div(one, s)
        q = Mul(x, r)
        y = Mul(q, w)""",
    "divided": """p = Mul(x, x)
        v = ReduceMean<axes=[-1]>(p)
        e = Add(v, eps)
        s = Pow(e, half)
        q = Div(x, s)
        y = Mul(q, w)""",
    "sum": """p = Mul(x, x)
        t = ReduceSum(p, last)
        v = Mul(t, n)
        e = Add(v, eps)
        s = Sqrt(e)
        r = Reciprocal(s)
        f = Mul(r, w)
        y = Mul(x, f)""",
}
_ERF = "a = Div(x, root2)\n c = Erf(a)\n u = Add(c, one)\n"
_TANH = """x2 = Mul(x, x)
    x3 = Mul(x, x2)
    k = Mul(cube, x3)
    i = Add(x, k)
    a = Mul(rho, i)
    c = Tanh(a)
    u = Add(one, c)
"""
GELU = {
    "torch": _ERF + "g = Mul(x, u)\n y = Mul(g, half)",
    "half_first": _ERF + "h = Mul(x, half)\n y = Mul(h, u)",
    "half_last": _ERF + "h = Mul(half, u)\n y = Mul(x, h)",
    "over_two": _ERF + "g = Mul(u, x)\n y = Div(g, two)",
    "paddle": "a = Mul(x, rsqrt2)\n c = Erf(a)\n u = Add(one, c)\n g = Mul(u, x)\n y = Mul(half, g)",
    "normal_distribution": """a = Mul(x, rsqrt2)
        c = Erf(a)
        h = Mul(c, half)
        u = Add(h, half)
        y = Mul(x, u)""",
    "complement": "a = Mul(x, nrsqrt2)\n c = Erf(a)\n u = Sub(one, c)\n h = Mul(half, x)\n y = Mul(h, u)",
}
TANH_GELU = {
    "flax": """k = Mul(cube, x)
        k2 = Mul(x, k)
        k3 = Mul(x, k2)
        i = Add(x, k3)
        a = Mul(rho, i)
        c = Tanh(a)
        u = Add(one, c)
        h = Mul(half, u)
        y = Mul(x, h)""",
    "torch": """x3 = Pow(x, three)
        k = Mul(x3, cube)
        i = Add(x, k)
        a = Mul(i, rho)
        c = Tanh(a)
        u = Add(c, one)
        h = Mul(x, half)
        y = Mul(h, u)""",
    "squared": """x2 = Mul(x, x)
        k = Mul(x2, cube)
        j = Add(k, one)
        i = Mul(x, j)
        a = Mul(i, rho)
        c = Tanh(a)
        u = Add(c, one)
        h = Mul(x, half)
        y = Mul(h, u)""",
    "fast": """x2 = Mul(x, x)
        k = Mul(x2, rho3)
        j = Add(k, rho)
        a = Mul(x, j)
        c = Tanh(a)
        u = Add(c, one)
        g = Mul(x, u)
        y = Mul(g, half)""",
    "sigmoid": """x3 = Pow(x, three)
        k = Mul(x3, cube)
        i = Add(x, k)
        a = Mul(i, rho2)
        c = Sigmoid(a)
        y = Mul(x, c)""",
    "half_last": _TANH + "h = Mul(half, u)\n y = Mul(h, x)",
}
QUICK_GELU = {
    "clip": "a = Mul(x, alpha)\n c = Sigmoid(a)\n y = Mul(x, c)",
    "other_order": "a = Mul(alpha, x)\n c = Sigmoid(a)\n y = Mul(c, x)",
}
SWISH = {
    "torch": "c = Sigmoid(x)\n y = Mul(x, c)",
    "paddle": "a = Mul(x, one)\n c = Sigmoid(a)\n y = Mul(c, x)",
    "quotient": "a = Neg(x)\n c = Exp(a)\n u = Add(c, one)\n y = Div(x, u)",
}
HARD_SWISH = {
    "hard_sigmoid": "c = HardSigmoid<alpha=0.16666667, beta=0.5>(x)\n y = Mul(x, c)",
    "paddle": "a = Add(x, three)\n c = Clip(a, zero, six)\n g = Mul(x, c)\n y = Div(g, six)",
    "sixth": "a = Add(three, x)\n c = Clip(a, zero, six)\n h = Mul(c, sixth)\n y = Mul(x, h)",
    "relu6": "a = Add(x, three)\n r = Relu(a)\n c = Min(r, six)\n h = Div(c, six)\n y = Mul(h, x)",
    "unit": "h = Mul(x, sixth)\n a = Add(h, half)\n c = Clip(a, zero, one)\n y = Mul(x, c)",
}
SOFTMAX = {
    "jax": """m = ReduceMax<axes=[-1]>(x)
        d = Sub(x, m)
        p = Exp(d)
        t = ReduceSum(p, last)
        y = Div(p, t)""",
    "reciprocal": "p = Exp(x)\n t = ReduceSum(p, last)\n r = Reciprocal(t)\n y = Mul(p, r)",
    "unsqueezed": """m = ReduceMax<axes=[-1], keepdims=0>(x)
        mu = Unsqueeze(m, keep)
        d = Sub(x, mu)
        p = Exp(d)
        t = ReduceSum<keepdims=0>(p, last)
        tu = Unsqueeze(t, keep)
        y = Div(p, tu)""",
}
BLOCKS = {
    "LayerNormalization": LAYER_NORM,
    "RMSNormalization": RMS_NORM,
    "Gelu": {**GELU, **{f"tanh_{name}": text for name, text in TANH_GELU.items()}},
    "QuickGelu": QUICK_GELU,
    "Swish": SWISH,
    "HardSwish": HARD_SWISH,
    "Softmax": SOFTMAX,
}
CASES = [(kernel, name) for kernel, spellings in BLOCKS.items() for name in spellings]


def model_of(lines: str, *, opset: int = 17) -> bytes:
    """Make an ONNX file: a product, the lines that read `x` and write `y`, and a product."""
    shape = ",".join(map(str, SHAPE))
    width = SHAPE[-1]
    square = f"float[{width},{width}]"
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
        block (float[{shape}] input) => (float[{shape}] output)
        <{CONSTANTS}, {square} u0, {square} u1, float[{width}] w, float[{width}] b>
        {{ x = MatMul(input, u0)
        {lines}
        output = MatMul(y, u1) }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    drawn = {
        "u0": rng.normal(0, 0.4, (width, width)),
        "u1": rng.normal(0, 0.25, (width, width)),
        "w": rng.uniform(0.5, 1.5, width),
        "b": rng.uniform(-0.3, 0.3, width),
    }
    kept = [one for one in model.graph.initializer if one.name not in drawn]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in drawn.items()
    )
    return model.SerializeToString()


def samples(count: int, seed: int = 1) -> list[dict[str, np.ndarray]]:
    """Make inputs of the models."""
    rng = np.random.default_rng(seed)
    return [{"input": rng.normal(0, 1, SHAPE).astype(np.float32)} for _ in range(count)]

"""From a JAX function to a quantized ONNX file: lowered to StableHLO, planned, exported.

Usage: `python examples/jax_model.py lower MODEL.mlir` where JAX is installed (it trains a small convolutional
network, channels last, on the shipped digits, and writes its StableHLO); `python examples/jax_model.py plan
MODEL.mlir [OUT.onnx]` where the planner is; neither needs the other.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

DIGITS = Path(__file__).resolve().parent / "digits"
TRAINED, STEPS, RATE = 350, 120, 0.01
"""How many of the labelled images are trained on (the others judge), for how many steps, how fast."""


def images(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images float32 `(n, 8, 8, 1)` of a shipped file, and their labels, -1 where it has none."""
    with np.load(DIGITS / name) as archive:
        pixels = archive["image"].transpose(0, 2, 3, 1)
        return pixels, archive.get("label", np.full(len(pixels), -1))


def lower(path: str) -> None:
    """Train the network and write it as StableHLO in generic form, which the planner reads by itself."""
    import jax
    from jax import lax, nn
    from jax import numpy as jnp

    def network(weights: Any, x: Any) -> Any:
        for w, b in weights[:2]:
            layout = ("NHWC", "HWIO", "NHWC")
            x = nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout) + b)
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        w, b = weights[2]
        return x.reshape(x.shape[0], -1) @ w + b

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return -jnp.mean(nn.log_softmax(network(weights, x))[jnp.arange(y.shape[0]), y])

    @jax.jit
    def step(weights: Any, moments: Any, x: Any, y: Any) -> Any:
        grads = jax.grad(loss)(weights, x, y)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
        return jax.tree.map(lambda w, m: w - RATE * m, weights, moments), moments

    random = np.random.default_rng(0)
    shapes = [(3, 3, 1, 8), (3, 3, 8, 16), (64, 10)]
    weights = [
        (
            jnp.array(random.normal(0, (2 / np.prod(shape[:-1])) ** 0.5, shape), "float32"),
            jnp.zeros(shape[-1]),
        )
        for shape in shapes
    ]
    moments = jax.tree.map(jnp.zeros_like, weights)
    x, y = images("test.npz")
    for _ in range(STEPS):
        weights, moments = step(weights, moments, x[:TRAINED], y[:TRAINED])
    one = jax.ShapeDtypeStruct((1, 8, 8, 1), "float32")
    found = jax.jit(lambda image: network(weights, image)).lower(one)
    module = found.compiler_ir("stablehlo")
    Path(path).write_text(module.operation.get_asm(print_generic_op_form=True), encoding="utf-8")
    right = np.argmax(network(weights, x[TRAINED:]), axis=-1) == y[TRAINED:]
    print(f"trained in JAX: {100 * np.mean(right):.1f} % of {right.size} images right")


def plan(path: str, out: str) -> None:
    """Read the program, calibrate it, plan it for onnxruntime, write and judge the file."""
    import onnxruntime

    import planner

    model = planner.load_model(path)
    (port,) = model.inputs
    samples = [{port: image[None]} for image in images("calibration.npz")[0]]
    stats = planner.calibrate(model, samples)
    ready = planner.annotate(model, stats=stats)
    found = planner.plan(ready, "onnxruntime-cpu")
    data = planner.export(ready, found, "onnx-qdq")
    Path(out).write_bytes(data)
    for kernel in found.kernels_in_order:
        print(f"{kernel.kernel}: reads {kernel.inputs[0].type}, gives {kernel.outputs[0].type}")
    session = onnxruntime.InferenceSession(data)
    x, y = images("test.npz")
    right = [np.argmax(session.run(None, {port: image[None]})[0]) for image in x[TRAINED:]] == y[TRAINED:]
    print(f"planned as int8: {100 * np.mean(right):.1f} % of {right.size} images right")


if __name__ == "__main__":
    verb, model_path, *rest = [*sys.argv[1:], "", ""][:3]
    if verb == "lower" and model_path:
        lower(model_path)
    elif verb == "plan" and model_path:
        plan(model_path, rest[0] or "jax-int8.onnx")
    else:
        sys.exit(__doc__)

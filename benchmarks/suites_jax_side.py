"""Script for the Python of an environment with JAX: five small networks with random weights, as StableHLO.

`suites_jax_side.py FOLDER` writes `NAME.mlir` of each in generic form, weights as constants. Each takes one
float input between 0 and 1.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax, nn
from jax import numpy as jnp

LAYOUT = ("NHWC", "HWIO", "NHWC")
RANDOM = np.random.default_rng(5)


def weights(*shape: int) -> Any:
    """Numbers of a variance that keeps activations in size."""
    return jnp.array(RANDOM.normal(0, (1 / np.prod(shape[:-1])) ** 0.5, shape), "float32")


def conv(x: Any, w: Any, strides: tuple[int, int] = (1, 1), groups: int = 1) -> Any:
    """A convolution, channels last."""
    return lax.conv_general_dilated(
        x, w, strides, "SAME", dimension_numbers=LAYOUT, feature_group_count=groups
    )


def perceptron() -> tuple[Callable[..., Any], tuple[int, ...]]:
    """Three dense layers."""
    w = [weights(32, 64), weights(64, 64), weights(64, 10)]
    return lambda x: nn.relu(nn.relu(x @ w[0]) @ w[1]) @ w[2], (1, 32)


def convnet() -> tuple[Callable[..., Any], tuple[int, ...]]:
    """Two convolutions with pooling, and a dense layer."""
    w = [weights(3, 3, 1, 8), weights(3, 3, 8, 16), weights(64, 10)]

    def run(x: Any) -> Any:
        for kernel in w[:2]:
            x = nn.relu(conv(x, kernel))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return x.reshape(x.shape[0], -1) @ w[2]

    return run, (1, 8, 8, 1)


def residual() -> tuple[Callable[..., Any], tuple[int, ...]]:
    """A block with a sum, a concatenation and a mean over the picture."""
    w = [weights(3, 3, 3, 16), weights(3, 3, 16, 16), weights(1, 1, 16, 8), weights(24, 10)]

    def run(x: Any) -> Any:
        x = nn.relu(conv(x, w[0]))
        x = nn.relu(x + conv(x, w[1]))
        x = jnp.concatenate([x, nn.relu(conv(x, w[2]))], -1)
        return jnp.mean(x, (1, 2)) @ w[3]

    return run, (1, 8, 8, 3)


def separable() -> tuple[Callable[..., Any], tuple[int, ...]]:
    """Depthwise and pointwise convolutions with Relu6."""
    w = [weights(3, 3, 3, 8), weights(3, 3, 1, 8), weights(1, 1, 8, 16), weights(16, 4)]

    def run(x: Any) -> Any:
        x = nn.relu6(conv(x, w[0], (2, 2)))
        x = nn.relu6(conv(x, w[1], groups=8))
        x = nn.relu6(conv(x, w[2]))
        return jnp.mean(x, (1, 2)) @ w[3]

    return run, (1, 16, 16, 3)


def attention() -> tuple[Callable[..., Any], tuple[int, ...]]:
    """A head of attention, and a dense layer with a tanh."""
    w = [weights(16, 16) for _ in range(4)]

    def run(x: Any) -> Any:
        q, k, v = (x @ kernel for kernel in w[:3])
        scores = nn.softmax(q @ jnp.swapaxes(k, -1, -2) / 4.0, axis=-1)
        return jnp.tanh(scores @ v + x) @ w[3]

    return run, (1, 12, 16)


NETWORKS = (perceptron, convnet, residual, separable, attention)


def main(folder: Path) -> None:
    """Write the programs."""
    for make in NETWORKS:
        run, shape = make()
        lowered = jax.jit(run).lower(jax.ShapeDtypeStruct(shape, "float32"))
        text = lowered.compiler_ir("stablehlo").operation.get_asm(print_generic_op_form=True)
        (folder / f"{make.__name__}.mlir").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

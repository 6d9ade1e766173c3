"""A decoder step by step with its cache as it is stored: cross entropy of 8-bit caches beside float ones.

Each file of `language/stories260k_decode` is run token by token over held-out texts; what it gives as
`present.*` is what it gets as `past_key_values.*`, stored integers where the plan has them. Usage, from the
repository root (the model folder is needed): `python -m benchmarks.kv_cache [--texts 32] [--write]`;
`--write` puts the table into docs/results/kv-cache.md.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from benchmarks.samples import model_folder
from planner.formats.onnx.sessions import open_session, session_options
from planner.ir.graph import Graph

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "results" / "kv-cache.md"
STEPS: Final = 128
CALIBRATED: Final = 8
SEEN: Final = (1, 16, 40, 80, 127)
"""Steps of a calibration text that become samples."""
NUMPY: Final = {"tensor(float)": np.float32, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8}
Sample = dict[str, np.ndarray]

HEAD: Final = """# KV caches in 8 bits

Made by `python -m benchmarks.kv_cache --write` (the model folder is needed): the decode step of a trained
decoder (`language/stories260k_decode`, 260,000 parameters), calibrated on {samples} steps of {calibrated}
texts, planned with [caches](../library.md#caches) and written, then run for {steps} steps on each of {texts}
held-out texts. Each step gets the cache that the step before gave, as it is stored. Cross entropy is the mean
of the {tokens} next tokens, in nats; top-1 is how often the most likely token is the float model's; KL is of
the float model's distribution and the file's, in nats.

| weights and arithmetic | cache | bytes a token | cross entropy | beside float | top-1 | KL |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to plan the decoder: what is asked of its kernels, and how its cache is stored."""

    title: str
    target: str
    form: str
    kernels: Mapping[str, Any] | None = None


VARIANTS: Final = (
    Variant("float", "llm-w4", "onnx-qdq", {"*": "float"}),
    Variant("4-bit weights (`llm-w4`)", "llm-w4", "onnx-matmulnbits"),
    Variant("8 bits (`onnxruntime-cpu`)", "onnxruntime-cpu", "onnx-qdq"),
    Variant("8 bits (`litert-int8`)", "litert-int8", "onnx-qdq"),
)
CACHES: Final = ("float", "8 bits", "8 bits, a scale a head")


def run_text(session: Any, text: np.ndarray, kept: Sequence[int] = ()) -> tuple[np.ndarray, list[Sample]]:
    """Logits of every step, (steps, words), and the inputs of the steps `kept`."""
    kinds = {port.name: port for port in session.get_inputs()}
    past = {
        name: np.zeros([dim if isinstance(dim, int) else 0 for dim in port.shape], NUMPY[port.type])
        for name, port in kinds.items()
        if name.startswith("past_key_values.")
    }
    outputs = [port.name for port in session.get_outputs()]
    logits, samples = [], []
    for step, token in enumerate(text):
        feeds = {
            "input_ids": np.asarray([[token]]),
            "position_ids": np.asarray([[step]]),
            "attention_mask": np.ones((1, step + 1), np.int64),
            **past,
        }
        if step in kept:
            samples.append(feeds)
        found = dict(zip(outputs, session.run(None, feeds), strict=True))
        past = {name: found[name.replace("past_key_values", "present")] for name in past}
        logits.append(found["logits"].reshape(-1))
    return np.asarray(logits, np.float64), samples


def written(model: Graph, variant: Variant, cache: str, samples: Sequence[Sample]) -> bytes:
    """The file of a variant."""
    ready = planner.annotate(model, kernels=variant.kernels)
    if cache != "float":
        ready = planner.with_caches(ready, "i8", samples=samples if "head" in cache else None)
    plan = planner.plan(ready, variant.target)
    planner.check(plan, ready)
    return planner.export(ready, plan, variant.form)


def cache_bytes(session: Any) -> int:
    """Bytes that a token adds to the cache."""
    ports = (port for port in session.get_inputs() if port.name.startswith("past_key_values."))
    rows = ((port, [dim for dim in port.shape if isinstance(dim, int)]) for port in ports)
    return sum(int(np.prod(shape)) * np.dtype(NUMPY[port.type]).itemsize for port, shape in rows)


def likelihoods(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities of words."""
    shifted: np.ndarray = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def rows(count: int) -> Iterator[str]:
    """A row of the table for each variant and cache."""
    folder = model_folder() / "language"
    path = folder / "stories260k_decode.onnx"
    model = planner.load_model(path)
    base = open_session(path.read_bytes(), session_options())
    with np.load(folder / "calibration.npz") as arrays:
        texts = arrays["input_ids"][:CALIBRATED]
    samples = [sample for text in texts for sample in run_text(base, text, SEEN)[1]]
    model = planner.annotate(model, stats=planner.calibrate(model, samples))
    with np.load(folder / "held_out.npz") as arrays:
        texts = arrays["input_ids"][:count, :STEPS]
    wanted = [likelihoods(run_text(base, text)[0]) for text in texts]
    floor = np.mean([_loss(found, text) for found, text in zip(wanted, texts, strict=True)])
    for variant in VARIANTS:
        for cache in CACHES:
            session = open_session(written(model, variant, cache, samples), session_options())
            found = [likelihoods(run_text(session, text)[0]) for text in texts]
            loss = np.mean([_loss(one, text) for one, text in zip(found, texts, strict=True)])
            same = np.mean([a.argmax(-1) == b.argmax(-1) for a, b in zip(found, wanted, strict=True)])
            apart = np.mean(
                [(np.exp(b) * (b - a)).sum(-1).mean() for a, b in zip(found, wanted, strict=True)]
            )
            # Rounded first, and 0.0 added, so that no -0.0000 is told.
            more = round(float(loss - floor), 4) + 0.0
            yield (
                f"| {variant.title} | {cache} | {cache_bytes(session)} | {loss:.4f} | {more:+.4f} "
                f"| {100 * same:.1f} % | {apart:.5f} |"
            )


def _loss(found: np.ndarray, text: np.ndarray) -> float:
    return float(-found[np.arange(len(text) - 1), text[1:]].mean())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kv_cache")
    parser.add_argument("--texts", type=int, default=32)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    told = {"samples": CALIBRATED * len(SEEN), "calibrated": CALIBRATED, "steps": STEPS}
    head = HEAD.format(**told, texts=options.texts, tokens=options.texts * (STEPS - 1))
    lines = []
    for line in rows(options.texts):
        print(line, flush=True)
        lines.append(line)
    if options.write:
        PAGE.write_text(head + "\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

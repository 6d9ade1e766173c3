"""A face detector, quantized and evaluated: boxes of the float model beside those of the file.

Usage: `python examples/detector.py ULTRAFACE.onnx PHOTOS.npz [TARGET] [OUT.onnx]`. ULTRAFACE is
`version-slim-320.onnx` of Linzaer's Ultra-Light-Fast-Generic-Face-Detector-1MB (MIT); PHOTOS holds one array
of pictures, uint8 `(n, 240, 320, 3)`. Half of them calibrate, the others evaluate. For a detector of
yours, replace `prepared` and `boxes_of`, which know the preprocessing and the outputs.
"""

import sys

import numpy as np
import onnxruntime

import planner

SCORE, OVERLAP = 0.7, 0.5
"""The least score of a box that counts, and the overlap from which on two boxes are one."""
WIDE, HIGH = 320, 240
ANCHORS = {8: (10, 16, 24), 16: (32, 48), 32: (64, 96), 64: (128, 192, 256)}
"""Sizes in pixels of the anchors of each stride."""


def anchors() -> np.ndarray:
    """Return centres and sizes of all anchors, in shares of the picture."""
    found = [
        ((x + 0.5) * stride / WIDE, (y + 0.5) * stride / HIGH, size / WIDE, size / HIGH)
        for stride, sizes in ANCHORS.items()
        for y in range(-(-HIGH // stride))
        for x in range(-(-WIDE // stride))
        for size in sizes
    ]
    return np.array(found)


def prepared(photos: np.ndarray) -> np.ndarray:
    """Give the pictures as the network takes them: channels first, around 0."""
    return ((photos.transpose(0, 3, 1, 2).astype(np.float32)) - 127.0) / 128.0


def boxes_of(session: onnxruntime.InferenceSession, picture: np.ndarray) -> np.ndarray:
    """Return the boxes (x0, y0, x1, y1) that count, best first, each object once."""
    scores, offsets = session.run(["scores", "boxes"], {session.get_inputs()[0].name: picture[None]})
    centres, sizes = np.split(anchors(), 2, axis=1)
    centres = centres + 0.1 * offsets[0, :, :2] * sizes
    sizes = sizes * np.exp(0.2 * offsets[0, :, 2:])
    boxes = np.hstack((centres - sizes / 2, centres + sizes / 2))
    order = np.argsort(-scores[0, :, 1])
    kept: list[np.ndarray] = []
    for at in order[scores[0, order, 1] > SCORE]:
        if all(overlap(boxes[at], other) < OVERLAP for other in kept):
            kept.append(boxes[at])
    return np.array(kept).reshape(-1, 4)


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union of two boxes."""
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    shared = float(np.prod(np.maximum(high - low, 0.0)))
    return shared / (float(np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2])) - shared)


def main(model: str, photos: str, target: str = "onnxruntime-cpu", out: str = "") -> None:
    """Quantize the detector and count the boxes that both models find."""
    with np.load(photos) as archive:
        pictures = prepared(archive[archive.files[0]])
    half = len(pictures) // 2
    name = onnxruntime.InferenceSession(model).get_inputs()[0].name
    done = planner.quantize(
        model, {name: pictures[:half]}, target=target, eval_samples={name: pictures[half:]}
    )
    print(f"verdict: {done.verdict}")
    for output, quality in done.comparison.outputs.items():
        print(f"  {output}: {quality.sqnr:.1f} dB")
    as_it_is, quantized = onnxruntime.InferenceSession(model), onnxruntime.InferenceSession(done.data)
    found = missed = extra = 0
    for picture in pictures[half:]:
        wanted, got = boxes_of(as_it_is, picture), boxes_of(quantized, picture)
        same = sum(any(overlap(box, other) >= OVERLAP for other in got) for box in wanted)
        found, missed = found + same, missed + len(wanted) - same
        extra += sum(all(overlap(box, other) < OVERLAP for other in wanted) for box in got)
    print(f"faces in {len(pictures) - half} pictures: {found} found by both, {missed} missed, {extra} new")
    if out:
        done.save(out)


if __name__ == "__main__":
    main(*sys.argv[1:])

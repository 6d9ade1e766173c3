"""Models and real inputs that the benchmarks run on.

Not part of the product: nothing here is imported by `planner`. Calibration samples (`samples`) and
held-out samples (`evaluation`) never share a picture, a window or a seed; both are deterministic.
Source of the inputs and their normalisation: the README of the model folder (`QPLAN_MODELS`).
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Array = NDArray[Any]
Sample = dict[str, Array]

FOLDERS: Final = ("mlperf-tiny", "vision", "sequence")
SEED: Final = 20240501
# The photographs hold nine renderings of one scene; these eight are scenes of their own.
HELD_OUT_PHOTOS: Final = (1, 5, 16, 18, 20, 22, 24, 26)
IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
IMAGENET_STD: Final = (0.229, 0.224, 0.225)
CAFFE_BGR_MEAN: Final = (104.0, 117.0, 123.0)
LUMA: Final = (0.299, 0.587, 0.114)
BERT_VOCABULARY: Final = 4000
SAMPLE_RATE: Final = 16000


@dataclass(frozen=True, slots=True)
class BenchModel:
    """A float ONNX file of the model folder; `name` is its file name without suffix."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Draw:
    """What a sampler is asked for: `held_out` samples are disjoint from the others."""

    path: Path
    count: int
    held_out: bool

    def rng(self) -> np.random.Generator:
        """Return a generator of its own for the model and the split."""
        return np.random.default_rng([SEED, int(self.held_out), *self.path.stem.encode()])


Sampler = Callable[[Draw], list[Sample]]


def model_folder() -> Path:
    """Return the folder of test models: `QPLAN_MODELS`, else `../shared/models` beside the checkout."""
    default = Path(__file__).resolve().parents[2] / "shared" / "models"
    return Path(os.environ.get("QPLAN_MODELS", default))


def models() -> list[BenchModel]:
    """Return every `.onnx` of the benchmark subfolders, in the order of `FOLDERS`, then by name."""
    folder = model_folder()
    paths = [path for sub in FOLDERS for path in sorted((folder / sub).glob("*.onnx"))]
    return [BenchModel(path.stem, path) for path in paths]


def samples(name: str, path: Path, count: int = 32) -> list[Sample]:
    """Return `count` calibration samples of a model: input name to array, batch of one.

    Raises:
      KeyError: no inputs are known for `name`.
    """
    return SAMPLERS[name](Draw(path, count, held_out=False))


def evaluation(name: str, path: Path, count: int = 32) -> list[Sample]:
    """Return `count` held-out samples, disjoint from every calibration sample.

    Softmax outputs hang on single undecided pictures: eight samples move such a figure by 5 dB.

    Raises:
      KeyError: no inputs are known for `name`.
    """
    return SAMPLERS[name](Draw(path, count, held_out=True))


def write_samples(folder: Path, batch: list[Sample]) -> list[Path]:
    """Write one `.npz` a sample (keys are input names), so that a reader holds one at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index:04d}.npz" for index in range(len(batch))]
    for path, sample in zip(paths, batch, strict=True):
        np.savez(path, allow_pickle=False, **sample)
    return paths


def _resize_matrix(n_in: int, n_out: int) -> Array:
    """Return the `(n_out, n_in)` weights of a triangle filter as wide as the reduction."""
    scale = n_in / n_out
    support = max(scale, 1.0)
    centres = (np.arange(n_out) + 0.5) * scale - 0.5
    weights = np.maximum(0.0, 1.0 - np.abs(np.arange(n_in)[None, :] - centres[:, None]) / support)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def resize(image: Array, height: int, width: int) -> Array:
    """Resize `(H, W, C)` to `(height, width, C)` float32 with a triangle filter (antialiased)."""
    rows = _resize_matrix(image.shape[0], height)
    columns = _resize_matrix(image.shape[1], width)
    return np.asarray(np.einsum("hH,HWc,wW->hwc", rows, image.astype(np.float32), columns, optimize=True))


@cache
def _photos(folder: Path, size: str) -> Array:
    with np.load(folder / f"photos_{size}_u8_nhwc.npz") as archive:
        return np.asarray(archive["photos"])


def _crop_or_flip(image: Array, rng: np.random.Generator) -> Array:
    """Return a random crop of 60 to 95 % of the sides, flipped half of the time, at the old size."""
    height, width, _ = image.shape
    part = rng.uniform(0.6, 0.95)
    rows, columns = int(height * part), int(width * part)
    top, left = rng.integers(height - rows + 1), rng.integers(width - columns + 1)
    crop = image[top : top + rows, left : left + columns]
    return resize(crop[:, ::-1] if rng.random() < 0.5 else crop, height, width)


def photos(size: str, count: int, *, held_out: bool) -> list[Array]:
    """Return `count` pictures `(H, W, 3)`, RGB in [0, 255]: photographs first, then crops of them.

    Args:
      size: `224` or `240x320`, as in the file names.
    """
    every = _photos(model_folder() / "vision", size)
    chosen = [i for i in range(len(every)) if (i in HELD_OUT_PHOTOS) == held_out]
    rng = np.random.default_rng([SEED, int(held_out)])
    pictures = [every[i].astype(np.float32) for i in chosen[:count]]
    missing = range(count - len(pictures))
    return pictures + [_crop_or_flip(every[chosen[extra % len(chosen)]], rng) for extra in missing]


def _nchw(image: Array) -> Array:
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None], dtype=np.float32)


def _as_is(image: Array) -> Array:
    return image


def _unit(image: Array) -> Array:
    return image / 255.0


def _imagenet(image: Array) -> Array:
    return np.asarray((image / 255.0 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD))


def _caffe(image: Array) -> Array:
    return np.asarray(image[..., ::-1] - np.array(CAFFE_BGR_MEAN))


def _around_127(image: Array) -> Array:
    return (image - 127.0) / 128.0


def _luma(image: Array) -> Array:
    return np.asarray((image @ np.array(LUMA))[..., None] / 255.0)


def _picture_sampler(
    input_name: str, normalise: Callable[[Array], Array], size: str = "224", side: int | None = None
) -> Sampler:
    def sampler(draw: Draw) -> list[Sample]:
        pictures = photos(size, draw.count, held_out=draw.held_out)
        if side is not None:
            pictures = [resize(picture, side, side) for picture in pictures]
        return [{input_name: _nchw(normalise(picture))} for picture in pictures]

    return sampler


def _shipped(path: Path, key: str) -> Array:
    with np.load(path.with_suffix("").with_suffix(".io.npz")) as archive:
        return np.asarray(archive[key])


def _with_shipped_pictures(sampler: Sampler) -> Sampler:
    """Put the model's own NHWC samples at the end of the calibration pictures."""

    def extended(draw: Draw) -> list[Sample]:
        if draw.held_out:
            return sampler(draw)
        own = _shipped(draw.path, "x_nhwc")[: draw.count]
        pictures = sampler(replace(draw, count=draw.count - len(own)))
        return pictures + [{"input_1": _nchw(image)} for image in own]

    return extended


def _anomaly_windows(draw: Draw) -> list[Sample]:
    """Spread over the real windows; the last quarter is held out, as neighbours share frames."""
    windows = np.load(draw.path.parent / "ad_windows.npy")
    border = len(windows) * 3 // 4
    part = windows[border:] if draw.held_out else windows[: border - 4]
    chosen = np.linspace(0, len(part) - 1, draw.count).astype(int)
    return [{"input_1": part[i][None].astype(np.float32)} for i in chosen]


def _digits(draw: Draw) -> list[Sample]:
    """Centre scanned 8x8 digits as 20x20 in 28x28 the way MNIST does, in [0, 255]."""
    first = 1000 if draw.held_out else 0
    images = load_digits().images[first : first + draw.count].astype(np.float32) * (255.0 / 16.0)
    batch = []
    for image in images:
        canvas = np.zeros((1, 1, 28, 28), np.float32)
        canvas[0, 0, 4:24, 4:24] = resize(image[..., None], 20, 20)[..., 0]
        batch.append({"Input3": canvas})
    return batch


def _token_ids(draw: Draw) -> list[Sample]:
    """Calibrate with the file's own sample too; the others are uniform ids, unpadded."""
    ids, mask = _shipped(draw.path, "ids"), _shipped(draw.path, "mask")
    rng = draw.rng()
    own = [] if draw.held_out else [{"ids": ids, "mask": mask}]
    drawn = [rng.integers(0, BERT_VOCABULARY, ids.shape) for _ in range(draw.count - len(own))]
    return own + [{"ids": tokens.astype(ids.dtype), "mask": np.ones_like(mask)} for tokens in drawn]


def _normal_frames(draw: Draw) -> list[Sample]:
    own = _shipped(draw.path, "x")
    first = [] if draw.held_out else [own]
    rng = draw.rng()
    drawn = [rng.standard_normal(own.shape).astype(np.float32) for _ in range(draw.count - len(first))]
    return [{"x": frames} for frames in first + drawn]


def speech_like(seconds: float, rng: np.random.Generator) -> Array:
    """Return audio in [-1, 1]: syllables of a gliding voice with three formants, pauses, room noise."""
    time = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    pitch = rng.uniform(90, 220) * (1 + 0.15 * np.sin(2 * np.pi * rng.uniform(0.5, 2) * time))
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    formants = rng.uniform((300, 900, 2200), (900, 2000, 3200))
    voice = np.zeros_like(time)
    for harmonic in range(1, 30):
        distance = (harmonic * pitch[:, None] - formants) / np.array([120.0, 180.0, 260.0])
        voice += np.sin(harmonic * phase) * np.exp(-(distance**2)).sum(axis=1)
    syllables = np.clip(np.sin(2 * np.pi * rng.uniform(2, 5) * time + rng.uniform(0, 6)), 0, None) ** 0.5
    noise = rng.standard_normal(len(time)) * rng.uniform(0.002, 0.02)
    level = rng.uniform(0.1, 0.6) / np.abs(voice).max()
    return np.asarray(level * syllables * voice + noise, np.float32)


def _audio(draw: Draw) -> list[Sample]:
    """Cut a window of 512 at a random place of one recording a sample; the state is fresh."""
    rng = draw.rng()
    batch = []
    for _ in range(draw.count):
        recording = speech_like(1.0, rng)
        start = rng.integers(len(recording) - 512)
        window = recording[None, start : start + 512]
        state = np.zeros((2, 1, 128), np.float32)
        batch.append({"input": window, "state": state, "sr": np.array(SAMPLE_RATE, np.int64)})
    return batch


SAMPLERS: Final[Mapping[str, Sampler]] = {
    "ad01_fp32": _anomaly_windows,
    "bert_l4_h256": _token_ids,
    "bilstm_ctc": _normal_frames,
    "mnist": _digits,
    "mobilenetv2_100": _picture_sampler("x", _imagenet),
    "pretrainedResnet": _with_shipped_pictures(_picture_sampler("input_1", _as_is, side=32)),
    "silero_vad_16k_op15": _audio,
    "squeezenet_real_fp32": _picture_sampler("data_0", _caffe),
    "superres_real": _picture_sampler("_ppp5_expanded", _luma),
    "ultraface_slim320_op13": _picture_sampler("input", _around_127, size="240x320"),
    "unet_b32_128": _picture_sampler("x", _imagenet, side=128),
    "vww_96_float": _with_shipped_pictures(_picture_sampler("input_1", _unit, side=96)),
}

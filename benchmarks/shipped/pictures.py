"""Pictures of text in the fonts of this machine: noise, blur, rotation, colours. Seeded; knows no model."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.shipped.data import NoData
from benchmarks.shipped.metrics import Box

Array = NDArray[Any]
FOLDERS: Final = ("/usr/share/fonts", "/usr/local/share/fonts", "/Library/Fonts")
FAMILIES: Final = ("DejaVuSans", "DejaVuSerif", "LiberationSans-", "LiberationSerif", "LiberationMono")
"""Fonts of Latin letters only: a symbol font would draw no text."""


@functools.cache
def fonts() -> tuple[Path, ...]:
    """Return the fonts to draw with.

    Raises:
      NoData: there are fewer than four.
    """
    found = [path for folder in FOLDERS for path in Path(folder).rglob("*.ttf")]
    named = sorted(path for path in found if path.name.startswith(FAMILIES))
    if len(named) < 4:
        raise NoData("fewer than four fonts: install fonts-dejavu and fonts-liberation (apt-get install)")
    return tuple(named)


@functools.cache
def _font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(path), size)


def _colours(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a light ground and a dark ink, or the other way round."""
    light = tuple(int(value) for value in rng.integers(190, 256, 3))
    dark = tuple(int(value) for value in rng.integers(0, 80, 3))
    return (light, dark) if rng.random() < 0.8 else (dark, light)


def noisy(picture: Image.Image, rng: np.random.Generator) -> Array:
    """Return the pixels `(height, width, 3)` in 0 to 255 with blur, shade and noise."""
    blurred = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.8)))
    pixels = np.asarray(blurred, np.float32)
    shade = np.linspace(rng.uniform(-20, 0), rng.uniform(0, 20), pixels.shape[1], dtype=np.float32)
    noise = rng.normal(0, rng.uniform(1, 8), pixels.shape)
    return np.clip(pixels + shade[None, :, None] + noise, 0, 255).astype(np.float32)


def text_line(text: str, height: int, width: int, rng: np.random.Generator, *, turn: float = 2.0) -> Array:
    """Return pixels of a line of text that fills the height and at most the width.

    The rest of the width is left out: `(height, at most width, 3)`.
    """
    ground, ink = _colours(rng)
    font = _font(fonts()[rng.integers(len(fonts()))], 2 * height // 3)
    left, top, right, bottom = font.getbbox(text)
    pad = height // 6
    size = (int(right - left) + 2 * pad, int(bottom - top) + 2 * pad)
    picture = Image.new("RGB", size, ground)
    ImageDraw.Draw(picture).text((pad - left, pad - top), text, fill=ink, font=font)
    picture = picture.rotate(rng.uniform(-turn, turn), Image.Resampling.BICUBIC, fillcolor=ground)
    wide = min(width, max(1, round(picture.width * height / picture.height)))
    return noisy(picture.resize((wide, height), Image.Resampling.BILINEAR), rng)


def page(
    texts: Iterator[str],
    size: tuple[int, int],
    rng: np.random.Generator,
    *,
    lines: tuple[int, int] = (5, 11),
    letters: tuple[int, int] = (16, 34),
) -> tuple[Array, list[Box]]:
    """Return pixels of a page with lines of text, each with its own font and slight turn, and their boxes.

    Args:
      texts: of the lines, cut where they are too long.
      size: height and width.
      lines, letters: from and below which number, and from and below which size, they are drawn.
    """
    height, width = size
    ground, ink = _colours(rng)
    picture, boxes = Image.new("RGB", (width, height), ground), list[Box]()
    top = int(rng.integers(10, 40))
    for _ in range(rng.integers(*lines)):
        font = _font(fonts()[rng.integers(len(fonts()))], int(rng.integers(*letters)))
        mask = _line_mask(next(texts), font, width - 40, rng)
        if top + mask.height > height - 10:
            break
        left = int(rng.integers(10, width - 10 - mask.width))
        picture.paste(Image.new("RGB", mask.size, ink), (left, top), mask)
        inside = mask.getbbox() or (0, 0, 1, 1)
        boxes.append((left + inside[0], top + inside[1], left + inside[2], top + inside[3]))
        top += mask.height + int(rng.integers(12, 40))
    return noisy(picture, rng), boxes


def _line_mask(text: str, font: ImageFont.FreeTypeFont, width: int, rng: np.random.Generator) -> Image.Image:
    """Return the ink of a line, its end cut where it is too long."""
    while font.getlength(text) > width - 30 and " " in text:
        text = text.rpartition(" ")[0]
    box = font.getbbox(text)
    mask = Image.new("L", (min(int(box[2]), width - 20) + 8, int(box[3]) + 8), 0)
    ImageDraw.Draw(mask).text((4, 2), text, fill=255, font=font)
    return mask.rotate(rng.uniform(-1.5, 1.5), Image.Resampling.BICUBIC, expand=True)


def paragraph(texts: Iterator[str], side: int, rng: np.random.Generator) -> Array:
    """Return pixels of a square page that is full of text, as a scanned document is."""
    ground, ink = _colours(rng)
    font = _font(fonts()[rng.integers(len(fonts()))], int(rng.integers(13, 24)))
    picture = Image.new("RGB", (side, side), ground)
    draw, margin = ImageDraw.Draw(picture), int(rng.integers(6, 24))
    for top in range(margin, side - 2 * font.size, int(font.size * rng.uniform(1.2, 1.6))):
        draw.text((margin, top), next(texts), fill=ink, font=font)
    return noisy(picture.rotate(rng.uniform(-2, 2), Image.Resampling.BICUBIC, fillcolor=ground), rng)


def scene(side: int, rng: np.random.Generator) -> Array:
    """Return pixels of a scene: a smooth ground, some shapes in front, one of which stands out."""
    small = rng.integers(0, 256, (4, 4, 3)).astype(np.uint8)
    picture = Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(picture)
    for _ in range(rng.integers(2, 7)):
        left, top = rng.integers(0, side - 30, 2).tolist()
        wide, high = rng.integers(20, side // 2, 2).tolist()
        colour = tuple(rng.integers(0, 256, 3).tolist())
        shape = draw.ellipse if rng.random() < 0.5 else draw.rectangle
        shape((left, top, left + wide, top + high), fill=colour)
    return noisy(picture, rng)

"""Images: a folder of pictures as samples, each opened with Pillow and handed to the caller's transform.

Pillow is an extra (`[images]`) and loaded when a folder is taken. How a picture becomes an array
is the model's own business, so nothing is guessed of sizes, means or the order of channels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from planner.errors import InputError, SampleError
from planner.installation import install_command

SUFFIXES: Final = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True, slots=True)
class Images:
    """Pictures below a folder, in the order of their paths; can be iterated again.

    Attributes:
      paths: of the pictures.
      transform: makes an array, or anything else that a sample may be, of a picture (`PIL.Image.Image`, RGB).
      labels: class numbers, one each; empty where there are none.
    """

    paths: tuple[Path, ...]
    transform: Callable[[Any], Any]
    labels: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[Any]:
        for k, path in enumerate(self.paths):
            sample = self.transform(_opened(path))
            yield (sample, self.labels[k]) if self.labels else sample

    def __repr__(self) -> str:
        return f"<Images: {len(self.paths)} pictures{', with labels' if self.labels else ''}>"


def images(
    folder: str | Path,
    transform: Callable[[Any], Any],
    *,
    labels: bool = False,
    limit: int | None = None,
) -> Images:
    """Take the pictures of a folder, and of folders in it, as samples.

    Args:
      transform: of a `PIL.Image.Image` in RGB to what the model takes: resized, normalized, channels where
        the model has them; the batch axis may be missing.
      labels: whether the folders right below are classes, numbered from 0 in the order of their names.
      limit: the most pictures, spread evenly.

    Raises:
      SampleError: no folder, or no picture in it.
      InputError: a transform that is no function.

    Example:
      >>> samples = planner.images("photos", lambda photo: np.asarray(photo.resize((8, 8)), "float32") / 255)
    """
    if not callable(transform):
        raise InputError(f"transform is a function of a picture, not a {type(transform).__name__}")
    _pillow()  # asked here, before anything is calibrated
    root = Path(folder)
    if not root.is_dir():
        raise SampleError(f"{folder}: no such folder")
    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    classes = sorted(path.name for path in root.iterdir() if path.is_dir())
    if labels:
        paths = [path for path in paths if path.parent != root]
    if not paths:
        kinds = ", ".join(sorted(SUFFIXES))
        where = "in the folders in it" if labels else "in it"
        raise SampleError(f"folder {str(root)!r}: no pictures {where}", hint=f"looked for {kinds}")
    if limit is not None and limit < len(paths):
        paths = [paths[k * len(paths) // limit] for k in range(limit)]
    numbers = [classes.index(path.relative_to(root).parts[0]) for path in paths] if labels else []
    return Images(tuple(paths), transform, tuple(numbers))


def has_images(folder: Path) -> bool:
    """Whether a picture lies in a folder."""
    return any(path.suffix.lower() in SUFFIXES for path in folder.iterdir())


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise InputError(
            "pictures are opened with Pillow, which is not installed", hint=install_command("images")
        ) from error


def _opened(path: Path) -> Any:
    pillow = _pillow()
    try:
        with pillow.open(path) as picture:
            return picture.convert("RGB")
    except OSError as error:
        raise SampleError(f"{path}: not a picture that Pillow reads: {error}") from error

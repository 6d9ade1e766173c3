"""To a file: a planned model written to a path, whole or not at all, large weights in a file beside it.

Everything is written into a hidden folder beside the goal and renamed at the end, so an interruption leaves
what was there before. Formats built by `onnx.write` write weights tensor by tensor into external data; the
others give their bytes. Source: ONNX "External Data".
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from planner.errors import InputError, UnsupportedExport
from planner.formats.onnx.write import MAX_BYTES, with_data_at, write_graph
from planner.formats.onnx.writer.write import Form, write_form
from planner.formats.table import EXPORTERS, FORMATS, form_of
from planner.ir.graph import Graph
from planner.ir.mapped import mapped_file
from planner.plans.plan import Plan

Progress: TypeAlias = Callable[[int, int | None], None]

LARGE: Final = 256 << 20
"""Bytes of mapped weights from which on what is made of a model has its weights beside it, too."""
STREAMED: Final[Mapping[str, Form]] = {name: form.form for name, form in FORMATS.items() if form.form}
"""Formats whose weights can lie in a file beside the model."""


def has_large_weights(graph: Graph) -> bool:
    """Whether a model's weights lie in files and are so large that results are written the same way."""
    arrays = [constant.array for constant in graph.constants.values() if constant.array is not None]
    sizes = [array.nbytes for array in arrays if mapped_file(array) is not None]
    return sum(sizes) >= LARGE or sum(array.nbytes for array in arrays) > MAX_BYTES


def write_to(
    graph: Graph,
    plan: Plan,
    name: str,
    path: Path,
    *,
    external: bool | None = None,
    level: int | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Write a plan in a format to `path`; weights go to `PATH.data` where they are large, or as asked.

    Args:
      external: weights beside the model or in it; None: beside it where `has_large_weights`.
      level: accuracy level of a format that has one; None for its default.
      progress: called with (kernels written, kernels in all).

    Returns:
      The files written, the model first.

    Raises:
      UnsupportedExport: as the format does; or `external` of a format that has no such thing.
      InputError: a place that cannot be written, or that the model's own weights lie in.
    """
    form = form_of(name, level)
    if external and form is None:
        raise _in_one_file(name)
    if form is None or not (has_large_weights(graph) if external is None else external):
        _keep_weights(graph, path)
        with draft(path) as folder:
            write_whole(graph, plan, name, folder / path.name, level=level, progress=progress)
            (folder / path.name).replace(path)
        return (path,)
    found = form
    return _written(
        graph, path, lambda beside: write_form(graph, plan, found, external=beside, progress=progress)
    )


def write_whole(
    graph: Graph,
    plan: Plan,
    name: str,
    path: Path,
    *,
    level: int | None = None,
    external: Path | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a plan in a format into one file, weight by weight where the format's weights can lie outside.

    Args:
      external: a file for the weights, which the model calls by its name.
      level, progress: see `write_to`.

    Returns:
      Bytes written, of the model.

    Raises:
      UnsupportedExport: as the format does; or `external` of a format that has no such thing.
    """
    form = form_of(name, level)
    if external is not None:
        if form is None:
            raise _in_one_file(name)
        path.write_bytes(write_form(graph, plan, form, external=external, progress=progress))
    elif form is not None:
        write_form(graph, plan, form, into=path, progress=progress)
    else:
        path.write_bytes(EXPORTERS[name](graph, plan))
    return path.stat().st_size


def copy_written(files: Sequence[Path], path: Path) -> tuple[Path, ...]:
    """Copy what `write_to` wrote to another path, whole or not at all.

    Args:
      files: the model first, then the file of its weights, if it has one.
    """
    model, *rest = files
    beside = path.with_name(f"{path.name}.data")
    with draft(path) as folder:
        for weights in rest:
            shutil.copyfile(weights, folder / beside.name)
            (folder / beside.name).replace(beside)
        (folder / path.name).write_bytes(with_data_at(model.read_bytes(), beside.name))
        (folder / path.name).replace(path)
    return (path, beside) if rest else (path,)


def _in_one_file(name: str) -> UnsupportedExport:
    return UnsupportedExport(
        f"{name} has all its weights in one file; with external data can be: {', '.join(STREAMED)}"
    )


def write_float(graph: Graph, path: Path) -> tuple[Path, ...]:
    """Write a float model to `path`, large weights beside it; see `write_to`."""
    apart = has_large_weights(graph)
    return _written(
        graph,
        path,
        lambda beside: write_graph(graph, external=beside if apart else None, with_shapes=True),
    )


def _written(graph: Graph, path: Path, write: Callable[[Path], bytes]) -> tuple[Path, ...]:
    """Write the model that `write` gives, and the weights that it puts into the file it is given."""
    beside = path.with_name(f"{path.name}.data")
    _keep_weights(graph, path, beside)
    with draft(path) as folder:
        data = write(folder / beside.name)
        (folder / path.name).write_bytes(data)
        # Weights first: a model without its weights is no model.
        names = [name for name in (beside.name, path.name) if (folder / name).is_file()]
        for name in names:
            (folder / name).replace(path.with_name(name))
    return tuple(path.with_name(name) for name in reversed(names))


def _keep_weights(graph: Graph, *goals: Path) -> None:
    for constant in graph.constants.values():
        source = None if constant.array is None else mapped_file(constant.array)
        for goal in goals if source is not None else ():
            if source is not None and goal.exists() and goal.samefile(source.path):
                raise InputError(
                    f"{str(goal)!r} would be written over the model's own weights", hint="another path"
                )


@contextmanager
def draft(path: Path) -> Iterator[Path]:
    """A hidden folder beside a path, which is gone afterwards, whatever happens meanwhile.

    Raises:
      InputError: a place that cannot be written.
    """
    if path.is_dir():
        raise InputError(f"cannot write to {str(path)!r}: it is a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot write to {str(path)!r}: {error.strerror}") from error

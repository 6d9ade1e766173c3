"""The notebooks of the examples, with the outputs of their cells: `python -m benchmarks.notebooks --write`.

Cells run in one namespace, as a kernel runs them; of a cell its prints are kept and what its last line gives,
as text and, where a result has one, as its table. Measures nothing.
"""

import argparse
import ast
import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOKS: Final = tuple(sorted(EXAMPLES.glob("*.ipynb")))


def executed(document: dict[str, Any]) -> dict[str, Any]:
    """Run the code cells from top to bottom, in the current folder, and return the notebook with outputs."""
    names: dict[str, object] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cells.append(cell | {"execution_count": number, "outputs": list(_outputs(cell, number, names))})
        else:
            cells.append(cell)
    return document | {"cells": cells}


def _outputs(cell: dict[str, Any], number: int, names: dict[str, object]) -> Iterator[dict[str, Any]]:
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - our own cells
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None  # noqa: S307
    if printed.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())}
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        table = getattr(value, "_repr_html_", None)
        if table is not None:
            data = {"text/html": _lines(table()), **data}
        yield {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def run(path: Path, folder: Path) -> dict[str, Any]:
    """Run a notebook in a folder, beside a copy of the example's data."""
    shutil.copytree(EXAMPLES / "digits", folder / "digits")
    here = Path.cwd()
    os.chdir(folder)
    try:
        return executed(json.loads(path.read_text(encoding="utf-8")))
    finally:
        os.chdir(here)


def main() -> None:
    """Run all of them, and with `--write` keep their outputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            document = run(path, Path(folder))
        print(path.name, sum(bool(cell.get("outputs")) for cell in document["cells"]), "cells with outputs")
        if write:
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

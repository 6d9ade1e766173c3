"""Kit check: a device's results beside the integers that a kit expects, row by row.

In: the folder of a kit, and one with a device's results: `ITEM/results.npz` or `ITEM.npz`, arrays by the
names of `ITEM/expected.npz`. Out: the findings of `row_probe`. Source: docs/command.md.
"""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.target_tests.probe_kit import FORMAT
from planner.target_tests.row_probe import RowFinding, compared


def check_kit(kit: Path, results: Path) -> tuple[RowFinding, ...]:
    """Compare results with a kit.

    Args:
      kit: a folder that `qplan target kit` wrote.
      results: a folder with an archive of arrays for each item.

    Raises:
      InputError: no kit, no folder of results, or an archive that cannot be read.
    """
    try:
        index = json.loads((kit / "kit.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{kit} is no kit: its kit.json cannot be read", hint="qplan target kit writes one"
        ) from error
    if index.get("format") != FORMAT:
        raise InputError(f"{kit}/kit.json is of format {index.get('format')!r}, expected {FORMAT!r}")
    if not results.is_dir():
        raise InputError(f"{results} is no folder", hint="one with ITEM/results.npz for each item of the kit")
    found = [_finding(entry, kit, results) for entry in index["items"]]
    found += [
        RowFinding(s["kernel"], s["kernel"], s["row"], "no model", s["reason"]) for s in index["skipped"]
    ]
    return tuple(found)


def _finding(entry: Mapping[str, Any], kit: Path, results: Path) -> RowFinding:
    name = str(entry["name"])
    path = next((p for p in (results / name / "results.npz", results / f"{name}.npz") if p.exists()), None)
    verdict = ("no answer", "")
    if path is not None:
        floats = all(kind == "f32" for kind in entry["inputs"].values())
        verdict = compared(_arrays(kit / name / "expected.npz"), _arrays(path), floats=floats)
    return RowFinding(name, str(entry["kernel"]), str(entry["row"]), *verdict)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as archive:
            return dict(archive)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} cannot be read: {error}", hint="an archive that numpy.savez wrote"
        ) from error

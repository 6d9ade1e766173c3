"""Script for the Python of an environment with `ethos-u-vela`: .tflite files of a folder, one by one.

`answers.json` says of each file how many operators stay on the CPU and how many go to the NPU, or what was
printed where it was not compiled. With `--report` the folder gets Vela's own list, `SUPPORTED_OPS.md`.
"""

import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from ethosu.vela import vela


def compiled(file: Path) -> Any:
    """(on the CPU, on the NPU), or the text of a refusal."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text), contextlib.suppress(SystemExit):
        try:
            where = ["--accelerator-config", "ethos-u55-128", "--output-dir", str(file.parent / "out")]
            vela.main([str(file), *where])
        except Exception as error:  # noqa: BLE001 - whatever it is, the asker says it
            text.write(f"{type(error).__name__}: {error}")
    found = [re.search(rf"{kind} operators = (\d+)", text.getvalue()) for kind in ("CPU", "NPU")]
    return [int(match[1]) for match in found if match] if all(found) else text.getvalue()


def main(folder: Path) -> None:
    """Answer for every file of a folder, or write the report."""
    if "--report" in sys.argv:
        os.chdir(folder)
        with contextlib.suppress(SystemExit):
            vela.main(["--supported-ops-report"])
        return
    answers = {file.name: compiled(file) for file in sorted(folder.glob("*.tflite"))}
    (folder / "answers.json").write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

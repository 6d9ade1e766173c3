"""Script for the Python of an environment with `ethos-u-vela`: .tflite files compiled, one after the other.

`jobs.json` of the folder lists {"file", "device"}. Job n leaves the compiled file, or `answer_n.txt` with
what was said where there is none.
"""

import contextlib
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ethosu.vela import vela


def answer(folder: Path, job: Mapping[str, Any], number: int) -> None:
    """Compile one file beside itself, or write down what was said."""
    line = [str(folder / job["file"]), "--accelerator-config", job["device"], "--output-dir", str(folder)]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            is_refused = vela.main(line)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the asker says it
        is_refused = True
        said.write(f"\n{type(error).__name__}: {error}")
    if is_refused:
        (folder / f"answer_{number}.txt").write_text(said.getvalue(), encoding="utf-8")


def main(folder: Path) -> None:
    """Answer every job of a folder."""
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))):
        answer(folder, job, number)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

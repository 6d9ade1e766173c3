"""The lines of docs/on-ramps.md work: each block runs in the environment that it names, as it stands there.

An environment of its own has the library, `.venv` behind it the planner; the blocks for PyTorch, 1 GB
installed, are of `make soak`.
"""

import re
import site
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "on-ramps.md"
PYTHON = {
    "sklearn": Path(sys.executable),
    "jax": ROOT / ".oracles" / "jax" / "bin" / "python",
    "torch": ROOT / ".oracles" / "torch" / "bin" / "python",
}
SHOWN = """
assert done.verdict is not None, done
assert done.plan.cost > 0
print(repr(done))
"""


def blocks() -> list[object]:
    """Environment and code of each block, named by the heading above it."""
    found = []
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        for environment, code in re.findall(r"```python (\w+)\n(.*?)```", section, re.DOTALL):
            marks = [pytest.mark.soak] if environment == "torch" else []
            found.append(pytest.param(environment, code, id=heading, marks=marks))
    return found


@pytest.mark.parametrize(("environment", "code"), blocks())
def test_the_lines_of_the_page_work(environment, code, tmp_path):
    python = PYTHON[environment]
    if not python.exists():
        pytest.skip(f"no .oracles/{environment}: run make oracles, or make soak")
    # The library's own packages come first; those of the planner are behind them.
    places = [path for path in site.getsitepackages() if Path(path).is_dir()]
    head = f"import site, sys; sys.path.insert(0, {str(ROOT)!r})\n"
    head += "".join(f"site.addsitedir({place!r})\n" for place in places)
    line = [str(python), "-c", head + code + SHOWN]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].startswith("<Quantized ")
    assert len(list(tmp_path.glob("*-int8.onnx"))) == 1


def test_every_library_of_the_issue_has_a_section():
    text = PAGE.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["PyTorch", "Hugging Face", "JAX", "Keras and TensorFlow", "scikit-learn"]
    assert len(blocks()) == len(headings)

"""The wheel alone is enough: built here, installed into an empty environment elsewhere, used from there."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples" / "digits"


def call(*line: object, cwd: Path) -> str:
    """Run a program that must succeed, away from the sources."""
    environment = {
        name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    arguments = [str(word) for word in line]
    done = subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    source = out / "source"
    files = call(
        "git",
        "ls-files",
        "--",
        "planner",
        "api",
        "targets",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        cwd=ROOT,
    )
    for name in files.splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    call(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", out, source, cwd=out)
    (found,) = out.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_the_targets(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {f"targets/{path.name}" for path in (ROOT / "targets").glob("*.yaml")}
    assert len(shipped) >= 11
    assert shipped <= set(names)
    assert "targets/target.schema.json" in names
    assert "planner/py.typed" in names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"planner", "api", "targets"}


@pytest.mark.slow
def test_the_wheel_plans_in_an_empty_environment(wheel, tmp_path):
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python, qplan = home / "bin" / "python", home / "bin" / "qplan"
    # What is imported is compiled then; a pip of its own and bytecode of all would take most of the time.
    install = ("-m", "pip", "--python", python, "install", "--no-compile", "--quiet")
    call(sys.executable, *install, "--constraint", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    data = ("--data", DIGITS / "calibration.npz")
    call(
        qplan,
        "plan",
        DIGITS / "digits.onnx",
        "-t",
        "litert-int8",
        *data,
        "-f",
        "onnx-qdq",
        "-o",
        "out",
        cwd=tmp_path,
    )
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == [
        "digits.corrected-float.onnx",
        "onnx-qdq.onnx",
        "plan.json",
        "plan.mlir",
        "report.html",
    ]
    where = call(python, "-c", "import planner; print(planner.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(home)

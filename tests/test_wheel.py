"""The wheel alone is enough: built here, installed into an empty environment elsewhere, used from there."""

import os
import shutil
import subprocess
import sys
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


def other_pythons() -> list[str]:
    """The other Pythons from 3.11 on that are to be had here: on the path, and those of pyenv."""
    homes = sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin"))
    found = []
    for minor in range(11, 15):
        name = f"python3.{minor}"
        # pyenv's own names on the path run only where a version is chosen.
        places = [*(str(home / name) for home in homes if (home / name).exists()), shutil.which(name)]
        if minor != sys.version_info.minor and any(places):
            found.append(next(filter(None, places)))
    return found


@pytest.mark.slow
def test_the_wheel_plans_in_an_empty_environment(wheel, tmp_path):
    plans_with(sys.executable, wheel, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("python", other_pythons())
def test_the_wheel_plans_in_every_python_there_is(python, wheel, tmp_path):
    """The same plan and file, byte for byte, whatever Python made them."""
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    own, other = (
        plans_with(name, wheel, tmp_path / place)
        for name, place in ((sys.executable, "own"), (python, "other"))
    )
    for name in ("plan.json", "plan.mlir", "onnx-qdq.onnx"):
        assert (own / name).read_bytes() == (other / name).read_bytes(), name


def plans_with(interpreter: str, wheel: Path, tmp_path: Path) -> Path:
    """The folder of a plan, made by the wheel in an empty environment of an interpreter."""
    home = tmp_path / "venv"
    call(interpreter, "-m", "venv", "--without-pip", home, cwd=tmp_path)
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
    return tmp_path / "out"

"""The wheel alone is enough: built here, installed into an empty environment elsewhere, used from there."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

import planner
from planner.installation import install_command

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples" / "digits"


def environment() -> dict[str, str]:
    """The variables of a program that is to find nothing of the sources."""
    return {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def call(*line: object, cwd: Path) -> str:
    """Run a program that must succeed, away from the sources."""
    arguments = [str(word) for word in line]
    done = subprocess.run(arguments, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(python: Path, *what: object) -> None:
    """Install into the environment of a Python; bytecode of all would take most of the time."""
    line = ("-m", "pip", "--python", python, "install", "--no-compile", "--quiet")
    call(sys.executable, *line, *what, cwd=python.parent)


def make_environment(interpreter: str, wheel: Path, home: Path) -> None:
    """Make an environment with the wheel; a pip of its own would take most of the time."""
    call(interpreter, "-m", "venv", "--without-pip", home, cwd=wheel.parent)
    install(home / "bin" / "python", "--constraint", ROOT / "constraints.txt", wheel)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answer(address: str, server: subprocess.Popen[bytes]) -> list[dict[str, str]]:
    """What a server answers, once it does."""
    for _ in range(600):
        assert server.poll() is None
        with suppress(httpx.TransportError):
            found: list[dict[str, str]] = httpx.get(address, timeout=60).raise_for_status().json()
            return found
        time.sleep(0.2)
    raise AssertionError(f"{address} does not answer")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """The files that a wheel is made of, without anything built in the checkout."""
    folder = tmp_path_factory.mktemp("source")
    parts = (
        "planner",
        "api",
        "targets",
        "examples/digits",
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
    )
    for name in call("git", "ls-files", "--", *parts, cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", out, source, cwd=out)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def home(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    make_environment(sys.executable, wheel, folder)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_two_packages_and_the_targets_as_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {f"planner/shipped_targets/{path.name}" for path in (ROOT / "targets").glob("*.yaml")}
    assert len(shipped) >= 11
    assert shipped <= set(names)
    assert "planner/shipped_targets/target.schema.json" in names
    assert "planner/py.typed" in names
    pages = {path.name for path in (ROOT / "api" / "page" / "static").iterdir()}
    assert {f"quant_planner_service/page/static/{name}" for name in pages} <= set(names)
    example = [name for name in names if name.startswith("planner/shipped_example/")]
    assert sorted(example) == [
        f"planner/shipped_example/{name}" for name in ("calibration.npz", "digits.onnx")
    ]
    tops = {name.partition("/")[0] for name in names}
    found = {top for top in tops if not top.endswith(".dist-info")}
    assert found == {"planner", "quant_planner_service"}


@pytest.mark.slow
def test_packages_of_the_users_own_are_left_alone(home, tmp_path):
    """Users have modules called `api` and `targets`; nothing here imports them."""
    for name in ("api", "targets"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported by the planner')")
    code = (
        "import planner, quant_planner_service.app; "
        "from quant_planner_service.schemas.schema_files import schema_text; "
        "print(len(planner.target_ids()), len(schema_text('target')))"
    )
    install(home / "bin" / "python", *shlex.split(hint_of(home, tmp_path))[2:])
    count, size = call(home / "bin" / "python", "-c", code, cwd=tmp_path).split()
    assert (int(count), int(size) > 1000) == (len(planner.target_ids()), True)


@pytest.mark.slow
def test_the_wheel_serves_once_the_hint_was_followed(home, tmp_path):
    install(home / "bin" / "python", *shlex.split(hint_of(home, tmp_path))[2:])
    port = free_port()
    line = [home / "bin" / "qplan", "serve", "--port", str(port), "--data", "data", "--processes", "2"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(line, cwd=tmp_path, env=environment(), stdout=log, stderr=log)
    try:
        ids = {one["id"] for one in answer(f"http://127.0.0.1:{port}/v1/targets", server)}
    finally:
        server.terminate()
        server.wait(60)
    assert ids == set(planner.target_ids())


def hint_of(home: Path, cwd: Path) -> str:
    """What the command says to install for `qplan serve`; the same line in every form of installation."""
    code = "from planner.installation import install_command; print(install_command('service'))"
    told = call(home / "bin" / "python", "-c", code, cwd=cwd).strip()
    assert told.startswith("pip install ")
    assert told == install_command("service")
    return told


@pytest.mark.slow
def test_an_editable_install_is_the_checkout(source, tmp_path):
    """Folders keep their names there; nothing else is needed than what is installed here."""
    home = tmp_path / "venv"
    call(sys.executable, "-m", "venv", "--without-pip", home, cwd=tmp_path)
    python = home / "bin" / "python"
    install(python, "--no-deps", "--editable", source)
    (library,) = home.glob("lib/python3.*/site-packages")
    (library / "others.pth").write_text(
        "\n".join(name for name in sys.path if name.endswith("site-packages"))
    )
    code = (
        "import planner, api.app; from planner.installation import service_package, targets_folder; "
        "print(service_package(), targets_folder(), len(planner.target_ids()))"
    )
    told = call(python, "-P", "-c", code, cwd=tmp_path).split()
    assert told == ["api", str(source / "targets"), str(len(planner.target_ids()))]


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
def test_the_wheel_plans_in_an_empty_environment(home, tmp_path):
    planned_by(home, tmp_path)


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
    make_environment(interpreter, wheel, home)
    return planned_by(home, tmp_path)


def planned_by(home: Path, tmp_path: Path) -> Path:
    """The folder of a plan that the command of an environment makes."""
    python, qplan = home / "bin" / "python", home / "bin" / "qplan"
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

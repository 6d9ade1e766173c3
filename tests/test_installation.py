"""Hints say what to install in words that pip takes, and before the work they are for."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import planner
from planner import installation
from planner.cli.app import run
from planner.errors import PlannerError
from planner.formats.table import require_format
from planner.installation import install_command, service_package, targets_folder

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples" / "digits"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", [name for name in EXTRAS if name != "test"])
def test_a_hint_names_the_packages_of_its_extra(extra):
    words = re.findall(r"'([^']+)'", install_command(extra))
    assert sorted(words) == sorted(EXTRAS[extra])
    assert install_command(extra).startswith("pip install '")


def test_without_metadata_the_hint_names_the_checkout(monkeypatch):
    monkeypatch.setattr(installation, "_DISTRIBUTION", "quant-planner-that-is-not-installed")
    assert install_command("litert") == f"pip install '{ROOT}[litert]'"


def test_sources_print_no_hint_that_no_index_can_answer():
    told = [
        path.relative_to(ROOT).as_posix()
        for folder in ("planner", "api")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"pip install '?quant-planner", path.read_text("utf-8"))
        and path.name != "installation.py"
    ]
    assert told == []


def test_a_checkout_has_its_folders():
    assert (targets_folder(), service_package()) == (ROOT / "targets", "api")


def never(*_arguments: object, **_named: object) -> None:
    raise AssertionError("work began before the hint was given")


@pytest.fixture
def without_work(monkeypatch):
    """No flatbuffers, and no model that is read or calibrated."""
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    for name in (
        "planner.quantizing.load_model",
        "planner.quantizing.calibrate",
        "planner.cli.job.order.read_model",
    ):
        monkeypatch.setattr(name, never)
    monkeypatch.setattr("planner.pipeline.check", never)


@pytest.mark.usefixtures("without_work")
def test_python_asks_for_litert_before_any_work():
    with pytest.raises(PlannerError) as caught:
        planner.quantize(DIGITS / "digits.onnx", DIGITS / "calibration.npz", format="litert")
    assert caught.value.hint == install_command("litert")
    with pytest.raises(PlannerError) as caught:
        require_format("litert")
    assert "not installed: flatbuffers" in str(caught.value)


@pytest.mark.usefixtures("without_work")
@pytest.mark.parametrize("verb", ["plan", "quantize"])
def test_the_command_asks_for_litert_before_any_work(verb, tmp_path, capsys):
    line = [verb, str(DIGITS / "digits.onnx"), "-t", "litert-int8", "-f", "litert"]
    out = ["--data", str(DIGITS / "calibration.npz"), "-o", str(tmp_path / "out")]
    assert run([*line, *out]) != 0
    assert install_command("litert") in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_pictures_are_refused_before_any_is_opened(monkeypatch, tmp_path):
    (tmp_path / "one.png").write_bytes(b"no picture")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(PlannerError) as caught:
        planner.images(tmp_path, never)
    assert caught.value.hint == install_command("images")


def test_serialized_mlir_is_refused_before_its_module_is_read(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("planner.formats.stablehlo.reader.serialized.is_available", lambda: False)
    monkeypatch.setattr("planner.cli.dialects._module_text", never)
    assert (
        run(["mlir", str(tmp_path / "none.mlir"), "--to", "mlirbc", "-o", str(tmp_path / "out.mlirbc")]) != 0
    )
    assert install_command("stablehlo") in capsys.readouterr().err


def test_every_pin_is_one_that_make_audit_can_look_up():
    """pip-audit reads the file without pip: names with exact versions, no two of one package."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()[1:]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", line)] == []
    names = [re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in lines]
    assert len(set(names)) == len(names)
    audit = (ROOT / "Makefile").read_text("utf-8").partition("\naudit:")[2].partition("\n\n")[0]
    assert "--strict" in audit
    assert "--requirement constraints.txt" in audit

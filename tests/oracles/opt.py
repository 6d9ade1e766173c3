"""Asking the tools of LLVM's projects that PyPI has: each parses a module and prints it."""

import subprocess
from pathlib import Path

import pytest

from tests.oracles import hlo

ROOT = Path(__file__).resolve().parents[2]
_ORACLES = ROOT / ".oracles"
TOOLS = ("iree-opt", "tosa-opt", "torch-mlir-opt", "jaxlib")


def parsed(tool, text, *options):
    """A module as a tool prints it, unknown dialects in it too; else a text that starts with `ERROR`."""
    if tool == "jaxlib":
        return hlo.printed([text], generic=False)[0]
    command = _command(tool)
    if command is None or not command.exists():
        pytest.skip(f"no {tool}: run make oracles")
    done = subprocess.run(
        [command, "--allow-unregistered-dialect", *options],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout if not done.returncode else f"ERROR {done.stderr}"


def _command(tool):
    if tool == "torch-mlir-opt":  # its script in bin has lost the tool's folder
        return next(_ORACLES.glob(f"mlir/lib/python3*/site-packages/torch_mlir/_mlir_libs/{tool}"), None)
    return _ORACLES / tool.partition("-")[0] / "bin" / tool

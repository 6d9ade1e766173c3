"""Three people who start at the README: the commands that they type until the first result, and the seconds.

Each command is a process of its own, in a folder with the example, as in a shell. The edge engineer has a
PyTorch model with an open batch, in an environment with PyTorch (`.oracles/torch`); the other two follow a
how-to as it stands. Time to read and to edit is not counted. Usage, from the repository root:
`python -m benchmarks.roles [--write]`; `--write` writes docs/results/first-use.md.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.walked import Block, blocks

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "first-use.md"
HOWTO: Final = ROOT / "docs" / "howto"
TORCH: Final = ROOT / ".oracles" / "torch" / "bin" / "python"
VELA: Final = ROOT / ".oracles" / "vela" / "bin" / "vela"
QPLAN: Final = "import sys; from planner.cli.app import main; main(sys.argv[1:])"
NET: Final = """import numpy as np
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10),
).eval()
images = torch.randn(64, 3, 32, 32)
open_batch = {0: torch.export.Dim("batch")}
torch.onnx.export(
    net, (images[:2],), "net.onnx", input_names=["image"], dynamic_shapes=[open_batch], dynamo=True
)
np.savez("samples.npz", image=images.numpy())
"""
EDGE: Final = (
    "python export.py",
    "qplan quantize net.onnx --data samples.npz --target ethos-u55 --format litert --out out",
    "vela out/litert.tflite --accelerator-config ethos-u55-128 --output-dir out",
)
STEPS: Final = {"compiler": ("describe-my-device.md", 99), "backend": ("run-as-a-service.md", 2)}
"""The how-to of a role, and the last of its numbered steps that is followed."""
TITLES: Final = {
    "edge": "Edge engineer: a PyTorch model with an open batch to a file for an Ethos-U55",
    "compiler": "Compiler engineer: a target for a device of their own",
    "backend": "Backend engineer: the planner as a service",
}
RESULTS: Final = {
    "edge": "out/litert.tflite",
    "compiler": "out/npu/onnx-qdq.onnx",
    "backend": "digits-int8.onnx",
}
"""The first file that a role is after."""
HEAD: Final = (
    "Made by `python -m benchmarks.roles --write`: the commands that the README leads to, each as a process "
    "of its own.\nSeconds are those of two shared cores; reading and editing come on top."
)
LONGEST: Final = 110


class Step(NamedTuple):
    """A command, the seconds that it took, and a line that it printed."""

    command: str
    seconds: float
    line: str


class Walk:
    """The commands of a role so far."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.steps = folder, list[Step]()
        self.first_file: int | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def run(self, command: str, result: str, expected: int = 0) -> None:
        """Run a command of a shell, with a free port for the usual one.

        Raises:
          RuntimeError: another exit code than expected, with the output.
        """
        began = time.perf_counter()
        done = subprocess.run(
            ["bash", "-c", command.replace("8000", self.port)],
            cwd=self.folder,
            env=environment(self.folder),
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - began
        if done.returncode != expected:
            raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        self.steps.append(Step(command, seconds, telling(done.stdout)))
        if self.first_file is None and (self.folder / result).exists():
            self.first_file = len(self.steps)


def telling(printed: str) -> str:
    """The line that says most: of the coverage or the verdict, else the last one."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    found = [line for line in lines if line.startswith(("coverage:", "NPU operators"))] or lines[-1:]
    return found[-1][:LONGEST] if found else ""


def environment(folder: Path) -> dict[str, str]:
    """Variables of a shell that finds `qplan`, `vela` and `python`."""
    programs = folder / ".bin"
    if not programs.exists():
        programs.mkdir()
        (programs / "qplan").write_text(f"#!{sys.executable}\n{QPLAN}\n")
        (programs / "qplan").chmod(0o755)
        if VELA.exists():
            (programs / "vela").symlink_to(VELA)
    packages = [place for place in sys.path if Path(place).name == "site-packages"]
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *packages]),
    }


@contextmanager
def served(walk: Walk, line: str) -> Iterator[None]:
    """A server in the background, as another terminal would have it."""
    words = line.replace("8000", walk.port).split()
    command = [sys.executable, "-c", QPLAN, *words[1:]]
    server = subprocess.Popen(
        command,
        cwd=walk.folder,
        env=environment(walk.folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    walk.steps.append(Step(line, 0.0, "in a terminal of its own"))
    try:
        yield
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)


def edge(walk: Walk) -> None:
    """From PyTorch to a file that Vela has compiled."""
    (walk.folder / "export.py").write_text(NET)
    for command in EDGE:
        python = command.replace("python ", f"{TORCH} ", 1) if command.startswith("python ") else command
        walk.run(python, RESULTS["edge"])
        walk.steps[-1] = walk.steps[-1]._replace(command=command)


def follow(walk: Walk, role: str) -> None:
    """Follow the how-to of a role, command by command."""
    name, last = STEPS[role]
    with_servers(walk, role, followed(HOWTO / name, last))


def with_servers(walk: Walk, role: str, found: list[Block]) -> None:
    """Run blocks in order; one that starts a server goes around all behind it."""
    for place, block in enumerate(found):
        if block.mark == "server":
            with served(walk, block.text.strip()):
                with_servers(walk, role, found[place + 1 :])
            return
        if block.mark == "file":
            (walk.folder / block.name).write_text(block.text.replace("8000", walk.port), encoding="utf-8")
        elif block.language == "sh":
            lines = block.text.replace("\\\n", " ").strip().splitlines()
            for line in lines:
                code = int(block.name or 0) if line == lines[-1] else 0
                command = line.replace("python ", f"{sys.executable} ", 1) if line[:7] == "python " else line
                walk.run(command, RESULTS[role], code)
                walk.steps[-1] = walk.steps[-1]._replace(command=" ".join(line.split()))


def followed(page: Path, last: int) -> list[Block]:
    """Blocks of a how-to up to a numbered step."""
    text = page.read_text(encoding="utf-8")
    end = text.find(f"\n## {last + 1}. ")
    upto = text[:end] if end >= 0 else text
    return [block for block in blocks(page) if block.text in upto]


def walked(role: str) -> Walk:
    """Let a role start in a folder with the example in it."""
    with tempfile.TemporaryDirectory() as name:
        walk = Walk(Path(name))
        shutil.copytree(ROOT / "examples" / "digits", walk.folder / "examples" / "digits")
        if role == "edge":
            edge(walk)
        else:
            follow(walk, role)
        return walk


def escaped(words: str) -> str:
    """Text for a cell."""
    return words.replace("|", "\\|")


def section(role: str, walk: Walk) -> str:
    """The commands of a role as Markdown."""
    total = sum(step.seconds for step in walk.steps)
    first = walk.first_file or 0
    before = sum(step.seconds for step in walk.steps[:first])
    lines = [
        f"## {TITLES[role]}",
        f"First file after {first} commands, {before:.0f} s; all {len(walk.steps)} commands: {total:.0f} s.",
        "",
        "| command | s | it says |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{escaped(step.command)}` | {step.seconds:.1f} | {escaped(step.line)} |" for step in walk.steps
    ]
    return "\n".join(lines)


def text() -> str:
    """The page."""
    parts = [
        "# First use, in three roles",
        HEAD,
        *(section(role, walked(role)) for role in TITLES),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Print the page, and with `--write` keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found = text()
    sys.stdout.write(found)
    if given.write:
        PAGE.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()

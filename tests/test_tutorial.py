"""The tutorial on targets, followed step by step: its files, its commands, what it says they print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import planner
from planner.cli.app import run

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "targets" / "tutorial.md"
BLOCK = re.compile(r"(?:<!-- (file|append|gone): (.+?) -->\n)?(?:```(\w+)\n(.*?)```)?", re.DOTALL)


def steps():
    for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if found[1] or found[3]:
            yield found.groups()


def obey(line, capsys):
    words = shlex.split(line)
    if words[0] == "python":
        subprocess.run([sys.executable, ROOT / words[1], *words[2:]], check=True)
        return ""
    capsys.readouterr()
    assert (words[0], run(words[1:])) == ("qplan", 0), line
    return capsys.readouterr().out


def test_the_tutorial(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said, counts = "", {"file": 0, "append": 0, "gone": 0, "sh": 0, "text": 0}
    for mark, name, language, text in steps():
        counts[mark or language] += 1
        if mark == "gone":
            rescale, path = name.split(" in ")
            before = {r.id for r in planner.plan_from_json(Path("out/plan.json").read_text()).rescales}
            after = {r.id for r in planner.plan_from_json(Path(path).read_text()).rescales}
            assert rescale in before - after
        elif mark:
            with Path(name).open("a" if mark == "append" else "w") as file:
                file.write(text)
        elif language == "sh":
            said = "".join(obey(line, capsys) for line in text.splitlines())
        else:
            assert [line for line in text.splitlines() if line not in said] == []
    assert counts == {"file": 2, "append": 1, "gone": 1, "sh": 7, "text": 7}


def test_the_network_is_resnet_50():
    """53 convolutions, 16 additions, one dense layer."""
    sys.path.insert(0, str(ROOT / "examples"))
    import resnet50

    kinds = [node.op_type for node in resnet50.build().graph.node]
    assert [kinds.count(kind) for kind in ("Conv", "Add", "Gemm", "MaxPool")] == [53, 16, 1, 1]

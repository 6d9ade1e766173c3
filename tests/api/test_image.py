"""The image without an engine: its build script into an empty environment, and its command from there."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from api.server.probe import main
from api.server.tokens import EVERYTHING, find_token, read_tokens
from api.settings import VARIABLES, Settings
from tests.api.conftest import free_port, serving
from tests.api.documents import chain

ROOT = Path(__file__).resolve().parents[2]
TOKEN = {"Authorization": "Bearer token"}
KNOWN = "3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0"  # of "token"
UID = 10001
JAIL = """\
set -e
mount --make-rprivate /
{open_python}mount --bind {data} {data}
mount -o remount,bind,ro /
if touch /writable 2> /dev/null; then exit 9; fi
exec setpriv --reuid={uid} --regid={uid} --clear-groups -- "$@"
"""
# A Python in root's home is nobody else's to run: the jail shows that much of the home.
OPEN_PYTHON = """\
mkdir {shown}
mount --bind {python} {shown}
mount -t tmpfs -o mode=755 tmpfs {home}
mkdir -p {python}
mount --bind {shown} {python}
"""
COMPOSED = ("compose.yaml", "compose.tls.yaml")
RECIPE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def instructions(name: str) -> list[str]:
    """What follows an instruction of the Dockerfile, in order."""
    return re.findall(rf"^{name} (.*)$", RECIPE, re.MULTILINE)


def test_the_image_runs_as_nobody_special_and_holds_only_what_is_built():
    assert len(instructions("FROM")) == 2
    assert instructions("USER") == ["qplan"]
    assert instructions("RUN")[0] == "docker/build.sh /opt/qplan"
    assert instructions("COPY")[-1] == "--from=build /opt/qplan /opt/qplan"


def test_what_is_copied_is_there():
    copied = [name for line in instructions("COPY")[:-1] for name in line.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_company_setup_says_what_the_code_reads():
    setup = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    services = setup["services"]
    assert sorted(services) == ["api", "database", "scheduler", "worker"]
    told = {name for entry in services.values() for name in entry.get("environment", {})}
    assert {name for name in told if name.startswith("QPLAN_")} <= set(VARIABLES)
    assert [name for name, entry in services.items() if "ports" in entry] == ["api"]
    for name in ("api", "scheduler", "worker"):
        entry = services[name]
        assert entry["read_only"]
        assert int(entry["stop_grace_period"].removesuffix("s")) > Settings(data=ROOT).drain_seconds
        assert (entry["cap_drop"], entry["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    for entry in services.values():
        assert entry["read_only"]
        assert {"mem_limit", "cpus", "pids_limit", "cap_drop"} <= set(entry)
        assert entry["restart"] == "always"  # whatever code a worker ends with that lost its scheduler
    for name in ("scheduler", "worker"):
        module = services[name]["entrypoint"][-1].replace(
            "quant_planner_service.", "api."
        )  # its name in a checkout
        assert importlib.util.find_spec(module) is not None


def test_images_come_by_digest_and_secrets_as_files():
    setup = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    assert set(instructions("FROM")) == {"$PYTHON_IMAGE AS build", "$PYTHON_IMAGE"}
    pinned = (ROOT / "docker" / "pin.sh").read_text(encoding="utf-8")
    files = "".join((ROOT / name).read_text(encoding="utf-8") for name in COMPOSED)
    for name in ("PYTHON_IMAGE", "POSTGRES_IMAGE", "CADDY_IMAGE"):
        assert f"^{name}=" in pinned
        assert f"${{{name}:?run docker/pin.sh}}" in files
    told = {
        key: text
        for entry in setup["services"].values()
        for key, text in entry.get("environment", {}).items()
    }
    secret = {key for key in told if "TOKEN" in key or "PASSWORD" in key or "URL" in key}
    assert {
        key: told[key].partition("/run/secrets/")[2] in setup["secrets"] for key in secret
    } == dict.fromkeys(("QPLAN_TOKENS_FILE", "QPLAN_DATABASE_URL_FILE", "POSTGRES_PASSWORD_FILE"), True)
    for entry in setup["services"].values():
        assert set(entry.get("secrets", ())) <= set(setup["secrets"])


def test_the_port_is_on_this_machine_alone_unless_a_proxy_has_tls():
    setup, tls = (yaml.safe_load((ROOT / name).read_text(encoding="utf-8")) for name in COMPOSED)
    (port,) = setup["services"]["api"]["ports"]
    assert port.startswith("127.0.0.1:")
    assert list(tls["services"]) == ["proxy"]
    proxy = tls["services"]["proxy"]
    assert {"read_only", "mem_limit", "cpus", "pids_limit"} <= set(proxy)
    assert (proxy["cap_drop"], proxy["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert set(proxy["secrets"]) == set(tls["secrets"])
    told = (ROOT / "docker" / "Caddyfile").read_text(encoding="utf-8")
    assert all(f"/run/secrets/{name}" in told for name in tls["secrets"])
    assert "reverse_proxy api:8000" in told


def test_a_probe_says_whether_a_server_is_there(server):
    """Health checks call it in compose.yaml, and in the image where its format keeps them."""
    setup = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    called = [setup[name]["healthcheck"]["test"] for name in ("api", "scheduler")]
    called.append(["CMD", *json.loads(instructions("HEALTHCHECK CMD")[0])])
    for line in called:
        assert line[:4] == ["CMD", "python", "-m", "quant_planner_service.server.probe"]
        assert not any(set(word) & set(" '\"") for word in line)  # engines lose them
    assert called[0][5] == "/v1/health/ready"
    assert main(str(server.port), ["/v1/health/ready"]) == 0
    assert main(str(server.port), ["/v1/health/other"]) == 1
    assert main(str(server.port), []) == 0
    assert main(str(free_port()), []) == 1


def test_a_build_that_requires_hashes_says_what_makes_them(tmp_path):
    folder = tmp_path / "docker"
    folder.mkdir()
    shutil.copy(ROOT / "docker" / "build.sh", folder)
    line = [folder / "build.sh", tmp_path / "made"]
    variables = {**os.environ, "REQUIRE_HASHES": "1"}
    done = subprocess.run(line, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, "run make hashes" in done.stderr) == (1, True)
    assert instructions("ARG")[-1] == "REQUIRE_HASHES="
    setup = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    assert setup["services"]["api"]["build"]["args"]["REQUIRE_HASHES"] == "1"


def test_secrets_are_made_once(tmp_path):
    line = [ROOT / "docker" / "secrets.sh"]
    first = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    second = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made
    (token,) = read_tokens(str(tmp_path / "secrets" / "tokens"), "QPLAN_TOKENS_FILE")
    assert find_token([token], f"Bearer {first.split()[-1]}".encode()) == token
    assert (token.name, token.scopes, second) == ("first", EVERYTHING, "")
    password = (tmp_path / "secrets" / "database_password").read_text()
    assert re.fullmatch(r"[0-9a-f]{48}", password)
    assert password in (tmp_path / "secrets" / "database_url").read_text()
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "secrets").iterdir()} == {0o644}


def test_a_database_that_is_there_keeps_its_password(tmp_path):
    kept = {**os.environ, "POSTGRES_PASSWORD": "of-before"}
    subprocess.run([ROOT / "docker" / "secrets.sh"], cwd=tmp_path, env=kept, check=True)
    assert (tmp_path / "secrets" / "database_password").read_text() == "of-before"
    assert "qplan:of-before@" in (tmp_path / "secrets" / "database_url").read_text()


def test_pins_leave_the_other_lines_of_the_settings(tmp_path):
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho sha256:1\n")
    docker.chmod(0o755)
    (tmp_path / ".env").write_text("QPLAN_TOKENS=a\nPYTHON_IMAGE=python@sha256:0\n")
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([ROOT / "docker" / "pin.sh"], cwd=tmp_path, env=path, check=True, capture_output=True)
    assert (tmp_path / ".env").read_text().splitlines() == [
        "QPLAN_TOKENS=a",
        "PYTHON_IMAGE=docker.io/library/python@sha256:1",
        "POSTGRES_IMAGE=docker.io/library/postgres@sha256:1",
        "CADDY_IMAGE=docker.io/library/caddy@sha256:1",
    ]


WITHOUT_BUILDX = """\
#!/bin/sh
case $1 in
    buildx) exit 1 ;;
    image) [ "$2 $4" = "inspect --format" ] && echo "${3%:*}@sha256:2" ;;
esac
"""


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_pins_need_no_buildx(tmp_path, engine):
    for name in ("docker", "podman"):
        (tmp_path / name).write_text(WITHOUT_BUILDX if name == engine else "#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([ROOT / "docker" / "pin.sh"], cwd=tmp_path, env=path, check=True, capture_output=True)
    assert "POSTGRES_IMAGE=docker.io/library/postgres@sha256:2" in (tmp_path / ".env").read_text()


def test_without_an_engine_pins_say_so_and_leave_the_settings(tmp_path):
    for name in ("docker", "podman"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    line = [ROOT / "docker" / "pin.sh"]
    done = subprocess.run(line, cwd=tmp_path, env=path, check=False, capture_output=True, text=True)
    said = "docker/pin.sh: no engine answers: install podman, or start docker\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert not list(tmp_path.glob(".env*"))


def test_without_an_engine_the_walk_is_skipped_by_name(tmp_path):
    for name in ("docker", "podman"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    line = [ROOT / "docker" / "test.sh"]
    done = subprocess.run(line, cwd=ROOT, env=path, check=True, capture_output=True, text=True)
    assert done.stdout == "image-test: SKIPPED: no engine answers: install podman, or start docker\n"


def test_requirements_have_the_hashes_that_pip_found():
    found = {"archive_info": {"hashes": {"sha256": "ab"}}}
    report = [
        {"metadata": {"name": "b", "version": "2"}, "download_info": found},
        {"metadata": {"name": "A", "version": "1"}, "download_info": found},
        {"metadata": {"name": "quant-planner", "version": "0"}, "download_info": {"dir_info": {}}},
    ]
    line = [sys.executable, ROOT / "docker" / "hashes.py"]
    done = subprocess.run(
        line, input=json.dumps({"install": report}), capture_output=True, text=True, check=True
    )
    assert done.stdout == "A==1 --hash=sha256:ab\nb==2 --hash=sha256:ab\n"


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """The environment that docker/build.sh makes of what the Dockerfile copies, where anybody may look."""
    with tempfile.TemporaryDirectory(prefix="image.", dir="/var/tmp") as place:
        folder = Path(place)
        folder.chmod(0o755)
        source, home = folder / "source", folder / "opt"
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
        copied = tuple(name for line in instructions("COPY")[:-1] for name in line.split()[:-1])
        for name in listed.stdout.splitlines():
            if name.split("/")[0] in copied:
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, source / name)
        line = ["docker/build.sh", str(home)]
        quick = {**os.environ, "PIP_NO_COMPILE": "1"}  # bytecode of what nobody imports here
        done = subprocess.run(line, cwd=source, capture_output=True, text=True, check=False, env=quick)
        assert done.returncode == 0, done.stdout + done.stderr
        yield home


def command_of(home: Path) -> tuple[str, ...]:
    """What the image runs."""
    entry, *_ = json.loads(instructions("ENTRYPOINT")[0])
    return (str(home / "bin" / entry), *json.loads(instructions("CMD")[-1]))


@pytest.mark.soak
def test_the_built_environment_serves(built, tmp_path):
    with serving(tmp_path, command_of(built), QPLAN_TOKENS=KNOWN, PYTHONPATH="") as server:
        local = f"http://127.0.0.1:{server.port}"
        body = {"model": chain(3), "target": "litert-int8"}
        assert httpx.post(f"{local}/v1/plans", json=body, trust_env=False).status_code == 401
        plan = httpx.post(f"{local}/v1/plans", json=body, headers=TOKEN, trust_env=False)
        assert plan.json()["format"] == "qplan.plan/1"
        lint = httpx.post(
            f"{local}/v1/targets:lint",
            content="id: x",
            headers={**TOKEN, "Content-Type": "application/yaml"},
            trust_env=False,
            timeout=60,
        )
        assert lint.status_code == 422


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a root that nobody may write")
def test_it_serves_as_the_images_user_with_a_root_that_is_read_only(built):
    data = built.parent / "data"
    data.mkdir()
    os.chown(data, UID, UID)
    jail = built.parent / "jail.sh"
    python, home = Path(sys.base_prefix), Path.home()
    hidden = python.is_relative_to(home)
    shown = OPEN_PYTHON.format(shown=data.parent / "python", python=python, home=home) if hidden else ""
    jail.write_text(JAIL.format(data=data, uid=UID, open_python=shown))
    command = ("unshare", "--mount", "sh", str(jail), *command_of(built))
    with serving(data, command, QPLAN_TOKENS=KNOWN, PYTHONPATH="", TMPDIR=str(data)) as server:
        local = f"http://127.0.0.1:{server.port}"
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        assert f"Uid:\t{UID}\t{UID}" in status
        body = {"model": chain(3), "target": "litert-int8"}
        headers = {**TOKEN, "Prefer": "respond-async"}
        asked = {"content": "id: x", "headers": {**TOKEN, "Content-Type": "application/yaml"}, "timeout": 60}
        assert httpx.post(f"{local}/v1/targets:lint", trust_env=False, **asked).status_code == 422
        assert httpx.post(f"{local}/v1/plans", json=body, headers=headers, trust_env=False).status_code == 200
    assert (data / "qplan.sqlite").exists()

"""Doctor: checks of the settings of this machine, and of the folders and servers they name.

It leaves nothing behind. Each check answers alone, so that one failure does not hide the next.
Source: docs/service.md.
"""

import difflib
import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from time import perf_counter
from typing import Any, Final

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import SQLAlchemyError

from planner.errors import InputError, PlannerError, quantity
from planner.installation import install_command
from planner.target.yamltree import read_yaml
from planner.version import VERSION

from ..jobs.child_process import Bounds, run_child
from ..jobs.forks import Unavailable, WorkerLost
from ..jobs.records import work, written
from ..paths import PACKAGE, import_path
from ..planning.plugins import load_functions
from ..problems import Refused
from ..schemas.examples import TARGET
from ..settings import DATABASE_URLS, VARIABLES, Settings, settings_from, unknown_variables
from ..storage.database import DATABASE, default_url, make_engine, reading
from ..storage.objects import open_objects
from ..storage.postgres import unusable
from ..storage.store import Store
from .backup import damaged
from .run import is_loopback

LITTLE: Final = 1 << 30
OLDEST_ONNX: Final = (1, 21)
_PACKAGES: Final = ("fastapi", "onnx", "onnxruntime", "pydantic", "SQLAlchemy", "uvicorn")
_CONFINED: Final = (
    f"import json; from pathlib import Path; from {PACKAGE}.intake.confine import confine;"
    "print(json.dumps(confine([Path('/')], [])))"
)


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: `good`, `odd` (works, look at it) or `bad`."""

    name: str
    state: str
    detail: str


def examine(environment: Mapping[str, str], host: str, *, deep: bool = False) -> list[Check]:
    """Look at everything.

    Args:
      host: where the server is to listen.
      deep: also read every blob and compare it with its digest, and the whole of SQLite's file.
    """
    found = [*_versions(), *_variables(environment)]
    refused = {name: refusal for name in VARIABLES if (refusal := _refusal(name, environment))}
    settings = settings_from({name: text for name, text in environment.items() if name not in refused})
    found += [Check("settings", "bad", refusal) for refusal in refused.values()]
    found += [] if refused else [Check("settings", "good", f"data in {settings.data}")]
    for name, look in CHECKS.items():
        try:
            found += look(name, settings)
        except Exception as error:  # noqa: BLE001 - a doctor goes on, whatever one organ does
            found.append(Check(name, "bad", f"{type(error).__name__}: {error}"))
    found += _tokens(settings, host)
    if deep:
        broken = damaged(settings.data)
        detail = f"damaged: {', '.join(broken[:10])}" if broken else "every file matches its digest"
        found.append(Check("digests", "bad" if broken else "good", detail))
        found += _rows(settings)
    return found


def _versions() -> Iterator[Check]:
    python = platform.python_version()
    yield Check(
        "versions", "good", f"qplan {VERSION}, Python {python}, {platform.system()} {platform.machine()}"
    )
    names = []
    for package in _PACKAGES:
        try:
            names.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            yield Check("packages", "bad", f"{package} is not installed")
    yield Check("packages", "good", ", ".join(names))
    onnx = tuple(int(part) for part in importlib.metadata.version("onnx").split(".")[:2])
    if onnx < OLDEST_ONNX:
        yield Check("packages", "bad", "onnx is older than 1.21, which has known holes")
    try:
        read_yaml("a: 1", "probe")
    except InputError as error:
        yield Check("packages", "bad", str(error))


def _variables(environment: Mapping[str, str]) -> Iterator[Check]:
    for name in unknown_variables(environment):
        near = difflib.get_close_matches(name, VARIABLES, n=1)
        yield Check("settings", "odd", f"{name} is no setting" + (f"; {near[0]}?" if near else ""))


def _refusal(variable: str, environment: Mapping[str, str]) -> str:
    together = DATABASE_URLS if variable == DATABASE_URLS[-1] else (variable,)
    try:
        settings_from({name: environment.get(name, "") for name in together})
    except PlannerError as error:
        return str(error)
    return ""


def _data(name: str, settings: Settings) -> Iterator[Check]:
    folder = settings.data
    if not folder.is_dir():
        parent = next(path for path in (folder, *folder.parents) if path.exists())
        refusal = "it is a file" if parent.is_file() else _no_folders(parent)
        detail = f"not there, and {parent} takes no folders: {refusal}" if refusal else "not there yet"
        yield Check(name, "bad" if refusal else "odd", f"{folder} is {detail}")
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix="doctor.") as probe:
        (Path(probe) / "a").write_bytes(b"x")
        os.link(Path(probe) / "a", Path(probe) / "b")
        (Path(probe) / "b").rename(Path(probe) / "c")
    free = shutil.disk_usage(folder).free
    detail = f"{folder} takes files, {free >> 20} MiB are free"
    yield Check(name, "odd" if free < LITTLE else "good", detail)


def _no_folders(parent: Path) -> str:
    """Why no folder can be made in a folder; nothing where one can."""
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix="doctor."):
            return ""
    except OSError as error:
        return error.strerror or type(error).__name__


def _database(name: str, settings: Settings) -> Iterator[Check]:
    if not settings.database_url and not (settings.data / DATABASE).exists():
        yield Check(name, "odd", "SQLite in the data folder, not made yet")
        return
    url = settings.database_url or default_url(settings.data)
    try:
        engine = make_engine(url)
    except InputError as error:
        yield Check(name, "bad", str(error))
        return
    shown = engine.url.render_as_string(hide_password=True)
    try:
        with engine.connect() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
            fault, hint = unusable(connection)
    except SQLAlchemyError as error:
        yield Check(name, "bad", f"{shown} does not answer: {getattr(error, 'orig', error)}")
        return
    finally:
        engine.dispose()
    if fault:
        yield Check(name, "bad", f"{shown}: {fault} ({hint})")
        return
    newest = ScriptDirectory(str(Path(__file__).parents[1] / "migrations")).get_current_head()
    behind = "" if found == newest else f"; tables of version {found}, this qplan has {newest}"
    yield Check(name, "odd" if behind else "good", f"{shown} answers{behind}")


def _rows(settings: Settings) -> Iterator[Check]:
    """Whether SQLite finds its own file whole; it reads all of it."""
    engine = make_engine(settings.database_url or default_url(settings.data))
    if engine.dialect.name != "sqlite" or not Path(str(engine.url.database)).exists():
        return
    try:
        with reading(engine) as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(3)").scalars().all()
    except SQLAlchemyError as error:
        found = [str(getattr(error, "orig", error))]
    finally:
        engine.dispose()
    broken = "" if list(found) == ["ok"] else "; ".join(" ".join(text.split()) for text in found)
    yield Check("rows", "bad" if broken else "good", broken or "the database is whole")


def _blobs(name: str, settings: Settings) -> Iterator[Check]:
    objects = open_objects(settings.blobs)
    if objects is None:
        yield Check(name, "good", "files in the data folder")
        return
    probe = f"doctor/{token_hex(8)}"
    try:
        with tempfile.TemporaryDirectory(prefix="doctor.") as folder:
            (Path(folder) / "sent").write_bytes(b"x")
            objects.send(Path(folder) / "sent", probe)
            objects.fetch(probe, Path(folder) / "back")
            objects.drop(probe)
    except Refused as error:
        yield Check(name, "bad", f"{settings.blobs}: {error.problem.detail}")
        return
    yield Check(name, "good", f"{settings.blobs} takes and gives files")


def _executor(name: str, settings: Settings) -> Iterator[Check]:
    if not settings.executor:
        yield Check(name, "good", "jobs run on this machine")
        return
    if not settings.executor.startswith("dask://"):
        yield Check(name, "bad", f"QPLAN_EXECUTOR is {settings.executor!r}; dask://HOST:PORT is known")
        return
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        yield Check(name, "bad", f"Dask is not installed: {install_command('cluster')}")
        return
    address = settings.executor.replace("dask://", "tcp://")
    try:
        with distributed.Client(address, timeout=5, set_as_default=False) as client:
            workers = client.scheduler_info()["workers"]
    except (OSError, TimeoutError, ValueError) as error:
        yield Check(name, "bad", f"no scheduler at {address}: {error}")
        return
    yield Check(name, "good" if workers else "bad", f"{address} answers, {quantity(len(workers), 'worker')}")


def _children(name: str, settings: Settings) -> Iterator[Check]:
    bounds = Bounds(settings.child_memory, settings.child_seconds, settings.functions)
    with tempfile.TemporaryDirectory(prefix="doctor.") as folder:
        store = Store(Path(folder))
        store.open()
        start = perf_counter()
        try:
            target = work("lint", {"text": written(TARGET), "name": "doctor"})
            run_child(store, target, bounds)
        except (Refused, Unavailable, WorkerLost) as error:
            yield Check(name, "bad", f"a child that reads a small target ended with: {error}")
            return
    yield Check(name, "good", f"a child reads a small target in {perf_counter() - start:.1f} s")


def _confinement(name: str, _settings: Settings) -> Iterator[Check]:
    line = [sys.executable, "-P", "-c", _CONFINED]
    variables = {**os.environ, "PYTHONPATH": import_path()}
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=True)  # noqa: S603
    took: dict[str, bool] = json.loads(done.stdout)
    lacking = [part for part, is_there in took.items() if not is_there]
    detail = f"the kernel does not confine {', '.join(lacking)}" if lacking else "privileges, calls and files"
    yield Check(name, "odd" if lacking else "good", detail)


def _plugins(name: str, settings: Settings) -> Iterator[Check]:
    found = load_functions(settings.functions)
    yield Check(name, "good", ", ".join(found) if found else "no functions of targets are allowed")


def _tokens(settings: Settings, host: str) -> Iterator[Check]:
    if not settings.tokens:
        local = is_loopback(host)
        detail = "none; loopback only" if local else f"none, and {host} can be reached from other machines"
        yield Check("tokens", "good" if local else "bad", detail)
        return
    names = [token.principal for token in settings.tokens]
    twice = {name for name in names if names.count(name) > 1}
    shown = ", ".join(f"{token.principal} ({'+'.join(sorted(token.scopes))})" for token in settings.tokens)
    yield Check(
        "tokens", "odd" if twice else "good", shown + (f"; twice: {', '.join(twice)}" if twice else "")
    )


CHECKS: Final[Mapping[str, Callable[[str, Settings], Iterator[Check]]]] = {
    "data": _data,
    "database": _database,
    "blobs": _blobs,
    "executor": _executor,
    "plugins": _plugins,
    "children": _children,
    "confinement": _confinement,
}

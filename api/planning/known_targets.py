"""Known targets: targets that plans may name, the shipped ones and those that were put.

A description that was put is untrusted text, and so are the conditions in it: children read it, lint it and
plan with it. This process knows its record alone. A version never changes. Source: docs/service.md.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anyio.to_thread import run_sync

from planner.installation import targets_folder
from planner.target.load import load_target, target_ids
from planner.target.records import Target

from ..intake.sandbox import Sandbox
from ..jobs.records import drafted, stored, work
from ..problems import Refused, unknown
from ..storage.digests import digest_of
from ..storage.followers import drop_followers
from ..storage.store import Store

_VERSION: Final = re.compile(r"([0-9.]*)(.*)", re.DOTALL)
_FIELDS: Final = ("id", "version", "title", "mode", "digest")


@dataclass(frozen=True, slots=True)
class KnownTarget:
    """The record of a target. Only a shipped one is loaded in this process."""

    id: str
    version: str
    digest: str
    shipped: Target | None = None


def shipped_targets() -> dict[str, Target]:
    """Load every shipped target once."""
    return {name: load_target(name) for name in target_ids()}


class KnownTargets:
    """The targets of one server.

    Args:
      shipped: by id.
    """

    def __init__(self, store: Store, shipped: Mapping[str, Target]) -> None:
        self.store = store
        self.shipped = shipped

    async def find(self, name: str) -> KnownTarget:
        """Find a target by `id` or `id@version`; of several versions that were put, the newest.

        Raises:
          Refused: there is none, with the nearest.
        """
        id_, _, version = name.partition("@")
        target = self.shipped.get(id_)
        if target is not None and version in ("", target.version):
            return KnownTarget(target.id, target.version, target.digest, target)
        return await run_sync(self._find_kept, name)

    def records(self) -> list[dict[str, Any]]:
        """The record of every target, by id and version."""
        shipped = [{key: getattr(t, key) for key in _FIELDS} for t in self.shipped.values()]
        found: list[dict[str, Any]] = [record | {"shipped": True} for record in shipped]
        found += [{key: record[key] for key in _FIELDS} | {"shipped": False} for record in self._kept()]
        return sorted(found, key=lambda record: (record["id"], _order(record["version"])))

    def delete(self, name: str) -> None:
        """Take a description that was put away, by `id@version`; its plans stay, but cannot be edited.

        Raises:
          Refused: a shipped target.
        """
        if name.partition("@")[0] in self.shipped:
            raise Refused("input-invalid", f"{name!r} is a shipped target", hint="those that were put can go")
        record = self._record(name)
        digest = digest_of(name.encode())
        self.store.drop("targets", digest)
        drop_followers(self.store, digest)
        if self.store.has("descriptions", record["description"]):
            self.store.drop("descriptions", record["description"])

    async def put(
        self, name: str, text: Path, sandbox: Sandbox, file: str | None = None
    ) -> tuple[dict[str, Any], bool]:
        """Keep a description under `id@version`; gives its report, and whether it is new.

        Raises:
          Refused: errors in the description, another id or version in it, or another target of that name.
        """
        report = await lint_target(sandbox, text, file or file_name(name))
        own = f"{report['id']}@{report['version']}"
        if own != name:
            raise Refused("input-invalid", f"the description is of {own!r}", hint=f"put it under {own}")
        return report, await run_sync(self._keep, name, text, report)

    def source(self, name: str) -> str:
        """The YAML of a target that was found, by `id@version`."""
        id_, _, version = name.partition("@")
        if id_ in self.shipped and self.shipped[id_].version == version:
            return (targets_folder() / f"{id_}.yaml").read_text("utf-8")
        kept = self.store.find_verified("descriptions", self._record(name)["description"])
        return kept.read_text(encoding="utf-8-sig")

    def argument(self, name: str) -> dict[str, Any]:
        """The argument that tells a task its target, by `id@version`: a shipped one, or a description.

        Raises:
          Refused: there is none.
        """
        id_, _, version = name.partition("@")
        if id_ in self.shipped and self.shipped[id_].version == version:
            return {"name": id_}
        return {"name": file_name(name), "text": stored("descriptions", self._record(name)["description"])}

    def _keep(self, name: str, path: Path, report: Mapping[str, Any]) -> bool:
        text = path.read_bytes()
        id_ = name.partition("@")[0]
        if id_ in self.shipped:
            raise Refused("exists", f"{id_!r} is a shipped target", hint="choose an id of your own")
        is_new = not self.store.has("targets", digest_of(name.encode()))
        digest = digest_of(text)
        if is_new:
            self.store.put("descriptions", digest, text)
            record = {key: report[key] for key in _FIELDS} | {"description": digest}
            self.store.put("targets", digest_of(name.encode()), json.dumps(record).encode())
        kept = self._record(name)
        if digest != kept["description"] and report["digest"] != kept["digest"]:
            raise Refused(
                "exists",
                f"{name} is kept already, as {kept['digest']}",
                found=kept["digest"],
                hint="a version never changes: give it the next one",
            )
        return is_new

    def _find_kept(self, name: str) -> KnownTarget:
        id_, _, version = name.partition("@")
        whole = name
        if not version:
            versions = [record["version"] for record in self._kept() if record["id"] == id_]
            whole = f"{id_}@{max(versions, key=_order, default='')}"
        if not self.store.has("targets", digest_of(whole.encode())):
            known = [f"{record['id']}@{record['version']}" for record in self.records()]
            raise unknown("target", name, [*self.shipped, *known])
        record = self._record(whole)
        self.store.find_verified("descriptions", record["description"])
        return KnownTarget(record["id"], record["version"], record["digest"])

    def _record(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.store.read_json("targets", digest_of(name.encode()))
        return found

    def _kept(self) -> Iterator[dict[str, str]]:
        for digest in self.store.digests("targets"):
            yield self.store.read_json("targets", digest)


async def lint_target(sandbox: Sandbox, text: Path, name: str) -> dict[str, Any]:
    """Read a target description in a child: its id, version and digest, and its lint findings.

    Args:
      text: a draft of the store.
      name: stands for the file in messages.

    Raises:
      Refused: errors in the description.
    """
    report = await sandbox.run(work("lint", {"text": drafted(text), "name": name}))
    del report["kept"]
    return report


async def try_target(sandbox: Sandbox, text: Path, name: str) -> dict[str, Any]:
    """Run the tests of a target description in a child; arguments as of `lint_target`.

    Raises:
      Refused: errors in the description.
    """
    report = await sandbox.run(work("test", {"text": drafted(text), "name": name}))
    del report["kept"]
    return report


def file_name(name: str) -> str:
    """The name of a description's file in messages: `my-npu.yaml` of `my-npu@1.0.0`."""
    return f"{name.partition('@')[0]}.yaml"


def _order(version: str) -> tuple[list[int], bool, str]:
    """Versions in order: numbers as numbers, a pre-release before its release."""
    found = _VERSION.fullmatch(version)
    numbers, rest = (found[1], found[2]) if found else ("", version)
    return [int(part) for part in numbers.split(".") if part], not rest.startswith("-"), rest

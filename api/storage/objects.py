"""Objects: the store's files in an object store that many servers share, through fsspec (`s3://BUCKET/PREFIX`).

Names are `KIND/xx/REST`, as in the folder. An object is written whole or not at all; nothing here knows what
one holds. Source: docs/service.md.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

from planner.errors import InputError

from ..problems import Refused

PART: Final = ".part"
SCHEMES: Final = ("s3", "file")
ACCEPTED: Final = "s3://BUCKET/PREFIX or file:///DIR"


@dataclass(frozen=True, slots=True)
class Objects:
    """Files below one address of an object store; one with folders shows a file before it is whole."""

    system: Any
    root: str
    has_folders: bool

    def below(self, folder: str) -> "Objects":
        """Files below a folder of these."""
        return replace(self, root=f"{self.root}/{folder}")

    def has(self, name: str) -> bool:
        """Whether there is an object of this name."""
        return bool(_tried(self.system.exists, self._path(name)))

    def fetch(self, name: str, path: Path) -> bool:
        """Copy an object into a file; False where there is none."""
        try:
            self.system.get_file(self._path(name), str(path))
        except FileNotFoundError:
            return False
        except Exception as error:
            raise _unreachable(error) from error
        return True

    def send(self, path: Path, name: str) -> None:
        """Keep a file under a name."""
        if not self.has_folders:
            _tried(self.system.put_file, str(path), self._path(name))
            return
        part = self._path(f"{name}.{secrets.token_hex(4)}{PART}")
        _tried(self.system.put_file, str(path), part)
        _tried(self.system.mv, part, self._path(name))

    def drop(self, name: str) -> None:
        """Take an object away; one that is not there stays away."""
        if self.has(name):
            _tried(self.system.rm_file, self._path(name))

    def names(self, folder: str) -> Iterator[str]:
        """The last part of each name in a folder: of a kind, or those that begin alike."""
        yield from self._sizes(folder)

    def size(self, folder: str) -> int:
        """Bytes of all objects in a folder."""
        return sum(self._sizes(folder).values())

    def times(self, folder: str) -> dict[str, int]:
        """When each object in a folder was written, in nanoseconds since 1970, by its last name."""
        return {name: _written(about) for name, about in self._found(folder)}

    def _sizes(self, folder: str) -> dict[str, int]:
        return {name: int(about["size"]) for name, about in self._found(folder)}

    def _found(self, folder: str) -> Iterator[tuple[str, Any]]:
        _tried(self.system.invalidate_cache)
        found = _tried(self.system.find, self._path(folder), detail=True)
        named = ((str(path).rpartition("/")[2], about) for path, about in found.items())
        return ((name, about) for name, about in named if not name.endswith(PART))

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"


def open_objects(url: str) -> Objects | None:
    """Open `QPLAN_BLOBS`: `s3://BUCKET/PREFIX`, `file:///DIR`; nothing is the data folder alone.

    Raises:
      InputError: an address that nothing here can open.
    """
    if not url:
        return None
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        raise InputError(f"QPLAN_BLOBS: cannot open {url!r}: {scheme!r} is no scheme here", hint=ACCEPTED)
    try:
        # No caches: another server may just have written, and keys change.
        system, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except (ValueError, ImportError) as error:
        raise InputError(f"QPLAN_BLOBS: cannot open {url!r}: {error}", hint=ACCEPTED) from error
    local = isinstance(system, LocalFileSystem)
    if local:
        system = LocalFileSystem(auto_mkdir=True)
    return Objects(system, str(root).rstrip("/"), has_folders=local)


def _written(about: Any) -> int:
    """When an object was written: S3 says it as a date, a folder in seconds."""
    at = about["LastModified"].timestamp() if "LastModified" in about else about["mtime"]
    return int(at * 1e9)


def _tried(call: Any, *arguments: Any, **named: Any) -> Any:
    try:
        return call(*arguments, **named)
    except Exception as error:  # each store's client has errors of its own
        raise _unreachable(error) from error


def _unreachable(error: Exception) -> Refused:
    return Refused("not-ready", f"the object store does not answer: {type(error).__name__}")

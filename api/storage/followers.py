"""Followers: files made of a plan, model, statistics or blob, named nowhere and deleted with it.

For each such source there is a folder of empty files, `followers/SOURCE/FOLLOWER`, or as many empty objects;
empty, so a quota does not count them. Files that an earlier version kept have none until they are requested
again; `retention` finds them. Source: docs/service.md.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..problems import Refused
from .store import Kind, Store

FOLLOWERS: Final = "followers"
FOLLOWING: Final[tuple[Kind, ...]] = ("answers", "states")
"""Kinds that follow from others."""
Source = tuple[Kind, str]


def follow(store: Store, digest: str, sources: Iterable[Source]) -> None:
    """Note that an answer or a state follows from each of some sources: before it is kept."""
    for _, source in sources:
        if store.objects is None:
            _touch(store.root / _name(source, digest))
        elif not store.objects.has(_name(source, digest)):
            with store.draft() as folder:
                (folder / "data").touch()
                store.objects.send(folder / "data", _name(source, digest))


def require_sources(store: Store, digest: str, sources: Iterable[Source]) -> None:
    """Take an answer away again where a source went while it was made: nobody else would.

    Raises:
      Refused: the source is not there, as if it had gone before.
    """
    gone = [(kind, source) for kind, source in sources if not store.has(kind, source)]
    if gone:
        _drop(store, digest)
        store.find(*gone[0])


def followers(store: Store, source: str) -> Iterator[str]:
    """Digests of what follows from a source, whether or not it is kept."""
    folder = f"{FOLLOWERS}/{_bare(source)}"
    if store.objects is not None:
        yield from [f"sha256:{name}" for name in store.objects.names(folder)]
    elif (store.root / folder).is_dir():
        yield from [f"sha256:{path.name}" for path in (store.root / folder).iterdir()]


def drop_followers(store: Store, source: str, but: frozenset[str] = frozenset()) -> None:
    """Take away what follows from a source, once the source itself is gone.

    Args:
      but: what follows from others too, and is as good without this one.
    """
    for digest in followers(store, source):
        if digest not in but:
            _drop(store, digest)
        if store.objects is not None:
            store.objects.drop(_name(source, digest))
        else:
            (store.root / _name(source, digest)).unlink(missing_ok=True)
    with suppress(OSError):  # somebody may just have noted another one
        (store.root / FOLLOWERS / _bare(source)).rmdir()


def sources_here(store: Store) -> list[str]:
    """The sources that something was noted to follow from, in the folder."""
    folder = store.root / FOLLOWERS
    return [f"sha256:{path.name}" for path in folder.iterdir()] if folder.is_dir() else []


def _drop(store: Store, digest: str) -> None:
    for kind in FOLLOWING:
        if store.has(kind, digest):
            with suppress(Refused):  # somebody else just did
                store.drop(kind, digest)


def _touch(path: Path) -> None:
    try:
        path.touch()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _name(source: str, digest: str) -> str:
    return f"{FOLLOWERS}/{_bare(source)}/{_bare(digest)}"


def _bare(digest: str) -> str:
    return digest.removeprefix("sha256:")

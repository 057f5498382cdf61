"""Snapshots in flight: each listed in a thread of its own, its outcome put into words once, here.

The listing itself is `cache_engine.snapshot.take` over `cache_engine.sources.open_source`; it is an argument
(`Take`), as is everything that the outside gives. Threads are daemons: a source that hangs cannot hold up `down`.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from cache_engine.access import MountAccess
from cache_engine.errors import CacheEngineError
from dataset_controller.observed import Failure, Snapshot, Taking

SUFFIX = ".manifest"

_log = logging.getLogger(__name__)

_REASONS = {
    "MissingCredential": "CredentialMissing",
    "AccessDenied": "SourceDenied",
    "EmptySnapshot": "SourceEmpty",
    "ListingCutShort": "ListingTruncated",
    "SourceThrottled": "SourceThrottled",
    "SourceUnavailable": "SourceUnavailable",
    "UnsupportedSource": "SourceUnsupported",
    "ObjectChanged": "ObjectChanged",
    "NotFound": "SourceNotFound",
    "InvalidValue": "ListingInvalid",
    "OSError": "StateDirectoryFailed",
    "DatabaseError": "StateDirectoryFailed",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """How many files a new snapshot adds, changes and no longer has."""

    added: int = 0
    changed: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True)
class Listed:
    """What one listing gave: the manifest's file, under a name of its own, and how it differs from the one before."""

    digest: str
    files: int
    bytes: int
    path: Path
    difference: Difference
    hidden: int = 0
    unshowable: int = 0


Take = Callable[[tuple[MountAccess, ...], Path, Path | None], Listed]
"""(mounts, directory for the manifest, the manifest before or None) -> Listed. Raises CacheEngineError, OSError."""
Done = Callable[[Snapshot, Difference], None]
Failed = Callable[[Failure, Exception], None]


@dataclass(slots=True)
class _Flight:
    """One listing. `wanted` is cleared by the starter's thread only; the listing's thread never looks at it."""

    taking: Taking
    wanted: bool = True


class Snapshots:
    """At most one wanted listing a Dataset. All state belongs to the control thread; `post` brings outcomes there."""

    def __init__(
        self, take: Take, directory: Path, post: Callable[[Callable[[], None]], None], clock: Callable[[], float]
    ) -> None:
        self._take = take
        self._directory = directory
        self._post = post
        self._clock = clock
        self._flights: dict[str, _Flight] = {}
        self._failures: dict[str, Failure] = {}

    def __repr__(self) -> str:
        return f"<Snapshots {len(self._flights)} in flight, {len(self._failures)} failed>"

    def taking(self, uid: str) -> Taking | None:
        flight = self._flights.get(uid)
        return flight.taking if flight else None

    def failure(self, uid: str) -> Failure | None:
        return self._failures.get(uid)

    def forget(self, uid: str) -> None:
        """Its listing in flight, if any, comes to nothing."""
        if flight := self._flights.pop(uid, None):
            flight.wanted = False
        self._failures.pop(uid, None)

    def start(self, uid: str, taking: Taking, before: Snapshot | None, done: Done, failed: Failed) -> None:
        """Begin to list; `done` or `failed` is called on the control thread unless something newer was started."""
        if flight := self._flights.get(uid):
            flight.wanted = False
        flight = self._flights[uid] = _Flight(taking)

        def succeed(listed: Listed) -> None:
            if not flight.wanted:
                listed.path.unlink(missing_ok=True)
                return
            try:
                done(_snapshot(listed, self._settle(listed), taking), listed.difference)
            except (OSError, sqlite3.DatabaseError) as error:  # whoever waits for this snapshot hears of it
                fail(error)
                return
            if self._flights.get(uid) is flight:
                del self._flights[uid]
            self._failures.pop(uid, None)

        def fail(error: Exception) -> None:
            if flight.wanted:
                del self._flights[uid]
                failure = self._failures[uid] = failure_of(error, taking, self._failures.get(uid), self._clock())
                failed(failure, error)

        def run() -> None:
            try:
                listed = self._take(taking.mounts, self._directory, Path(before.path) if before else None)
            except Exception as error:  # noqa: BLE001 - fsspec raises anything, and people wait for the end of this
                if not isinstance(error, CacheEngineError | OSError):
                    _log.exception("the listing for %s failed in a way that nobody foresaw", uid)
                self._post(lambda caught=error: fail(caught))  # type: ignore[misc]
            else:
                self._post(lambda: succeed(listed))

        threading.Thread(target=run, name=f"snapshot-{uid[:8]}", daemon=True).start()

    def _settle(self, listed: Listed) -> Path:
        """Give the manifest its final name, on the control thread: a sweep never falls between that and the store."""
        path = self._directory / f"{listed.digest}{SUFFIX}"
        if listed.path != path:
            os.replace(listed.path, path)
        return path


def reason_of(error: BaseException) -> str:
    """The condition's reason for an error: by its class, or the nearest one above that has a word."""
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((_REASONS[name] for name in names if name in _REASONS), "SnapshotFailed")


def failure_of(error: Exception, taking: Taking, before: Failure | None, now: float) -> Failure:
    """A failure in the words of the status; tries are counted on while the mounts are the same."""
    tries = before.attempts if before and before.mounts == taking.mounts else 0
    return Failure(
        reason=reason_of(error),
        message=" ".join(str(error).split()) or type(error).__name__,
        retryable=bool(getattr(error, "retryable", isinstance(error, OSError | sqlite3.DatabaseError))),
        attempts=tries + 1,
        at=now,
        mounts=taking.mounts,
        retry_after=getattr(error, "retry_after", None),
    )


def _snapshot(listed: Listed, path: Path, taking: Taking) -> Snapshot:
    return Snapshot(
        digest=listed.digest,
        files=listed.files,
        bytes=listed.bytes,
        began=taking.began,
        mounts=taking.mounts,
        path=str(path),
        hidden=listed.hidden,
        unshowable=listed.unshowable,
    )


def real_take(environ: Mapping[str, str]) -> Take:
    """The listing over real sources. The data plane is imported by the first listing, in its thread."""

    def take(mounts: tuple[MountAccess, ...], directory: Path, before: Path | None) -> Listed:
        from cache_engine.credentials import resolve
        from cache_engine.snapshot import take as take_snapshot
        from cache_engine.sources import open_source

        partial = directory / f".taking-{secrets.token_hex(8)}"
        with ExitStack() as closing:
            opened = []
            for mount in mounts:
                source = open_source(mount.url, mount.options, resolve(mount.credentials, environ))
                closing.callback(source.close)
                opened.append((mount, source))
            manifest = take_snapshot(opened, partial)
        return Listed(
            digest=manifest.digest,
            files=manifest.files,
            bytes=manifest.bytes,
            path=partial,
            difference=_compare(before, partial),
            hidden=manifest.hidden,
            unshowable=manifest.unshowable,
        )

    return take


def _compare(before: Path | None, after: Path) -> Difference:
    from cache_engine.manifest import Manifest
    from cache_engine.manifest_diff import difference

    new = Manifest.open(after)
    if before is None or not before.exists():
        return Difference(added=new.files)
    found = difference(Manifest.open(before), new)
    return Difference(len(found.added), len(found.changed), len(found.gone))


def sweep(directory: Path, needed: set[str]) -> list[str]:
    """Remove the manifests of no Dataset; returns their digests. Who has one open keeps reading it."""
    removed = []
    for path in directory.glob(f"*{SUFFIX}"):
        digest = path.name.removesuffix(SUFFIX)
        if digest not in needed:
            path.unlink(missing_ok=True)
            removed.append(digest)
    return removed

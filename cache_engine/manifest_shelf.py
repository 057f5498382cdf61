"""The manifests that this node holds copies of, shared by its processes: each is downloaded once, not once a process.

The files lie in one directory; a small diskcache index beside them (JSON, never pickle) says which digest was used
when. One process downloads while the others wait at a lock of the kernel, which is free at once when that process
dies (a lock kept in the index would go on for its ten minutes). A manifest of a million files has 82 MB, and a node
starts eight readers at a time. Where the controller's own file can be opened, nobody comes here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cache_engine.access import SnapshotRef
from cache_engine.control import Control
from cache_engine.errors import InvalidValue
from cache_engine.manifest import Manifest

KEPT_BYTES = 4 << 30
"""Bytes of manifests kept a node: the least recently used leave; who has one mapped reads on."""


class ManifestShelf:
    """One directory of manifests. Safe in threads and between processes; holds no descriptor between calls."""

    def __init__(self, directory: Path, kept_bytes: int = KEPT_BYTES) -> None:
        self._directory = directory
        self._kept = kept_bytes

    def __repr__(self) -> str:
        return f"<ManifestShelf {self._directory}>"

    def fetch(self, ref: SnapshotRef, control: Control) -> Manifest:
        """The manifest, downloaded and proved if no process of this node has done it. Raises ControllerUnavailable."""
        import diskcache

        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(ref.digest)
        with diskcache.Cache(str(self._directory / "index"), disk=diskcache.JSONDisk) as index:
            with self._alone(ref.digest):
                if not _is_sound(path, ref.digest):
                    self._download(ref, control, path)
            index[ref.digest] = {"bytes": path.stat().st_size, "used": time.time()}
            manifest = Manifest.open(path)
            self._make_room(index, ref.digest)
        return manifest

    @contextlib.contextmanager
    def _alone(self, digest: str) -> Iterator[None]:
        """Nobody else on this node downloads that manifest meanwhile; sixteen locks serve all digests."""
        fd = os.open(self._directory / f"lock-{digest[0]}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the same open file
            os.close(fd)

    def _download(self, ref: SnapshotRef, control: Control, path: Path) -> None:
        """Into place only once it is proved to be what the digest says. Raises InvalidValue where it is not."""
        arrived = control.fetch_manifest(ref, path.with_suffix(".new"))
        try:
            manifest = Manifest.open(arrived)
            manifest.verify()
            if manifest.digest != ref.digest:
                raise InvalidValue(f"the controller sent manifest {manifest.digest}, not {ref.digest}; ask it again")
            arrived.rename(path)
        finally:
            arrived.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self._directory / f"{digest}.manifest"

    def _make_room(self, index: Any, keep: str) -> None:
        """Remove the least recently used until the rest fits; `keep` stays."""
        with index.transact():
            entries = [(index[key]["used"], index[key]["bytes"], key) for key in index if _is_digest(key)]
            left = sum(size for _, size, _ in entries)
            leaving = []
            for _, size, digest in sorted(entries):
                if left > self._kept and digest != keep:
                    left -= size
                    leaving.append(digest)
                    del index[digest]
        for digest in leaving:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(digest))


def _is_sound(path: Path, digest: str) -> bool:
    """Whether the manifest lies there and opens: a copy that the disk damaged is downloaded again, not an error."""
    try:
        return path.is_file() and Manifest.open(path).digest == digest
    except InvalidValue:
        return False


def _is_digest(key: object) -> bool:
    return isinstance(key, str) and len(key) == 64

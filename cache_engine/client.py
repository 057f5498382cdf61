"""What people hold: one Dataset at one snapshot, with ls, info, read, readinto, read_many and file objects.

Made by `cache_engine.open(NAME)`. A client keeps its snapshot for life, so that its bytes never change under
it; `refresh()` moves it to the newest one. Thread-safe; survives a fork; pickles as its name and address.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from cache_engine.access import Access
from cache_engine.config import ReaderConfig
from cache_engine.control import Control
from cache_engine.datasets import MountSources, open_manifest
from cache_engine.errors import CacheEngineError, ControllerUnavailable, InvalidValue, NotFound
from cache_engine.fork_lock import ForkLock
from cache_engine.fresh_bytes import fresh_bytes
from cache_engine.manifest import Manifest
from cache_engine.membership import Membership
from cache_engine.names import parse, show
from cache_engine.read_many import ManyRead
from cache_engine.read_stats import ReadStats
from cache_engine.reader import Reader
from cache_engine.source import Source

AHEAD = 512
"""Files of one turn of iter_many: enough for eight batches, and no more in memory than two turns."""
RENEW = 1.0
"""Seconds between two looks at the membership while workers fail."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One row of a listing. `path` as shown; `size` bytes (0 for a directory); `mtime_ns` since the epoch or 0."""

    path: str
    size: int
    kind: Literal["file", "directory"]
    mtime_ns: int = 0
    version: str = ""


class Client:
    """One Dataset, one snapshot. Mutable: `_reader` and `access`, replaced whole under `_lock`."""

    def __init__(self, dataset: str, control: Control, config: ReaderConfig, environ: Mapping[str, str]) -> None:
        self.dataset = dataset
        self.control = control
        self.config = config
        self._environ = dict(environ)
        self._lock = ForkLock()
        self._renewed = 0.0
        self.access = control.access(dataset)
        self._sources = MountSources(self.access.mounts, self._environ)
        self._reader = self._read_through(self._open_manifest(), self.access)

    def __repr__(self) -> str:
        return f"<Client {self.dataset} {self._reader!r}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.dataset, self.control.url, self.config)

    @property
    def manifest(self) -> Manifest:
        return self._reader.manifest

    @property
    def reader(self) -> Reader:
        """The reader of the current snapshot, for those who read by file number."""
        return self._reader

    def _open_manifest(self) -> Manifest:
        if self.config.shared:
            return open_manifest(self.access, self.control, Path(self.config.shared))
        with tempfile.TemporaryDirectory(prefix="forebay-") as scratch:
            return open_manifest(self.access, self.control, Path(scratch))

    def _read_through(self, manifest: Manifest, access: Access) -> Reader:
        sources = self._sources  # not those of a later snapshot, whose mounts may be others

        def source(mount: int) -> Source:
            return sources.at(mount, manifest.sources[mount])

        return Reader(manifest, Membership(access, self.config), self.config, source, self._newer)

    def index(self, path: str | bytes) -> int:
        """The file's number in the manifest. Raises NotFound."""
        return self.manifest.find(_key(path))

    def ls(self, path: str | bytes = "", detail: bool = False) -> list[str] | list[FileEntry]:
        """Names directly under a directory, sorted; with `detail`, entries with whole paths. Raises NotFound."""
        key = _place(path)
        found = self.manifest.list(key)
        if not detail:
            return sorted(
                show(name) if name else show(key + b"/").rpartition("/")[2] for name in (*found.dirs, *found.files)
            )
        prefix = key + b"/" if key else b""
        entries = [FileEntry(show(prefix + name), 0, "directory") for name in found.dirs]
        entries += [self._entry(prefix + name, index) for name, index in zip(found.files, found.indices, strict=True)]
        return sorted(entries, key=lambda entry: entry.path)

    def _entry(self, key: bytes, index: int) -> FileEntry:
        m = self.manifest
        return FileEntry(show(key), m.size(index), "file", m.mtime_ns(index), m.version(index))

    def info(self, path: str | bytes) -> FileEntry:
        """One file or directory. Raises NotFound."""
        key = _place(path)
        if self.manifest.is_dir(key):
            return FileEntry(show(key), 0, "directory")
        return self._entry(key, self.manifest.find(key))

    def read(self, path: str | bytes, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes [offset, offset + length) of a file, cut at its end; the whole file by default."""
        index = self.index(path)
        size = self.manifest.size(index)
        if offset < 0 or (length is not None and length < 0):
            raise InvalidValue(f"cannot read {length} bytes at {offset} of {show(_key(path))}: neither may be negative")
        stop = size if length is None else min(size, offset + length)
        if stop <= offset:
            return b""
        body, view = fresh_bytes(stop - offset)
        self._read(index, view, offset, path)
        return body

    def readinto(self, path: str | bytes, buffer: bytearray | memoryview, offset: int = 0) -> int:
        """Fill `buffer` from `offset` on; returns how many bytes, fewer only at the end of the file."""
        index = self.index(path)
        view = memoryview(buffer).cast("B")
        if offset < 0:
            raise InvalidValue(f"cannot read at {offset} of {show(_key(path))}: it may not be negative")
        count = max(0, min(len(view), self.manifest.size(index) - offset))
        if count:
            self._read(index, view[:count], offset, path)
        return count

    def _read(self, index: int, view: memoryview, offset: int, path: str | bytes) -> None:
        try:
            self._reader.readinto(index, view, offset)
        except CacheEngineError as exc:
            exc.add_note(f"while reading {show(_key(path))} of Dataset {self.dataset}")
            raise

    def read_many(self, paths: Iterable[str | bytes]) -> list[bytes]:
        """Whole files, many at once, in the order asked: the fast way for small ones. Raises the first error."""
        paths = _several(paths)
        results = ManyRead(self._reader, self._indices(paths)).run()
        for path, result in zip(paths, results, strict=True):
            if isinstance(result, CacheEngineError):
                result.add_note(f"while reading {show(_key(path))} of Dataset {self.dataset}")
                raise result
        return results  # type: ignore[return-value]

    def iter_many(self, paths: Iterable[str | bytes]) -> Iterator[tuple[str | bytes, bytes]]:
        """(path, bytes) in the order asked, read some hundreds ahead, so that memory stays bounded."""
        paths = _several(paths)
        for start in range(0, len(paths), AHEAD):
            turn = paths[start : start + AHEAD]
            yield from zip(turn, self.read_many(turn), strict=True)

    def _indices(self, paths: Sequence[str | bytes]) -> list[int]:
        """File numbers; a path that follows the one before it in the manifest costs no search."""
        manifest = self.manifest
        found = []
        guess = -1
        files = manifest.files
        for path in paths:
            key = _key(path)
            guess += 1
            if guess >= files or manifest.path(guess) != key:
                guess = manifest.find(key)
            found.append(guess)
        return found

    def open(self, path: str | bytes) -> BinaryIO:
        """A read-only file object with readahead; it keeps this snapshot. Raises NotFound."""
        from cache_engine.file_object import open_file

        return open_file(self, path)

    def stats(self) -> ReadStats:
        """Bytes read by where they came from."""
        return self._reader.stats

    def refresh(self) -> bool:
        """Move to the Dataset's newest snapshot; True where it is another one. Open file objects keep the old."""
        access = self.control.access(self.dataset)
        with self._lock:
            changed = access.snapshot != self.access.snapshot
            if access.mounts != self.access.mounts:
                self._sources = MountSources(access.mounts, self._environ)
            self.access = access
        manifest = self._open_manifest() if changed else self._reader.manifest
        fresh = self._read_through(manifest, access)
        fresh.stats = self._reader.stats
        self._reader = fresh
        return changed

    def _newer(self, known: Membership) -> Membership:
        """A worker failed: the newest membership, looked for at most once a second; never an error."""
        now = time.monotonic()
        if now - self._renewed >= RENEW:
            self._renewed = now
            with contextlib.suppress(ControllerUnavailable, NotFound):
                access = self.control.access(self.dataset)
                if access.epoch != known.access.epoch and access.uid == known.access.uid:
                    return Membership(access, self.config)
        return known

    def close(self) -> None:
        """Drop connections and threads. Who reads on makes new ones."""
        self._reader.close()


def _several(paths: Iterable[str | bytes]) -> Sequence[str | bytes]:
    """As a sequence. Raises InvalidValue for one path, which is a sequence of its letters."""
    if isinstance(paths, str | bytes):
        raise InvalidValue(f"{paths!r} is one path where a list of paths is wanted; write [{paths!r}]")
    return paths if isinstance(paths, list | tuple) else list(paths)


def _key(path: str | bytes) -> bytes:
    """A shown path, or exact bytes, as the manifest has it. Raises InvalidValue for what no path is shown as."""
    return path if isinstance(path, bytes) else parse(path)


def _place(path: str | bytes) -> bytes:
    """A place in the tree: a slash that somebody wrote behind a directory means nothing, an escaped one does."""
    return _key(path.rstrip("/") if isinstance(path, str) else path)


def _reopen(dataset: str, url: str, config: ReaderConfig) -> Client:
    import os

    return Client(dataset, Control(url), config, os.environ)

"""Stored objects and the shelf that they stand on: keys are bytes, percent-decoded once.

With a root directory, the file root/BUCKET/KEY is the object BUCKET/KEY. The shelf notes what lies there when it is
made (and at `rescan`); an object asked for by name is looked at again, so a replaced file gets a new version at once.
Objects that were put stand before files of the same key, and a file is never written nor removed.
"""

from __future__ import annotations

import base64
import bisect
import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import crc32c

from benchmarks.objectstore.body import Body, FileBody, MadeBody, Maker, MemoryBody

Content = bytes | str | tuple[int, Maker] | os.PathLike[str]
_SUMMED_AT_ONCE = 4 << 20


@dataclass(slots=True)
class StoredObject:
    """One version of one object; `etag` with its quotes, `mtime` in seconds since the epoch."""

    body: Body
    etag: str
    mtime: float
    headers: Mapping[str, str] = field(default_factory=dict)
    _crc32c: str = ""
    """Filled at the first question; a race computes the same value twice."""

    @property
    def size(self) -> int:
        return self.body.size

    @property
    def crc32c(self) -> str:
        """The CRC32C as S3 writes it: four big-endian bytes in base64."""
        if not self._crc32c:
            total = 0
            for start in range(0, self.size, _SUMMED_AT_ONCE):
                total = crc32c.crc32c(self.body.read(start, min(_SUMMED_AT_ONCE, self.size - start)), total)
            self._crc32c = base64.b64encode(total.to_bytes(4, "big")).decode()
        return self._crc32c

    @classmethod
    def of(
        cls,
        content: Content,
        etag: str | None = None,
        mtime: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> StoredObject:
        """Of bytes, text, (size, f(offset, n) -> bytes) or a path; the ETag is made up where none is given."""
        body, seed, modified = _body_of(content)
        return cls(body, etag or _etag(seed), modified if mtime is None else mtime, dict(headers or {}))

    @classmethod
    def of_file(cls, path: bytes, found: os.stat_result) -> StoredObject:
        body, seed, modified = _file(path, found)
        return cls(body, _etag(seed), modified)


def _body_of(content: Content) -> tuple[Body, bytes, float]:
    """(body, what its ETag is made from, modification time)."""
    if isinstance(content, os.PathLike):
        path = os.fsencode(content)
        return _file(path, os.stat(path))
    if isinstance(content, tuple):
        return MadeBody(*content), repr(content).encode(), time.time()
    raw = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else bytes(content)
    return MemoryBody(raw), raw, time.time()


def _file(path: bytes, found: os.stat_result) -> tuple[Body, bytes, float]:
    seed = b"%b:%d:%d:%d" % (path, found.st_size, found.st_mtime_ns, found.st_ino)
    return FileBody.of(path, found), seed, found.st_mtime


def _etag(seed: bytes) -> str:
    return f'"{hashlib.md5(seed, usedforsecurity=False).hexdigest()}"'


def as_key(key: str | bytes) -> bytes:
    """A key as a caller writes it -> bytes (a surrogate escape stands for a byte that is not UTF-8)."""
    return key.encode("utf-8", "surrogateescape") if isinstance(key, str) else bytes(key)


class Shelf:
    """Every object by key. Thread-safe; `keys()` is a snapshot in byte order."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = os.fsencode(os.path.abspath(root)) if root is not None else None
        self._lock = threading.Lock()
        self._objects: dict[bytes, StoredObject] = {}  # guarded by _lock
        self._buckets: set[bytes] = set()  # guarded by _lock
        self._gone: set[bytes] = set()  # guarded by _lock; deleted keys whose file stays
        self._sorted: list[bytes] | None = None  # guarded by _lock; never mutated, made when first asked for
        self.rescan()

    def __repr__(self) -> str:
        return f"<Shelf {len(self._objects)} objects in {len(self._buckets)} buckets, root {self.root!r}>"

    def put(self, key: bytes, stored: StoredObject) -> None:
        with self._lock:
            self._note(key, stored)
            self._gone.discard(key)

    def delete(self, key: bytes) -> bool:
        """False where there was nothing; the bucket stays."""
        with self._lock:
            self._gone.add(key)
            self._sorted = None
            return self._objects.pop(key, None) is not None

    def add_bucket(self, name: bytes) -> None:
        with self._lock:
            self._buckets.add(name)

    def buckets(self) -> list[bytes]:
        with self._lock:
            return sorted(self._buckets)

    def keys(self) -> list[bytes]:
        with self._lock:
            if self._sorted is None:
                self._sorted = sorted(self._objects)
            return self._sorted

    def get(self, key: bytes) -> StoredObject | None:
        """The object as it is now."""
        with self._lock:
            known, gone = self._objects.get(key), key in self._gone
        if self.root is None or gone or (known is not None and not self._rooted(known)):
            return known
        return self._look(key, known)

    def rescan(self) -> None:
        """Note every file below the root (links are followed at its top level only)."""
        if self.root is None:
            return
        found = dict(self._walk(self.root))
        with self._lock:
            put = {key: stored for key, stored in self._objects.items() if not self._rooted(stored)}
            self._objects = {key: stored for key, stored in found.items() if key not in self._gone} | put
            self._buckets.update(key.partition(b"/")[0] for key in self._objects)
            self._sorted = None

    def _note(self, key: bytes, stored: StoredObject) -> None:
        if key not in self._objects:
            self._sorted = None
        self._objects[key] = stored
        self._buckets.add(key.partition(b"/")[0])

    def _rooted(self, stored: StoredObject) -> bool:
        body = stored.body
        return self.root is not None and isinstance(body, FileBody) and body.path.startswith(self.root + b"/")

    def _look(self, key: bytes, known: StoredObject | None) -> StoredObject | None:
        """The file of that key now: noted where it is new or changed, forgotten where it is gone."""
        assert self.root is not None
        if any(segment in (b"", b".", b"..") for segment in key.split(b"/")) or b"\0" in key:
            return known
        path = self.root + b"/" + key
        found = _regular(path)
        if known is not None and found is not None and FileBody.of(path, found) == known.body:
            return known
        fresh = None if found is None else StoredObject.of_file(path, found)
        with self._lock:
            if fresh is not None:
                self._note(key, fresh)
            elif self._objects.pop(key, None) is not None:
                self._sorted = None
        return fresh

    def _walk(self, root: bytes) -> Iterator[tuple[bytes, StoredObject]]:
        for top in os.scandir(root):
            if not top.is_dir():
                yield from self._noted(root, top.path)
                continue
            for directory, _, names in os.walk(top.path):
                for name in names:
                    yield from self._noted(root, os.path.join(directory, name))

    @staticmethod
    def _noted(root: bytes, path: bytes) -> Iterator[tuple[bytes, StoredObject]]:
        found = _regular(path)
        if found is not None:
            yield path[len(root) + 1 :], StoredObject.of_file(path, found)


def _regular(path: bytes) -> os.stat_result | None:
    """What stat says of a regular file; None for anything else."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def successor(prefix: bytes) -> bytes | None:
    """The smallest key above every key that begins with `prefix`; None where there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def bounds(keys: list[bytes], prefix: bytes, low: int = 0) -> tuple[int, int]:
    """Positions [start, stop) of the keys that begin with `prefix` in sorted `keys`, looking from `low` on."""
    above = successor(prefix)
    start = bisect.bisect_left(keys, prefix, low)
    return start, len(keys) if above is None else bisect.bisect_left(keys, above, start)

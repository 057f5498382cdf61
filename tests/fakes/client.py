"""A reader over objects in memory: the methods of `cache_engine.client.Client`, without workers or sockets.

`publish` puts a source's objects under a name, `connect` opens a reader at what is there now (its snapshot), as
`cache_engine.open` does. With `api="dir:/some/where"` the objects are the files below /some/where/NAME, so that a
process of its own finds them too. Every read is kept in `log`; `script` makes reads wait or fail.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Literal

from cache_engine import names
from cache_engine.access import Access, Member, SnapshotRef
from cache_engine.block import ObjectId
from cache_engine.errors import NotFound
from cache_engine.reading import Path

STORES: dict[str, dict[bytes, Any]] = {}
"""Dataset -> key -> body: bytes, or a Body of any size."""
OPENED: list[MemoryReader] = []


@dataclass(frozen=True)
class Body:
    """A large body made by a function of the offset: `piece(start, stop)`."""

    size: int
    piece: Callable[[int, int], bytes]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self.size)
        return self.piece(start, stop)


@dataclass(frozen=True)
class FileEntry:
    path: str
    size: int
    kind: Literal["file", "directory"]
    mtime_ns: int
    version: str


@dataclass
class Directory:
    dirs: list[bytes] = field(default_factory=list)
    files: list[bytes] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)


class MemoryManifest:
    """The rules of the real one: a folder wins over a file of its name, a marker makes a folder."""

    def __init__(self, objects: Mapping[bytes, Any]) -> None:
        self._keys = sorted(objects)
        self._bodies = [objects[key] for key in self._keys]
        self.digest = hashlib.sha256(repr([(k, self._sum(i)) for i, k in enumerate(self._keys)]).encode()).hexdigest()
        self.files = len(self._keys)
        self.bytes = sum(map(len, self._bodies))

    def _sum(self, index: int) -> str:
        body = self._bodies[index]
        return hashlib.md5(body if isinstance(body, bytes) else repr(body.size).encode()).hexdigest()

    def __len__(self) -> int:
        return self.files

    def find(self, path: bytes) -> int:
        at = bisect_left(self._keys, path)
        if at < self.files and self._keys[at] == path:
            return at
        what = "it is a directory" if self.is_dir(path) else "no such file"
        raise NotFound(f"{names.show(path)}: {what} in snapshot {self.digest[:12]}")

    def path(self, index: int) -> bytes:
        return self._keys[index]

    def body(self, index: int) -> Any:
        return self._bodies[index]

    def size(self, index: int) -> int:
        return len(self._bodies[index])

    def version(self, index: int) -> str:
        return f'etag:"{self._sum(index)}"'

    def mtime_ns(self, index: int) -> int:
        return 1_700_000_000_000_000_000 + index

    def object_id(self, index: int) -> ObjectId:
        return ObjectId("memory://", self._keys[index], self.version(index), self.size(index))

    def is_dir(self, path: bytes) -> bool:
        if not path:
            return True
        at = bisect_left(self._keys, path + b"/")
        return at < self.files and self._keys[at].startswith(path + b"/")

    def list(self, directory: bytes) -> Directory:
        if not self.is_dir(directory):
            raise NotFound(f"{names.show(directory)}: no such directory in snapshot {self.digest[:12]}")
        prefix = directory + b"/" if directory else b""
        listed, seen = Directory(), set()
        for index, key in enumerate(self._keys):
            name, slash, _ = key[len(prefix) :].partition(b"/")
            if not key.startswith(prefix) or key == prefix:
                continue
            if slash and name not in seen:
                seen.add(name)
                listed.dirs.append(name)
            elif not slash and not self.is_dir(key):
                listed.files.append(name)
                listed.indices.append(index)
        return listed


class MemoryReader:
    """One Dataset at one snapshot."""

    def __init__(self, name: str, objects: Mapping[bytes, Any], api: str | None = None) -> None:
        self.name = name
        self.manifest = MemoryManifest(objects)
        self.api = api
        self.closed = False
        self.members: tuple[Member, ...] = ()
        self.owners = 1
        self.script: Callable[[bytes, int, int], None] = lambda key, offset, length: None
        self.log: list[tuple[bytes, int, int]] = []
        self.batches: list[int] = []
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return connect, (self.name, self.api)

    @property
    def access(self) -> Access:
        ref = SnapshotRef(self.manifest.digest, self.manifest.files, self.manifest.bytes, "")
        return Access(self.name, f"uid-{self.name}", 1, ref, self.members, owners=self.owners)

    def ls(self, path: Path = "", detail: bool = False) -> list[str] | list[FileEntry]:
        directory = key_of(path)
        listed = self.manifest.list(directory)
        prefix = directory + b"/" if directory else b""
        entries = [self._directory(prefix + name) for name in listed.dirs]
        entries += [self._file(index) for index in listed.indices]
        entries.sort(key=lambda entry: entry.path)
        return entries if detail else [entry.path for entry in entries]

    def info(self, path: Path) -> FileEntry:
        key = key_of(path)
        return self._directory(key) if self.manifest.is_dir(key) else self._file(self.manifest.find(key))

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        index = self.manifest.find(key_of(path))
        size = self.manifest.size(index)
        stop = size if length is None else min(size, offset + length)
        with self._lock:
            self.log.append((self.manifest.path(index), offset, max(0, stop - offset)))
        self.script(self.manifest.path(index), offset, max(0, stop - offset))
        return bytes(self.manifest.body(index)[offset:stop]) if offset < stop else b""

    def readinto(self, path: Path, buffer: memoryview, offset: int = 0) -> int:
        body = self.read(path, offset, len(buffer))
        buffer[: len(body)] = body
        return len(body)

    def read_many(self, paths: Sequence[Path]) -> list[bytes]:
        self.batches.append(len(paths))
        return [self.read(path) for path in paths]

    def iter_many(self, paths: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
        yield from zip(paths, self.read_many(paths), strict=True)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> MemoryReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _directory(self, key: bytes) -> FileEntry:
        return FileEntry(names.show(key), 0, "directory", 0, "")

    def _file(self, index: int) -> FileEntry:
        m = self.manifest
        return FileEntry(names.show(m.path(index)), m.size(index), "file", m.mtime_ns(index), m.version(index))


def key_of(path: Path) -> bytes:
    return names.parse(path) if isinstance(path, str) else path


def publish(name: str, objects: Mapping[bytes | str, Any]) -> None:
    """What the source of Dataset `name` holds from now on; readers that are open keep their snapshot."""
    STORES[name] = {key.encode() if isinstance(key, str) else key: body for key, body in objects.items()}


def connect(name: str, api: str | None = None) -> MemoryReader:
    """A reader at the newest snapshot."""
    if api and api.startswith("dir:"):
        objects: Mapping[bytes, Any] = _read_tree(FilePath(api[4:]) / name)
    elif name in STORES:
        objects = STORES[name]
    else:
        raise NotFound(f"no Dataset {name!r}; `forebay get datasets` lists what there is")
    reader = MemoryReader(name, objects, api)
    OPENED.append(reader)
    return reader


def _read_tree(root: FilePath) -> dict[bytes, bytes]:
    return {bytes(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}

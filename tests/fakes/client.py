"""A client over objects in memory: the methods of `cache_engine.client.Client`, without workers or sockets.

`publish` puts a source's objects under a name, `connect` opens a client at what is there now (its snapshot), as
`cache_engine.open` does. With `api="dir:/some/where"` the objects are the files below /some/where/NAME, so that a
process of its own finds them too. Every read is kept in `log`; `script` makes reads wait or fail.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

from cache_engine import names
from cache_engine.access import Access, Member, SnapshotRef
from cache_engine.errors import NotFound
from cache_engine.manifest import Manifest
from cache_engine.manifest_builder import ManifestBuilder
from cache_engine.reading import Path
from cache_engine.source import Page, Stat

STORES: dict[str, dict[bytes, Any]] = {}
"""Dataset -> key -> body: bytes, or a Body of any size."""
OPENED: list[MemoryClient] = []


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
    mtime_ns: int = 0
    version: str = ""


def manifest_of(objects: Mapping[bytes, Any]) -> Manifest:
    """The real manifest of these objects."""
    page = Page()
    for number, (key, body) in enumerate(objects.items()):
        content = body if isinstance(body, bytes) else str(len(body)).encode()
        page.add(key, Stat(len(body), f'etag:"{hashlib.md5(content).hexdigest()}"', 1_700_000_000 * 10**9 + number))
    builder = ManifestBuilder([("memory://", "")])
    builder.add(0, page)
    with tempfile.TemporaryDirectory() as scratch:
        return builder.write(FilePath(scratch) / "manifest")


class MemoryReader:
    """The bytes of one snapshot, by number. Mutable: `log` and `script`, the script set before the reads begin."""

    def __init__(self, objects: Mapping[bytes, Any]) -> None:
        self.manifest = manifest_of(objects)
        self.script: Callable[[bytes, int, int], None] = lambda key, offset, length: None
        self.log: list[tuple[bytes, int, int]] = []
        self._objects = dict(objects)
        self._lock = threading.Lock()

    def readinto(self, index: int, view: memoryview, start: int) -> None:
        key = self.manifest.path(index)
        with self._lock:
            self.log.append((key, start, len(view)))
        self.script(key, start, len(view))
        view[:] = self._objects[key][start : start + len(view)]


class MemoryControl:
    """The controller of one Dataset; `members` may change between two looks."""

    def __init__(self) -> None:
        self.members: tuple[Member, ...] = ()
        self.owners = 1
        self.digest = ""

    def access(self, name: str) -> Access:
        return Access(name, f"uid-{name}", 1, SnapshotRef(self.digest, 0, 0, ""), self.members, owners=self.owners)


class MemoryClient:
    """One Dataset at one snapshot."""

    def __init__(self, name: str, objects: Mapping[bytes, Any], api: str | None = None) -> None:
        self.dataset = name
        self.api = api
        self.reader = MemoryReader(objects)
        self.control = MemoryControl()
        self.control.digest = self.manifest.digest
        self.closed = False
        self.batches: list[int] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return connect, (self.dataset, self.api)

    def __enter__(self) -> MemoryClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def manifest(self) -> Manifest:
        return self.reader.manifest

    @property
    def log(self) -> list[tuple[bytes, int, int]]:
        return self.reader.log

    def ls(self, path: Path = "", detail: bool = False) -> list[str] | list[FileEntry]:
        key = place_of(path)
        found = self.manifest.list(key)
        if not detail:
            return sorted(names.show(name) for name in (*found.dirs, *found.files))
        prefix = key + b"/" if key else b""
        entries = [FileEntry(names.show(prefix + name), 0, "directory") for name in found.dirs]
        entries += [self._file(prefix + name, index) for name, index in zip(found.files, found.indices, strict=True)]
        return sorted(entries, key=lambda entry: entry.path)

    def info(self, path: Path) -> FileEntry:
        key = place_of(path)
        if self.manifest.is_dir(key):
            return FileEntry(names.show(key), 0, "directory")
        return self._file(key, self.manifest.find(key))

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        index = self.manifest.find(key_of(path))
        size = self.manifest.size(index)
        body = bytearray(max(0, (size if length is None else min(size, offset + length)) - offset))
        self.reader.readinto(index, memoryview(body), offset)
        return bytes(body)

    def read_many(self, paths: Sequence[Path]) -> list[bytes]:
        self.batches.append(len(paths))
        return [self.read(path) for path in paths]

    def iter_many(self, paths: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
        yield from zip(paths, self.read_many(paths), strict=True)

    def close(self) -> None:
        self.closed = True

    def _file(self, key: bytes, index: int) -> FileEntry:
        m = self.manifest
        return FileEntry(names.show(key), m.size(index), "file", m.mtime_ns(index), m.version(index))


def key_of(path: Path) -> bytes:
    return names.parse(path) if isinstance(path, str) else path


def place_of(path: Path) -> bytes:
    """A place in the tree: a slash that somebody wrote behind a directory means nothing, an escaped one does."""
    return key_of(path.rstrip("/") if isinstance(path, str) else path)


def publish(name: str, objects: Mapping[bytes | str, Any]) -> None:
    """What the source of Dataset `name` holds from now on; clients that are open keep their snapshot."""
    STORES[name] = {key.encode() if isinstance(key, str) else key: body for key, body in objects.items()}


def connect(name: str, api: str | None = None) -> MemoryClient:
    """A client at the newest snapshot."""
    if api and api.startswith("dir:"):
        objects: Mapping[bytes, Any] = _read_tree(FilePath(api[4:]) / name)
    elif name in STORES:
        objects = STORES[name]
    else:
        raise NotFound(f"no Dataset {name!r}; `forebay get datasets` lists what there is")
    client = MemoryClient(name, objects, api)
    OPENED.append(client)
    return client


def _read_tree(root: FilePath) -> dict[bytes, bytes]:
    return {bytes(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}

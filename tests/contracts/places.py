"""One place of every kind that a row of SOURCES can read, all with the same way to put bytes there."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec

from benchmarks.objectstore import ObjectStore
from cache_engine.block import ObjectId
from cache_engine.source import Source
from cache_engine.sources import SOURCES, open_source

CREDENTIALS = ("seeded-id-1", "seeded-secret-2")


@dataclass
class Place(ABC):
    """Somewhere below which keys can be put. `conditional`: the source itself can refuse another version."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict)
    store: ObjectStore | None = None
    conditional = False

    def open(self, **options: str) -> Source:
        return open_source(self.url, {**self.options, **options}, self.credentials)

    def open_bare(self, **options: str) -> Any:
        """Without the retry."""
        row = SOURCES[self.url.partition(":")[0]]
        return row.load()(self.url, {**self.options, **options}, self.credentials)

    @abstractmethod
    def put(self, key: str, body: bytes) -> None: ...

    @abstractmethod
    def delete(self, key: str) -> None: ...


@dataclass
class FilePlace(Place):
    root: Path = Path()
    ticks: int = 0

    def put(self, key: str, body: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        self.ticks += 1  # two writes of a test may fall into one tick of the file system's clock
        os.utime(path, ns=(0, 1_700_000_000_000_000_000 + self.ticks * 1_000_000))

    def delete(self, key: str) -> None:
        (self.root / key).unlink()


@dataclass
class StorePlace(Place):
    prefix: str = ""
    conditional = True

    def put(self, key: str, body: bytes) -> None:
        assert self.store is not None
        self.store.put(self.prefix + key, body)

    def delete(self, key: str) -> None:
        assert self.store is not None
        self.store.delete(self.prefix + key)


@dataclass
class FsspecPlace(Place):
    root: str = ""

    def put(self, key: str, body: bytes) -> None:
        fsspec.filesystem("memory").pipe_file(f"{self.root}/{key}", body)

    def delete(self, key: str) -> None:
        fsspec.filesystem("memory").rm(f"{self.root}/{key}")


@contextmanager
def place(kind: str, tmp_path: Path, **store_options: object) -> Iterator[Place]:
    """`kind`: file, memory, http, s3, oss, oss-v4."""
    if kind == "file":
        root = tmp_path / "tree"
        root.mkdir()
        yield FilePlace(f"file://{quote(str(root))}", root=root)
    elif kind == "memory":
        root_name = f"/forebay-{tmp_path.name}"
        fsspec.filesystem("memory").mkdir(root_name)
        yield FsspecPlace(f"memory:/{root_name}", root=root_name)
        fsspec.filesystem("memory").rm(root_name, recursive=True)
    elif kind == "http":
        with ObjectStore("http", credentials=CREDENTIALS, **store_options) as store:  # type: ignore[arg-type]
            given = dict(zip(("username", "password"), CREDENTIALS, strict=True))
            yield StorePlace(f"{store.url}/team/a/", {}, given, store, prefix="team/a/")
    else:
        scheme, _, signature = kind.partition("-")
        with ObjectStore(scheme, credentials=CREDENTIALS, buckets=["bucket"], **store_options) as store:  # type: ignore[arg-type]
            options = {"endpoint": store.url}
            if signature:
                options |= {"signature": signature, "region": "cn-hangzhou"}
            given = dict(zip(("accessKeyId", "secretAccessKey"), CREDENTIALS, strict=True))
            yield StorePlace(f"{scheme}://bucket/team/a", options, given, store, prefix="bucket/team/a/")


def identify(source: Source, key: bytes) -> ObjectId:
    stat = source.stat(key)
    return ObjectId(source.name, key, stat.version, stat.size)


def fetch(source: Source, obj: ObjectId, start: int = 0, stop: int | None = None, step: int = 1 << 20) -> bytes:
    stop = obj.size if stop is None else stop
    stream = source.read(obj, start, stop)
    got, piece = bytearray(), memoryview(bytearray(step))
    try:
        while count := stream.readinto(piece):
            got += piece[:count]
    finally:
        stream.close()
    return bytes(got)


def listed(source: Source) -> dict[bytes, tuple[int, str, int]]:
    """Key -> (size, version, mtime_ns), each key once."""
    found: dict[bytes, tuple[int, str, int]] = {}
    for page in source.list():
        for key, size, version, mtime_ns in zip(page.keys, page.sizes, page.versions, page.mtimes_ns, strict=True):
            assert key not in found
            found[key] = (size, version, mtime_ns)
    return found


def everything_said(error: BaseException | None) -> str:
    """What a traceback would print of it."""
    said = ""
    while error is not None:
        said += f"{error!r} {error}\n"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return said

"""`forebay://DATASET/path` for everything that speaks fsspec: pandas, pyarrow, torch, dask.

A thin shape over a client: names become paths, entries become dicts, errors stay what they are. No listing is kept
here; what the client's snapshot says is the answer. `invalidate_cache()` moves on to the newest snapshot. One rule
for exists, isfile and isdir: False means that the snapshot does not have it; whatever else goes wrong is raised.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import isfilelike

import cache_engine
from cache_engine.errors import CacheEngineError, InvalidValue, NotFound
from cache_engine.export import export_file
from cache_engine.file_object import BufferedDatasetFile, DatasetFile, open_file
from cache_engine.read_only import ReadOnly, refused
from cache_engine.reading import OpenDataset
from cache_engine.sharing import Connect, Hold, forget, share

if TYPE_CHECKING:
    from cache_engine.client import FileEntry

RANGES = 8
"""Ranges of one `cat_ranges` read at once."""
COPY = 16 << 20
"""Bytes copied at a time into somebody's open file."""


class ForebayFileSystem(ReadOnly, AbstractFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """Datasets as directories. Safe from several threads, in forked children, and to pickle.

    Storage options: `api`, the controller's URL (default: $FOREBAY_API, else the local one); `connect`, for tests,
    what opens a client. Mutable: `_holds`, one entry a Dataset, single dict operations only.
    """

    protocol = "forebay"
    root_marker = ""

    def __init__(self, api: str | None = None, connect: Connect | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.api = api
        self._connect: Connect = connect or cache_engine.open
        self._holds: dict[str, Hold] = {}

    def __repr__(self) -> str:
        return f"<ForebayFileSystem of {self.api or 'the local controller'}, open: {', '.join(self._holds) or 'none'}>"

    @property
    def fsid(self) -> str:
        return f"forebay-{self.api or 'local'}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.lstrip("/")

    def client(self, name: str) -> OpenDataset:
        """The open client of Dataset `name`: its manifest says which snapshot this file system shows."""
        return self._hold(name).client

    def invalidate_cache(self, path: str | None = None) -> None:
        """Show the newest snapshot from now on, of all Datasets or of the one that `path` is in."""
        names = [self._split(path)[0]] if path else list(self._holds)
        for name in names:
            forget(self._connect, name, self.api)
            self._holds.pop(name, None)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        name, inner = self._split(path)
        if not name:
            entries = [_directory(dataset) for dataset in cache_engine.list_datasets(api=self.api)]
        else:
            entries = self._list(name, inner)
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        name, inner = self._split(path)
        if not name:
            return _directory("")
        client = self.client(name)
        return _described(name, client.info(inner)) if inner else _directory(name)

    def exists(self, path: str, **_: Any) -> bool:
        return self._kind(path) is not None

    def isdir(self, path: str) -> bool:
        return self._kind(path) == "directory"

    def isfile(self, path: str) -> bool:
        return self._kind(path) == "file"

    def ukey(self, path: str) -> str:
        """Changes with the file's version, and only then."""
        entry = self.info(path)
        return hashlib.sha256(f"{entry['version']} {entry['size']}".encode()).hexdigest()

    def checksum(self, path: str) -> int:
        return int(self.ukey(path)[:16], 16)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        client, inner = self._at(path)
        if start is None and end is None:
            return client.read(inner)
        if (start or 0) < 0 or (end or 0) < 0:
            size = DatasetFile(client, inner).size
            start, end, _step = slice(start, end).indices(size)
        first = start or 0
        return client.read(inner, first, None if end is None else max(0, end - first))

    def cat_ranges(
        self,
        paths: list[str],
        starts: int | list[int],
        ends: int | list[int],
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[bytes | Exception]:
        """The ranges, eight at a time. `max_gap` is taken and not needed: a worker cuts what is asked for."""
        begins = starts if isinstance(starts, list) else [starts] * len(paths)
        stops = ends if isinstance(ends, list) else [ends] * len(paths)
        with ThreadPoolExecutor(RANGES, thread_name_prefix="cat_ranges") as pool:
            futures = [pool.submit(self.cat_file, *each) for each in zip(paths, begins, stops, strict=True)]
            return [_outcome(future.result, on_error) for future in futures]

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **_: Any) -> Any:
        """As fsspec says, but many files of one Dataset travel together, and directories are left out."""
        paths = self.expand_path(path, recursive=recursive)
        if isinstance(path, str) and paths == [self._strip_protocol(path)] and not recursive:
            return self.cat_file(paths[0])
        wanted = [p for p in paths if not (isinstance(path, str) or recursive) or not self.isdir(p)]
        found = dict(self._cat_many(wanted, on_error))
        return {p: found[p] for p in wanted if on_error != "omit" or isinstance(found[p], bytes)}

    def get_file(
        self, rpath: str, lpath: Any = None, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **_: Any
    ) -> None:
        """Copy one file, whole or not at all; of a directory, make it."""
        client, inner = self._at(rpath)
        stream = outfile if outfile is not None else lpath if isfilelike(lpath) else None
        if stream is None and self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        if stream is not None:
            self._copy_into(client, inner, stream, callback)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        callback.set_size(DatasetFile(client, inner).size)
        export_file(client, inner, os.fspath(lpath), callback.relative_update)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **_: Any) -> BufferedDatasetFile:
        """`block_size` and fsspec's cache options are taken and not needed: the file sizes its windows itself."""
        if mode != "rb":
            raise refused(f"open with mode {mode!r}", path)
        name, inner = self._split(path)
        hold = self._hold(name)
        return open_file(hold.client, inner, keep=hold)

    def _split(self, path: str) -> tuple[str, str]:
        name, _, inner = self._strip_protocol(path).partition("/")
        return name, inner

    def _at(self, path: str) -> tuple[OpenDataset, str]:
        name, inner = self._split(path)
        return self.client(name), inner

    def _hold(self, name: str) -> Hold:
        if not name:
            raise NotFound("a path begins with the name of a Dataset: forebay://DATASET/path")
        held = self._holds.get(name)
        return held or self._holds.setdefault(name, share(self._connect, name, self.api))

    def _list(self, name: str, inner: str) -> list[dict[str, Any]]:
        client = self.client(name)
        if inner and (entry := client.info(inner)).kind == "file":
            return [_described(name, entry)]
        return [_described(name, entry) for entry in cast("Sequence[FileEntry]", client.ls(inner, detail=True))]

    def _kind(self, path: str) -> str | None:
        name, inner = self._split(path)
        try:
            client = self.client(name) if name else None
        except NotFound:
            return None
        if client is None or not inner:
            return "directory"
        try:
            return client.info(inner).kind
        except (NotFound, InvalidValue):  # InvalidValue: no file ever has such a path
            return None

    def _cat_many(self, paths: list[str], on_error: str) -> Iterable[tuple[str, bytes | Exception]]:
        groups: dict[str, list[str]] = {}
        for path in paths:
            groups.setdefault(self._split(path)[0], []).append(path)
        for name, group in groups.items():
            try:
                bodies: list[Any] = self.client(name).read_many([self._split(path)[1] for path in group])
            except CacheEngineError:
                # one bad file fails the batch; apart, each has its own outcome
                bodies = [_outcome(partial(self.cat_file, path), on_error) for path in group]
            yield from zip(group, bodies, strict=True)

    def _copy_into(self, client: OpenDataset, inner: str, stream: Any, callback: Any) -> None:
        with DatasetFile(client, inner) as file:
            callback.set_size(file.size)
            buffer = memoryview(bytearray(min(COPY, file.size)))
            while count := file.readinto(buffer):
                stream.write(buffer[:count])
                callback.relative_update(count)


def _outcome(read: Callable[[], bytes], on_error: str) -> Any:
    """The bytes, or (unless errors are to be raised) the error in their place."""
    try:
        return read()
    except CacheEngineError as exc:
        if on_error == "raise":
            raise
        return exc


def _directory(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _described(name: str, entry: FileEntry) -> dict[str, Any]:
    path = f"{name}/{entry.path}"
    if entry.kind == "directory":
        return _directory(path)
    return {
        "name": path,
        "size": entry.size,
        "type": "file",
        "mtime": entry.mtime_ns / 1e9,
        "version": entry.version,
    }

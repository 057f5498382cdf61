"""Writes the file of a manifest from sorted segments, front to back of every column at once.

The number of files and the bytes of their paths are known beforehand, so each column but the versions has its
place from the start and nothing is held back but the index of directories.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

from cache_engine.errors import InvalidValue
from cache_engine.manifest_file import CONTENT, HEAD, HEADER_LIMIT, TREE, Header, aligned, digest_of, encode_header
from cache_engine.manifest_rows import SEGMENT, Rows
from cache_engine.manifest_tree import TreeBuilder

_HEADER_ROOM = 4096
"""Bytes of a header without its mounts: about 1,200 in use."""


def write_manifest(
    path: str | os.PathLike[str],
    mounts: Sequence[tuple[str, str]],
    pieces: Iterable[Rows],
    *,
    files: int,
    path_bytes: int,
) -> None:
    """Write `pieces` (all of SEGMENT rows but the last) under a temporary name and rename it to `path`."""
    temporary = f"{os.fspath(path)}.{secrets.token_hex(8)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            writer = _Writer(fd, mounts, files, path_bytes)
            for piece in pieces:
                writer.add(piece)
            writer.finish()
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class _Column:
    """One column on its way to the disk."""

    def __init__(self, fd: int, start: int) -> None:
        self._fd, self._start, self.length, self._sum = fd, start, 0, hashlib.sha256()

    def write(self, data: bytes | array[int]) -> None:
        left = memoryview(data).cast("B")
        self._sum.update(left)
        while left:
            done = os.pwrite(self._fd, left, self._start + self.length)
            left, self.length = left[done:], self.length + done

    @property
    def extent(self) -> tuple[int, int]:
        return self._start, self.length

    @property
    def stop(self) -> int:
        return self._start + self.length

    def digest(self) -> bytes:
        return self._sum.digest()


class _Writer:
    def __init__(self, fd: int, mounts: Sequence[tuple[str, str]], files: int, path_bytes: int) -> None:
        self._fd, self._mounts = fd, tuple((source, path) for source, path in mounts)
        self._room = aligned(HEAD.size + _HEADER_ROOM + len(json.dumps(self._mounts)))
        if self._room > HEADER_LIMIT:
            raise InvalidValue(f"the mounts of this Dataset take {self._room} bytes, more than {HEADER_LIMIT}")
        lengths = {"paths": path_bytes, "ends": 8 * files + 8, "sizes": 8 * files, "mtimes": 8 * files}
        lengths |= {"mounts": 2 * files, "version_starts": 8 * (-(-files // SEGMENT) + 1)}
        lengths |= {"version_packed": -(-files // SEGMENT), "versions": 0}
        starts = accumulate((aligned(lengths[name]) for name in CONTENT), initial=self._room)
        self._columns = {name: _Column(fd, start) for name, start in zip(CONTENT, starts, strict=False)}
        self._tree = TreeBuilder()
        self._files = self._bytes = self._path_bytes = 0
        self._write("ends", array("Q", [0]))
        self._write("version_starts", array("Q", [0]))

    def add(self, rows: Rows) -> None:
        """The next segment."""
        ends = rows.ends()
        base = self._path_bytes
        self._write("paths", rows.paths)
        self._write("ends", array("Q", map(base.__add__, ends[1:])) if base else ends[1:])
        self._write("sizes", rows.sizes)
        self._write("mtimes", rows.mtimes)
        self._write("mounts", rows.mounts)
        self._write("versions", rows.versions)
        self._write("version_starts", array("Q", [self._columns["versions"].length]))
        self._write("version_packed", bytes([rows.packed]))
        self._tree.add(rows, ends, self._files)
        self._files += len(rows)
        self._path_bytes += len(rows.paths)
        self._bytes += sum(rows.sizes)

    def finish(self) -> None:
        """The index of directories, then the header."""
        tree = self._tree.finish()
        at, crc = self._columns["versions"].stop, 0
        for name in TREE:
            column = self._columns[name] = _Column(self._fd, aligned(at))
            column.write(tree[name])
            crc, at = zlib.crc32(tree[name], crc), column.stop
        size = aligned(at)
        os.ftruncate(self._fd, size)
        os.pwrite(self._fd, encode_header(self._header(crc, size), self._room), 0)

    def _header(self, tree_crc: int, file_bytes: int) -> Header:
        return Header(
            files=self._files,
            bytes=self._bytes,
            digest=digest_of(self._mounts, {name: self._columns[name].digest() for name in CONTENT}),
            mounts=self._mounts,
            hidden=self._tree.hidden,
            unshowable=self._tree.unshowable,
            markers=self._tree.markers,
            directories=len(self._tree.first),
            tree_crc=tree_crc,
            file_bytes=file_bytes,
            columns={name: column.extent for name, column in self._columns.items()},
        )

    def _write(self, column: str, data: bytes | array[int]) -> None:
        self._columns[column].write(data)

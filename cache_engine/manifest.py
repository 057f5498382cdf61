"""A Dataset frozen at a moment: the immutable list of files that is its snapshot, named by a digest.

Files are numbered from 0 in the order of their paths (bytes; the path of a file is its mount's path, a slash and
its key). Everything is read where it lies in the mapped file: opening costs the same for ten files and ten million,
and processes of one host share the memory. Made by `ManifestBuilder`, compared by `manifest_diff`; the layout is in
`manifest_file`, the rules of the directory tree in `manifest_tree`. Safe in several threads and after a fork.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

from cache_engine.block import ObjectId
from cache_engine.errors import NotFound
from cache_engine.manifest_file import COLUMNS, CONTENT, TREE, Header, bad, digest_of, mount_prefix, open_file
from cache_engine.manifest_rows import SEGMENT, Columns, cut_versions, unpack_version
from cache_engine.names import show

Names = list[bytes]


@dataclass(frozen=True, slots=True)
class Directory:
    """The entries of one directory: names as raw bytes, in byte order; no name is in both lists."""

    dirs: list[bytes]
    files: list[bytes]
    indices: Sequence[int]
    """The file numbers of `files`, in the same order."""


class Manifest:
    """Read access to one manifest file, by file number or by path; see the module."""

    def __init__(self, file: str, header: Header, mapped: mmap.mmap) -> None:
        """For `open`. `file` is only named in errors."""
        self._file, self._header, self._map = file, header, mapped
        self.digest, self.files, self.bytes = header.digest, header.files, header.bytes
        self.hidden, self.unshowable, self.markers = header.hidden, header.unshowable, header.markers
        self.sources = tuple(source for source, _ in header.mounts)
        self.mount_paths = tuple(path for _, path in header.mounts)
        self._prefixes = tuple(len(mount_prefix(path)) for path in self.mount_paths)
        view = memoryview(mapped)
        columns = {name: view[at : at + size].cast(_numbers(name)) for name, (at, size) in header.columns.items()}
        self._columns = columns
        self._paths_at = header.columns["paths"][0]
        self._ends, self._sizes, self._mtimes = columns["ends"], columns["sizes"], columns["mtimes"]
        self._mounts, self._versions = columns["mounts"], columns["versions"]
        if (self._ends[0], self._ends[-1]) != (0, len(columns["paths"])):
            raise bad(file, "its paths are not as long as it says")
        self._starts, self._packed = columns["version_starts"], columns["version_packed"]
        if (self._starts[0], self._starts[-1]) != (0, len(self._versions)):
            raise bad(file, "its versions are not as long as it says")
        self._first, self._length, self._stop = columns["dir_first"], columns["dir_length"], columns["dir_stop"]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Manifest:
        """Raises InvalidValue for a file that is not a whole manifest, NotFound where there is none."""
        try:
            header, mapped = open_file(path)
        except FileNotFoundError as fault:
            raise NotFound(f"there is no manifest {os.fspath(path)}; fetch it again or take a new snapshot") from fault
        return cls(os.fspath(path), header, mapped)

    def __repr__(self) -> str:
        return f"<Manifest {self.digest[:12]} {self.files} files, {self.bytes} bytes, {len(self.sources)} mounts>"

    def __len__(self) -> int:
        return self.files

    def path(self, index: int) -> bytes:
        """The whole path of file number `index`: mount path, slash, key."""
        base = self._paths_at
        return self._map[base + self._ends[index] : base + self._ends[index + 1]]

    def size(self, index: int) -> int:
        """Bytes in the file."""
        return self._sizes[index]

    def mtime_ns(self, index: int) -> int:
        """Nanoseconds since the epoch; 0 where the source does not say."""
        return self._mtimes[index]

    def mount(self, index: int) -> int:
        """Which mount the file came from: an index into `sources` and `mount_paths`."""
        return self._mounts[index]

    def version(self, index: int) -> str:
        """As in ObjectId."""
        column, packed, count = self._segment(index // SEGMENT)
        return unpack_version(column, packed, count, index % SEGMENT)

    def key(self, index: int) -> bytes:
        """The key of the file at its source, relative to its mount."""
        return self.path(index)[self._prefixes[self._mounts[index]] :]

    def object_id(self, index: int) -> ObjectId:
        """The identity of the file's bytes. Raises NotFound for a number that is not one of this manifest."""
        if not 0 <= index < self.files:
            raise NotFound(f"there is no file number {index} in a manifest of {self.files}; ask with its own numbers")
        try:
            return ObjectId(self.sources[self._mounts[index]], self.key(index), self.version(index), self.size(index))
        except (IndexError, struct.error) as fault:
            raise bad(self._file, f"file number {index} is damaged") from fault

    def find(self, path: bytes) -> int:
        """The number of the file of exactly this path. Raises NotFound, which says if it is a directory."""
        index = self.position(path)
        if index < self.files and self.path(index) == path:
            return index
        if self.is_dir(path):
            raise NotFound(f"{show(path)!r} is a directory; list it, or name a file in it")
        raise NotFound(f"there is no file {show(path)!r} in this snapshot; list its directory, or take a new snapshot")

    def position(self, path: bytes) -> int:
        """How many files have a smaller path."""
        mapped, ends, base = self._map, self._ends, self._paths_at
        low, high = 0, self.files
        while low < high:
            middle = (low + high) >> 1
            if mapped[base + ends[middle] : base + ends[middle + 1]] < path:
                low = middle + 1
            else:
                high = middle
        return low

    def below(self, directory: bytes) -> range:
        """The numbers of all files under a directory at any depth, hidden ones, markers and unshowable ones too."""
        if not directory:
            return range(self.files)
        return range(self.position(directory + b"/"), self.position(directory + b"0"))  # "0" follows "/"

    def is_dir(self, path: bytes) -> bool:
        """Whether the path is a directory of the tree; a trailing slash changes nothing."""
        return self._directory(path) is not None

    def list(self, directory: bytes) -> Directory:
        """The entries of a directory, b"" for the root. Raises NotFound where it is none."""
        number = self._directory(directory)
        if number is None:
            raise NotFound(f"there is no directory {show(directory)!r} in this snapshot; list the one above it")
        skip = self._length[number] + 1 if number else 0
        try:
            return self._entries(number, skip)
        except IndexError as fault:
            raise bad(self._file, "its index of directories is damaged") from fault

    def paths_between(self, start: int, stop: int) -> Names:
        """The paths of the files start..stop; much faster than one by one."""
        return self._names(range(start, stop), 0)

    def columns_between(self, start: int, stop: int, *, raw: bool = False) -> Columns:
        """All that is known of the files start..stop, in lists; `raw`: versions may stay packed (Columns.packed)."""
        whole = Columns.empty()
        for segment in range(start // SEGMENT, -(-stop // SEGMENT)):
            first = segment * SEGMENT
            whole.extend(self._columns_of(segment, max(start, first), min(stop, first + SEGMENT)))
        if not raw:
            whole.unpack()
        return whole

    def verify(self) -> None:
        """Read everything and compare it with the digest. Raises InvalidValue where it differs."""
        sums = {name: hashlib.sha256(self._columns[name]).digest() for name in CONTENT}
        if digest_of(self._header.mounts, sums) != self.digest:
            raise bad(self._file, f"its content does not have the digest {self.digest}")
        crc = 0
        for name in TREE:
            crc = zlib.crc32(self._columns[name], crc)
        if crc != self._header.tree_crc:
            raise bad(self._file, "the checksum of its index of directories is wrong")

    def _segment(self, segment: int) -> tuple[memoryview, bool, int]:
        """The column of versions of one segment, whether it is packed, and of how many files it is."""
        column = self._versions[self._starts[segment] : self._starts[segment + 1]]
        return column, bool(self._packed[segment]), min(SEGMENT, self.files - segment * SEGMENT)

    def _columns_of(self, segment: int, start: int, stop: int) -> Columns:
        """The files start..stop, all of one segment."""
        column, packed, count = self._segment(segment)
        first = segment * SEGMENT
        return Columns(
            paths=self.paths_between(start, stop),
            sizes=self._sizes[start:stop].tolist(),
            mtimes=self._mtimes[start:stop].tolist(),
            mounts=self._mounts[start:stop].tolist(),
            versions=cut_versions(column, packed, count, start - first, stop - first),
            packed=packed,
        )

    def _directory(self, path: bytes) -> int | None:
        """The number of a directory: the one of the first file under it whose path is of the right length.

        A directory without a name inside `a` has the path `a/` and goes before `a` itself.
        """
        if not path:
            return 0
        for length in (len(path), len(path) - 1) if path.endswith(b"/") else (len(path),):
            prefix = path[:length] + b"/"
            file = self.position(prefix)
            number = bisect_left(self._first, file, 1)
            while number < len(self._first) and self._first[number] == file:
                if self._length[number] == length and self.path(file).startswith(prefix):
                    return number
                number += 1
        return None

    def _entries(self, number: int, skip: int) -> Directory:
        dirs: Names = []
        child, last = number + 1, self._stop[number]
        while child < last:
            at = self._paths_at + self._ends[self._first[child]]
            dirs.append(self._map[at + skip : at + self._length[child]])
            child = max(child + 1, self._stop[child])
        dirs.sort()  # they come as if each name ended in a slash: "a-" before "a"
        runs = [
            range(self._columns["run_first"][run], min(self._columns["run_stop"][run], self.files))
            for run in range(self._columns["dir_runs"][number], self._columns["dir_runs_stop"][number])
        ]
        if len(runs) == 1:
            return Directory(dirs, self._names(runs[0], skip), runs[0])
        indices = [index for run in runs for index in run]
        return Directory(dirs, self._names_of(indices, skip), indices)

    def _names_of(self, files: Sequence[int], skip: int) -> Names:
        """The paths of the ascending `files` without their first `skip` bytes."""
        if not files or files[-1] - files[0] >= 2 * len(files):
            return [self.path(index)[skip:] for index in files]
        names, first = self._names(range(files[0], files[-1] + 1), skip), files[0]
        return [names[index - first] for index in files]

    def _names(self, files: range, skip: int) -> Names:
        """The paths of neighbouring files without their first `skip` bytes."""
        ends = self._ends[files.start : files.stop + 1].tolist()
        if len(ends) < 2:
            return []
        back = ends[0]
        blob = self._map[self._paths_at + back : self._paths_at + ends[-1]]
        return [blob[start - back + skip : stop - back] for start, stop in pairwise(ends)]


def _numbers(column: str) -> Literal["B", "H", "I", "Q", "q"]:
    return cast(Literal["B", "H", "I", "Q", "q"], COLUMNS[column])

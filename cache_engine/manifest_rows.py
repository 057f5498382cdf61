"""A piece of a listing in columns: up to SEGMENT files, sorted by path, a few bytes of overhead each.

What the builder keeps between the pages of a listing and the file of a manifest. Everything here works on whole
columns by the bulk built-ins (join, array, map, memoryview.cast): a Python object a file exists only while one
segment is turned over. A version column is *packed* (16 raw bytes a file) where all of it are strong ETags of 32
lower-case hex digits, which is what object stores give for all but multipart uploads; else it is text.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, islice, pairwise
from operator import itemgetter, lt
from typing import Any

SEGMENT = 1 << 16
"""Files in a segment: one multipart ETag costs a whole segment its packing; 65536 rows turn over in about 100 ms."""
_SHAPE = len('etag:"') + 32 + len('"')
_FIXED = [*enumerate(b'etag:"'), (_SHAPE - 1, ord('"'))]
"""Places and characters of an ETag's text around the digits."""


@dataclass(slots=True)
class Rows:
    """Files in path order. `paths` is all paths joined, `lengths` theirs; `versions` as of pack_versions."""

    paths: bytes
    lengths: array[int]
    sizes: array[int]
    mtimes: array[int]
    mounts: array[int]
    versions: bytes
    packed: bool

    def __len__(self) -> int:
        return len(self.sizes)

    def ends(self) -> array[int]:
        """Where each path ends in `paths`, after a leading 0."""
        return array("Q", accumulate(self.lengths, initial=0))

    @property
    def first(self) -> bytes:
        return self.paths[: self.lengths[0]]

    @property
    def last(self) -> bytes:
        return self.paths[len(self.paths) - self.lengths[-1] :]

    def columns(self, start: int, stop: int, ends: Sequence[int]) -> Columns:
        """The rows start..stop as Python lists again, versions raw if they are packed; `ends` of this object."""
        return Columns(
            paths=cut(self.paths, ends[start : stop + 1]),
            sizes=self.sizes[start:stop].tolist(),
            mtimes=self.mtimes[start:stop].tolist(),
            mounts=self.mounts[start:stop].tolist(),
            versions=cut_versions(self.versions, self.packed, len(self), start, stop),
            packed=self.packed,
        )


@dataclass(slots=True)
class Columns:
    """The same as lists of Python objects: while pages arrive, and where rows change places.

    `versions` are texts, or 16 raw bytes each if `packed`; `rows` tries to pack texts, so how rows travelled does
    not show in a manifest.
    """

    paths: list[bytes]
    sizes: list[int]
    mtimes: list[int]
    mounts: list[int]
    versions: list[Any]
    packed: bool = False

    @classmethod
    def empty(cls) -> Columns:
        return cls([], [], [], [], [])

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def first(self) -> bytes:
        return self.paths[0]

    @property
    def last(self) -> bytes:
        return self.paths[-1]

    def slice(self, start: int, stop: int) -> Columns:
        return self._each(lambda column: column[start:stop])

    def extend(self, other: Columns) -> None:
        """Append the other's rows."""
        if not self:
            self.packed = other.packed
        if not other.packed:
            self.unpack()
        self.paths += other.paths
        self.sizes += other.sizes
        self.mtimes += other.mtimes
        self.mounts += other.mounts
        self.versions += other.versions if self.packed == other.packed else _texts(other.versions)

    def chosen(self, rows: Sequence[bool]) -> Columns:
        """Only the rows for which a true value stands in `rows`."""
        return self._each(lambda column: list(compress(column, rows)))

    def unpack(self) -> None:
        """Versions as texts from here on."""
        if self.packed:
            self.versions, self.packed = _texts(self.versions), False

    def ascending(self) -> bool:
        """Whether the rows are in path order and no path is there twice."""
        return all(map(lt, self.paths, islice(self.paths, 1, None)))

    def sorted(self) -> Columns:
        """In path order; stable, so of two equal paths the one given first stays first."""
        order = sorted(range(len(self)), key=self.paths.__getitem__)
        if len(order) < 2:
            return self
        choose = itemgetter(*order)
        return self._each(lambda column: list(choose(column)))

    def repeated(self) -> int | None:
        """The first row whose path is also the next row's, in sorted columns."""
        if self.ascending():
            return None
        return next(row for row, (one, other) in enumerate(pairwise(self.paths)) if one == other)

    def rows(self) -> Rows:
        """Compact. Raises OverflowError or TypeError for numbers outside of 64 bits."""
        versions, packed = (b"".join(self.versions), True) if self.packed else pack_versions(self.versions)
        return Rows(
            paths=b"".join(self.paths),
            lengths=array("I", map(len, self.paths)),
            sizes=array("Q", self.sizes),
            mtimes=array("q", self.mtimes),
            mounts=array("H", self.mounts),
            versions=versions,
            packed=packed,
        )

    def _each(self, change: Callable[[list[Any]], list[Any]]) -> Columns:
        paths, versions = change(self.paths), change(self.versions)
        return Columns(paths, change(self.sizes), change(self.mtimes), change(self.mounts), versions, self.packed)


def cut(blob: bytes, ends: Sequence[int]) -> list[bytes]:
    """The pieces of `blob` between neighbours in `ends`."""
    return [blob[start:stop] for start, stop in pairwise(ends)]


def pack_versions(versions: Sequence[str]) -> tuple[bytes, bool]:
    """(column, packed): 16 bytes a version, or their ends as u32 and then all texts joined."""
    text = "".join(versions).encode("utf-8", "surrogateescape")
    raw = _packed(text, len(versions)) if len(text) == _SHAPE * len(versions) else None
    if raw is not None and set(map(len, versions)) == {_SHAPE}:
        return raw, True
    pieces = [version.encode("utf-8", "surrogateescape") for version in versions]
    return array("I", accumulate(map(len, pieces))).tobytes() + text, False


def cut_versions(column: bytes | memoryview, packed: bool, count: int, start: int, stop: int) -> list[Any]:
    """The versions start..stop of a column of `count`: 16 raw bytes each if it is packed, else texts."""
    if packed:
        return cut(bytes(column[16 * start : 16 * stop]), range(0, 16 * (stop - start) + 1, 16))
    ends = array("I", [0])
    ends.frombytes(column[: 4 * count])
    ends = ends[start : stop + 1]
    text = bytes(column[4 * count + ends[0] : 4 * count + ends[-1]])
    return [text[one - ends[0] : other - ends[0]].decode("utf-8", "surrogateescape") for one, other in pairwise(ends)]


def unpack_version(column: bytes | memoryview, packed: bool, count: int, row: int) -> str:
    """One version of a column of `count`."""
    if packed:
        return f'etag:"{column[16 * row : 16 * row + 16].hex()}"'
    start, stop = struct.unpack_from("=2I", column, 4 * row - 4) if row else (0, *struct.unpack_from("=I", column))
    return bytes(column[4 * count + start : 4 * count + stop]).decode("utf-8", "surrogateescape")


def recut(pieces: Iterable[Rows | Columns]) -> Iterator[Rows]:
    """The same rows in the same order, in pieces of exactly SEGMENT rows and a shorter last one."""
    waiting = Columns.empty()
    for piece in pieces:
        if not waiting and isinstance(piece, Rows) and len(piece) == SEGMENT:
            yield piece
            continue
        waiting.extend(piece.columns(0, len(piece), piece.ends()) if isinstance(piece, Rows) else piece)
        while len(waiting) >= SEGMENT:
            yield waiting.slice(0, SEGMENT).rows()
            waiting = waiting.slice(SEGMENT, len(waiting))
    if waiting:
        yield waiting.rows()


def _texts(packed: list[bytes]) -> list[str]:
    return [f'etag:"{raw.hex()}"' for raw in packed]


def _packed(text: bytes, count: int) -> bytes | None:
    """The ETags as raw bytes; None where one of `count` texts of one length is not `etag:"<32 lower-case hex>"`.

    Every fixed character is looked for at its own places by strided slices and blanked, and blanks between bytes
    are what fromhex skips: 5 times faster than cutting the digits out.
    """
    digits = bytearray(text)
    for at, character in _FIXED:
        if text[at::_SHAPE].count(character) != count:
            return None
        digits[at::_SHAPE] = b" " * count
    try:
        raw = bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        return None
    return raw if len(raw) == 16 * count and len(text.translate(None, b"ABCDEF")) == len(text) else None

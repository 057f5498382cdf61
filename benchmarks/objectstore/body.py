"""The bytes of a stored object: in memory, in a file, or made by a function of the offset.

`sending.py` puts them on a socket; `objects.py` gives them a name and a version. A body never changes: an object
that is replaced gets another body, and an answer that is under way keeps the old one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

Maker = Callable[[int, int], bytes]
"""(offset, n) -> n bytes."""


class Body(Protocol):
    """`size` bytes, read by position."""

    @property
    def size(self) -> int: ...

    def read(self, start: int, n: int) -> bytes | memoryview:
        """Bytes [start, start + n), of which all exist."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryBody:
    """Bytes held in this process."""

    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, start: int, n: int) -> memoryview:
        return memoryview(self.content)[start : start + n]


@dataclass(frozen=True, slots=True)
class FileBody:
    """A file as it was when the object was noted; sent by sendfile, never read into Python."""

    path: bytes
    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: bytes, found: os.stat_result) -> FileBody:
        return cls(path, found.st_size, found.st_mtime_ns, found.st_ino)

    def open(self) -> int:
        """A descriptor of exactly that file. Raises OSError (ESTALE) where another one has its name by now."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        if FileBody.of(self.path, os.fstat(fd)) != self:
            os.close(fd)
            raise OSError(errno.ESTALE, "the file was replaced or changed", os.fsdecode(self.path))
        return fd

    def read(self, start: int, n: int) -> bytes:
        fd = self.open()
        try:
            return os.pread(fd, n, start)
        finally:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class MadeBody:
    """Bytes computed when they are asked for: objects of terabytes without a disk."""

    size: int
    make: Maker

    def read(self, start: int, n: int) -> bytes:
        return self.make(start, n)


@dataclass(frozen=True, slots=True)
class FlippedBody:
    """Another body with the lowest bit of the byte at offset `at` flipped: a fault."""

    inner: Body
    at: int

    @property
    def size(self) -> int:
        return self.inner.size

    def read(self, start: int, n: int) -> bytes:
        piece = bytearray(self.inner.read(start, n))
        if start <= self.at < start + len(piece):
            piece[self.at - start] ^= 1
        return bytes(piece)


EMPTY = MemoryBody(b"")

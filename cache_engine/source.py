"""The contract of a place that bytes come from. The shelf of implementations is `sources/`.

A Source knows one mount's URL (bucket and prefix, host and directory) and takes keys relative to it.
Everything is synchronous: it runs in threads. Everything is safe to call from several threads, and from a
forked child, which gets fresh connections by itself. Errors are those of `cache_engine.errors`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from cache_engine.block import ObjectId


@dataclass(frozen=True, slots=True)
class Stat:
    """What a source says of one object. `size` bytes; `version` as in ObjectId; `mtime_ns` 0 where unknown."""

    size: int
    version: str
    mtime_ns: int = 0


@dataclass(slots=True)
class Page:
    """One page of a listing as four columns of equal length: a Python object a file is what 10^7 files cannot afford.

    `keys` are relative to the mount (raw bytes, in any order), `sizes` bytes, `versions` as in ObjectId,
    `mtimes_ns` nanoseconds since the epoch or 0.
    """

    keys: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    mtimes_ns: list[int] = field(default_factory=list)

    def add(self, key: bytes, stat: Stat) -> None:
        self.keys.append(key)
        self.sizes.append(stat.size)
        self.versions.append(stat.version)
        self.mtimes_ns.append(stat.mtime_ns)


class Stream(Protocol):
    """The body of one range, read once from front to back."""

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` as far as bytes are left; returns how many, short only at the end of the range."""
        ...

    def close(self) -> None:
        """Give the connection back (whole body read) or drop it (it was not)."""
        ...


class Source(Protocol):
    """A place bytes come from. `name` is its identity inside ObjectId.source: the URL without any secret."""

    name: str

    def list(self) -> Iterator[Page]:
        """Every object under the mount, page by page, never out of a cache of an earlier listing.

        Raises AccessDenied, SourceUnavailable or NotFound before or instead of ending early: a listing that
        ends without an exception is whole. An empty place is no page, or empty pages: the caller decides.
        """
        ...

    def stat(self, key: bytes) -> Stat:
        """One object, at most two requests, none of which lists more than 2 keys."""
        ...

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        """The bytes [start, stop) of exactly that version, 0 <= start < stop <= obj.size.

        Raises ObjectChanged where the source has another version, size or nothing any more;
        the version is demanded of the source and compared with what every response says of itself.
        """
        ...

    def close(self) -> None:
        """Drop idle connections. The source stays usable."""
        ...

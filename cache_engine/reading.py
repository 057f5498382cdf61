"""What the shapes of reading (file objects, fsspec, the verbs, warming) ask of an open Dataset.

`client.Client` is the implementation; the shapes know only this, so that each of them can be tried on objects in
memory. Two calls never see two versions of a file unless somebody moves the client to a newer snapshot; a shape
that must not move with it keeps the `reader`, which belongs to one snapshot for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from cache_engine.access import Access
from cache_engine.manifest import Manifest

if TYPE_CHECKING:
    from cache_engine.client import FileEntry

Path = str | bytes
"""A path inside a Dataset: as shown (`names.parse` takes it back), or the exact bytes of the key."""


class ByNumber(Protocol):
    """The bytes of one snapshot, by the file's number in its manifest."""

    @property
    def manifest(self) -> Manifest: ...

    def readinto(self, index: int, view: memoryview, start: int) -> None:
        """Fill `view` with the bytes from `start` on; they must exist. Raises CacheEngineError."""
        ...


class Controller(Protocol):
    """Who says what a Dataset is now."""

    def access(self, name: str) -> Access: ...


class OpenDataset(Protocol):
    """One Dataset at one snapshot. Safe from any thread and in a forked child; pickles by its name and address."""

    @property
    def dataset(self) -> str: ...
    @property
    def manifest(self) -> Manifest: ...
    @property
    def reader(self) -> ByNumber: ...
    @property
    def control(self) -> Controller: ...
    def ls(self, path: Path = "", detail: bool = False) -> Sequence[str] | Sequence[FileEntry]: ...
    def info(self, path: Path) -> FileEntry: ...
    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes: ...
    def read_many(self, paths: Sequence[Path]) -> list[bytes]: ...
    def iter_many(self, paths: Sequence[Path]) -> Iterator[tuple[Path, bytes]]: ...
    def close(self) -> None: ...

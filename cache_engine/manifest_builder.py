"""From the pages of listings to the file of a manifest, in any order and of any number of files.

Pages are turned into compact sorted `Rows` as they arrive. Where the rows of all pages follow one another (how
stores list) they are written as they are; where they overlap they are merged by key range, one range of about
SEGMENT files at a time, so that no more than that many files are Python objects at any moment. Memory of a build:
the columns themselves, about 80 bytes a file with paths of 40 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from cache_engine.errors import InvalidValue
from cache_engine.manifest import Manifest
from cache_engine.manifest_file import mount_prefix
from cache_engine.manifest_merge import merged
from cache_engine.manifest_rows import SEGMENT, Columns, Rows, recut
from cache_engine.manifest_write import write_manifest
from cache_engine.names import show
from cache_engine.source import Page

MOUNTS_LIMIT = 1 << 16


class ManifestBuilder:
    """Collects the listings of a Dataset's mounts. Not thread-safe; used once: `write` ends it."""

    def __init__(self, mounts: Sequence[tuple[str, str]]) -> None:
        """`mounts`: (name of the source, path of the mount as shown, "" for the root), in the Dataset's order."""
        if not 0 < len(mounts) <= MOUNTS_LIMIT:
            raise InvalidValue(f"a Dataset has 1 to {MOUNTS_LIMIT} mounts, not {len(mounts)}")
        self.mounts = tuple(mounts)
        self.files = 0
        self._prefixes = [mount_prefix(path) for _, path in mounts]
        self._waiting = Columns.empty()
        self._runs: list[Rows] = []

    def __repr__(self) -> str:
        return f"<ManifestBuilder {len(self.mounts)} mounts, {self.files} files, {len(self._runs)} sorted runs>"

    def add(self, mount: int, page: Page) -> None:
        """One page of the listing of mount number `mount`. Raises InvalidValue for columns of unequal length."""
        count = len(page.keys)
        if not count == len(page.sizes) == len(page.versions) == len(page.mtimes_ns):
            raise InvalidValue(f"a page of {self.mounts[mount][0]} has columns of unequal length; report this source")
        prefix = self._prefixes[mount]
        waiting = self._waiting
        waiting.paths += map(prefix.__add__, page.keys) if prefix else page.keys
        waiting.sizes += page.sizes
        waiting.mtimes += page.mtimes_ns
        waiting.mounts += [mount] * count
        waiting.versions += page.versions
        self.files += count
        while len(waiting) >= SEGMENT:
            self._keep(waiting.slice(0, SEGMENT))
            waiting = self._waiting = waiting.slice(SEGMENT, len(waiting))

    def write(self, path: str | os.PathLike[str]) -> Manifest:
        """The manifest of all that was added, in the file `path` (replaced at once, or not at all), opened.

        Raises InvalidValue where two files have one path, naming both; OSError where the disk refuses.
        """
        if self._waiting:
            self._keep(self._waiting)
            self._waiting = Columns.empty()
        runs, self._runs = self._runs, []
        size = sum(len(run.paths) for run in runs)
        pieces = recut(self._distinct(merged(runs, self._refuse_repeated)))
        write_manifest(path, self.mounts, pieces, files=self.files, path_bytes=size)
        return Manifest.open(path)

    def _keep(self, columns: Columns) -> None:
        if not columns.ascending():
            columns = columns.sorted()
            self._refuse_repeated(columns)
        try:
            self._runs.append(columns.rows())
        except (OverflowError, TypeError) as fault:
            raise InvalidValue(f"a listing holds a size or time that is not a number of 64 bits: {fault}") from fault

    def _distinct(self, pieces: Iterator[Rows | Columns]) -> Iterator[Rows | Columns]:
        """The same, if no path stands twice: in a merged piece, or last in one and first in the next."""
        before: Rows | Columns | None = None
        for piece in pieces:
            if before is not None and before.last == piece.first:
                self._refuse(piece.first, before.mounts[-1], piece.mounts[0])
            before = piece
            yield piece

    def _refuse_repeated(self, columns: Columns) -> None:
        row = columns.repeated()
        if row is not None:
            self._refuse(columns.paths[row], columns.mounts[row], columns.mounts[row + 1])

    def _refuse(self, path: bytes, one: int, other: int) -> None:
        names = [f"{self.mounts[m][0]} (mounted at {self.mounts[m][1] or '/'!r})" for m in (one, other)]
        what = f"{names[0]} lists it twice" if one == other else f"both {names[0]} and {names[1]} have it"
        raise InvalidValue(
            f"the path {show(path)!r} would stand for two files: {what}; mount one elsewhere or exclude the path"
        )

"""What a refresh changes: two manifests compared by path, as file numbers.

Changed means another identity of the bytes (ObjectId: source, key, version, size); a new time alone is no change.
Both are walked side by side in stretches of some thousand files, so memory does not grow with them; stretches of
the same paths, the common case, are compared column by column.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import ne, not_

from cache_engine.manifest import Manifest

_STRETCH = 1 << 12
"""Files compared at once: one more or less sends a stretch the slow way, which costs about 3 ms."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Numbers in path order. What a refresh warms is `added` and `changed`; what it may forget is `gone`."""

    added: array[int] = field(default_factory=lambda: array("I"))
    """Files of the new manifest whose path the old one has not."""
    changed: array[int] = field(default_factory=lambda: array("I"))
    """Files of the new manifest whose path is in the old one with other bytes."""
    gone: array[int] = field(default_factory=lambda: array("I"))
    """Files of the old manifest whose path the new one has not."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.gone)

    def __repr__(self) -> str:
        return f"<Difference {len(self.added)} added, {len(self.changed)} changed, {len(self.gone)} gone>"


def difference(old: Manifest, new: Manifest) -> Difference:
    """What is new, other and gone in `new` as seen from `old`."""
    found = Difference()
    if old.digest == new.digest:
        return found
    ids = _mount_ids(old, new)
    start, begin = 0, 0
    while start < old.files or begin < new.files:
        stop, end = _next_cut(old, start, new, begin)
        _compare(_Stretch(old, range(start, stop), ids), _Stretch(new, range(begin, end), ids), found)
        start, begin = stop, end
    return found


def _next_cut(old: Manifest, start: int, new: Manifest, begin: int) -> tuple[int, int]:
    """Where both stretches stop: at one path, and neither holds more than _STRETCH files."""
    ends = [m.path(at + _STRETCH) for m, at in ((old, start), (new, begin)) if at + _STRETCH < m.files]
    if not ends:
        return old.files, new.files
    return old.position(min(ends)), new.position(min(ends))


class _Stretch:
    """Some neighbouring files of one manifest in columns; all but the paths are the identity of a file's bytes."""

    def __init__(self, manifest: Manifest, files: range, ids: Mapping[tuple[str, str], int]) -> None:
        self.columns = manifest.columns_between(files.start, files.stop, raw=True)
        self.files: Sequence[int] = files
        mounts = [ids[mount] for mount in _mounts(manifest)]
        self.columns.mounts = list(map(mounts.__getitem__, self.columns.mounts))

    def part(self, other: _Stretch) -> list[int]:
        """Keep only the files whose path the other has too; returns the rest."""
        there = set(other.columns.paths)
        shared = list(map(there.__contains__, self.columns.paths))
        gone = list(compress(self.files, map(not_, shared)))
        if gone:
            self.files = list(compress(self.files, shared))
            self.columns = self.columns.chosen(shared)
        return gone

    def identity(self) -> tuple[list[str] | list[bytes], list[int], list[int]]:
        return self.columns.versions, self.columns.sizes, self.columns.mounts


def _compare(old: _Stretch, new: _Stretch, found: Difference) -> None:
    """Two stretches that hold the same range of paths."""
    if old.columns.paths != new.columns.paths:
        gone, added = old.part(new), new.part(old)
        found.gone.extend(gone)
        found.added.extend(added)
    if old.columns.packed != new.columns.packed:
        old.columns.unpack()
        new.columns.unpack()
    before, after = old.identity(), new.identity()
    if before != after:
        found.changed.extend(compress(new.files, map(ne, zip(*before, strict=True), zip(*after, strict=True))))


def _mounts(manifest: Manifest) -> list[tuple[str, str]]:
    return list(zip(manifest.sources, manifest.mount_paths, strict=True))


def _mount_ids(old: Manifest, new: Manifest) -> dict[tuple[str, str], int]:
    """The same number for the same mount in both, wherever it stands: same path and mount, same key."""
    return {mount: number for number, mount in enumerate({*_mounts(old), *_mounts(new)})}

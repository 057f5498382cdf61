"""The index of directories of a manifest, made in one pass over the sorted paths and read by bisection.

Directories are numbered as they first appear in path order, the root being 0, so the ones below directory d are
exactly d+1 .. stop[d]. The path of a directory is not stored: it is the first `length` bytes of the path of its
first file. The files directly in it are runs of neighbouring file numbers, with gaps where sub-directories stand.

The rules of what a tree shows (the file itself is always found by its exact path):
- a folder wins over a file of the same name, which is *hidden*;
- a path that ends in `/` is a *marker*: it makes the directory, and is not an entry of it;
- what names.showable refuses is *unshowable*.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from cache_engine.manifest_rows import Rows
from cache_engine.names import ALWAYS_SHOWABLE, SEGMENT_LIMIT, showable


@dataclass(slots=True)
class _Open:
    """A directory on the way from the root to the current file. `prefix` ends in a slash, but for the root's."""

    number: int
    prefix: bytes
    runs: list[tuple[int, int]] = field(default_factory=list)


class TreeBuilder:
    """Takes the paths in order, segment by segment; then holds the columns of the index and the counters."""

    def __init__(self) -> None:
        self.first, self.length, self.stop = array("I"), array("I"), array("I")
        self.runs, self.runs_stop = array("I"), array("I")
        self.run_first, self.run_stop = array("I"), array("I")
        self.hidden = self.unshowable = self.markers = 0
        self._stack: list[_Open] = []
        self._passed: dict[bytes, int] = {}  # files of earlier segments that a coming directory could hide
        self._enter(b"", 0)

    def add(self, rows: Rows, ends: Sequence[int], base: int) -> None:
        """The next segment, `ends` of it, and the number of its first file."""
        paths = _Paths(rows.paths, ends, base, max(rows.lengths))
        start = 0
        while start < len(paths):
            first = paths.path(start)
            prefix = first[: first.rfind(b"/") + 1]
            stop = paths.neighbours(start, prefix)
            self._run(paths, prefix, start, stop)
            start = stop
        self._passed = self._still_in_the_way(paths)

    def finish(self) -> dict[str, array[int]]:
        """The columns by their names in the file."""
        while self._stack:
            self._leave()
        return {
            "dir_first": self.first,
            "dir_length": self.length,
            "dir_stop": self.stop,
            "dir_runs": self.runs,
            "dir_runs_stop": self.runs_stop,
            "run_first": self.run_first,
            "run_stop": self.run_stop,
        }

    def _run(self, paths: _Paths, prefix: bytes, start: int, stop: int) -> None:
        """Files start..stop of the segment, all directly in the directory `prefix`."""
        if not self._go_to(paths, prefix, start):
            self.unshowable += stop - start
            return
        if paths.ends[start + 1] - paths.ends[start] == len(prefix):
            self.markers += 1
            start += 1
        runs = self._stack[-1].runs
        self.unshowable += stop - start
        for one, other in paths.showable_runs(start, stop, len(prefix)):
            self.unshowable -= other - one
            if runs and runs[-1][1] == paths.base + one:
                one = runs.pop()[0] - paths.base
            runs.append((paths.base + one, paths.base + other))

    def _go_to(self, paths: _Paths, prefix: bytes, row: int) -> bool:
        """Leave and enter directories until `prefix` is the innermost; False where no tree can show it."""
        if prefix.startswith(b"/"):
            return False
        while not prefix.startswith(self._stack[-1].prefix):
            self._leave()
        at = len(self._stack[-1].prefix)
        while at < len(prefix):
            slash = prefix.index(b"/", at)
            if slash - at > ALWAYS_SHOWABLE and not showable(prefix[at:slash]):
                return False
            self._hide(paths, prefix[:slash], row)
            self._enter(prefix[: slash + 1], paths.base + row)
            at = slash + 1
        return True

    def _enter(self, prefix: bytes, file: int) -> None:
        self._stack.append(_Open(len(self.first), prefix))
        self.first.append(file)
        self.length.append(max(0, len(prefix) - 1))
        for column in (self.stop, self.runs, self.runs_stop):
            column.append(0)

    def _leave(self) -> None:
        directory = self._stack.pop()
        self.runs[directory.number] = len(self.run_first)
        for first, stop in directory.runs:
            self.run_first.append(first)
            self.run_stop.append(stop)
        self.runs_stop[directory.number] = len(self.run_first)
        self.stop[directory.number] = len(self.first)

    def _hide(self, paths: _Paths, path: bytes, row: int) -> None:
        """Take a file that is named as the directory which begins at `row` out of the parent's runs."""
        found = paths.find(path, row)
        file = self._passed.get(path) if found is None else found
        if file is None:
            return
        runs = self._stack[-1].runs
        at = next((at for at, (first, stop) in enumerate(runs) if first <= file < stop), None)
        if at is not None:
            first, stop = runs[at]
            runs[at : at + 1] = [run for run in ((first, file), (file + 1, stop)) if run[0] < run[1]]
            self.hidden += 1

    def _still_in_the_way(self, paths: _Paths) -> dict[bytes, int]:
        """A file `foo` stands before the directory `foo/` with nothing but paths that begin with `foo` between."""
        last = paths.path(len(paths) - 1)
        passed = {path: file for path, file in self._passed.items() if last.startswith(path)}
        for length in range(1, len(last) + 1):
            found = paths.find(last[:length], len(paths))
            if found is not None:
                passed[last[:length]] = found
        return passed


class _Paths:
    """The paths of one segment, still joined."""

    def __init__(self, blob: bytes, ends: Sequence[int], base: int, longest: int) -> None:
        self.blob, self.ends, self.base = blob, ends, base
        self._plain = _all_names_fit(blob, longest)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def path(self, row: int) -> bytes:
        return self.blob[self.ends[row] : self.ends[row + 1]]

    def find(self, path: bytes, row: int) -> int | None:
        """The number of the file of exactly that path among the ones before `row`."""
        if row and not self.blob.startswith(path, self.ends[row - 1], self.ends[row]):
            return None  # all between the file and its directory begin with the path
        at = bisect_left(range(row), path, key=self.path)
        return self.base + at if at < row and self.path(at) == path else None

    def neighbours(self, start: int, prefix: bytes) -> int:
        """Where the run of files that lie directly in `prefix` and begins at `start` stops.

        Galloping: the paths are sorted, so if the last of a stretch begins with `prefix`, all do, and if they
        have not a slash more between them than their prefixes, none lies deeper.
        """
        blob, ends, slashes = self.blob, self.ends, prefix.count(b"/")
        stop, step, growing = start + 1, 1, True
        while step:
            new = stop + step
            if (
                new <= len(self)
                and blob.startswith(prefix, ends[new - 1], ends[new])
                and blob.count(b"/", ends[stop], ends[new]) == slashes * step
            ):
                stop = new
            else:
                growing = False
            step = step * 2 if growing else step // 2
        return stop

    def showable_runs(self, start: int, stop: int, prefix: int) -> list[tuple[int, int]]:
        """The rows start..stop without the ones whose name, what follows `prefix` bytes, cannot be shown."""
        if self._plain:
            return [(start, stop)] if start < stop else []
        runs = []
        for row in range(start, stop):
            if not showable(self.path(row)[prefix:]):
                if start < row:
                    runs.append((start, row))
                start = row + 1
        return [*runs, (start, stop)] if start < stop else runs


def _all_names_fit(blob: bytes, longest: int) -> bool:
    """Whether no name in a segment can be too long, told without looking at each."""
    if longest <= ALWAYS_SHOWABLE:
        return True
    return longest <= SEGMENT_LIMIT and blob.isascii() and blob.decode("ascii").isprintable()

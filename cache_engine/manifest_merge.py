"""Sorted runs into one order, a range of keys at a time.

Runs that follow one another pass through untouched. A cluster of runs whose ranges overlap is cut at keys chosen
from a sample into ranges of about SEGMENT files; each range is gathered from all its runs, sorted and let go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from cache_engine.manifest_rows import SEGMENT, Columns, Rows

_SAMPLE = 1 << 9
"""One key in so many is looked at to choose the cuts: ranges come out within some per cent of SEGMENT files."""


def merged(runs: list[Rows], check: Callable[[Columns], None]) -> Iterator[Rows | Columns]:
    """All rows in path order; empties `runs` on the way. `check` sees each range that was merged anew."""
    runs.sort(key=lambda run: run.first, reverse=True)
    while runs:
        cluster = [runs.pop()]
        last = cluster[0].last
        while runs and runs[-1].first <= last:
            cluster.append(runs.pop())
            last = max(last, cluster[-1].last)
        if len(cluster) == 1:
            yield cluster.pop()
        else:
            yield from _merge(cluster, check)


def _merge(cluster: Sequence[Rows], check: Callable[[Columns], None]) -> Iterator[Columns]:
    cuts = _cuts(cluster)
    sources = [_Cursor(run) for run in cluster]
    for stop in [*cuts, None]:
        columns = Columns.empty()
        for source in sources:
            source.take(stop, columns)
        if columns:
            columns = columns.sorted()
            check(columns)
            yield columns


def _cuts(cluster: Sequence[Rows]) -> list[bytes]:
    sample: list[bytes] = []
    for run in cluster:
        ends = run.ends()
        sample += [run.paths[ends[at] : ends[at + 1]] for at in range(_SAMPLE // 2, len(run), _SAMPLE)]
    sample.sort()
    step = SEGMENT // _SAMPLE
    return sorted(set(sample[step::step]))


class _Cursor:
    """How far one run has been taken."""

    def __init__(self, run: Rows) -> None:
        self._run, self._ends, self._row = run, run.ends(), 0

    def take(self, stop: bytes | None, into: Columns) -> None:
        """Move the rows before the path `stop` (all that are left: None) to the end of `into`."""
        run, ends, start = self._run, self._ends, self._row
        self._row = len(run) if stop is None else bisect_left(range(len(run)), stop, start, key=self._path)
        into.extend(run.columns(start, self._row, ends))

    def _path(self, row: int) -> bytes:
        return self._run.paths[self._ends[row] : self._ends[row + 1]]

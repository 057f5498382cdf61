"""The one path by which bytes are read: local cell, owner, next owner, source.

A reader belongs to one snapshot. Whatever fails on the way is passed over for the next; the caller sees an
error only where nobody has the bytes, or where the source says that they are no longer those of the snapshot.
Plain threads: the descriptors and sockets underneath let go of the GIL while bytes move. Mutable: `_avoid`
and `stats`, both by single atomic assignments or under `_lock`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from cache_engine import wire
from cache_engine.block import BLOCK, ObjectId
from cache_engine.config import ReaderConfig
from cache_engine.errors import (
    AccessDenied,
    CacheEngineError,
    CorruptBlock,
    ObjectChanged,
    SourceUnavailable,
    UnsupportedSource,
    WorkerUnavailable,
)
from cache_engine.fork_lock import ForkLock
from cache_engine.local_cells import LocalCells, SmallCell
from cache_engine.manifest import Manifest
from cache_engine.membership import Membership
from cache_engine.peers import BadBlock, BrokenOff, Peer
from cache_engine.pieces import piece_size, pieces_of
from cache_engine.read_stats import ReadStats
from cache_engine.source import Source

BEFORE_SOURCE = 2
"""Workers that are asked beside the owners before the source is; all of them where this process cannot read it."""
FEW_CONNECTIONS = 16
"""Up to here blocks are taken as they land, so that no connection idles; with more in flight the CPUs are the limit,
and a wake-up a block costs 11 to 16 % (cold_fill at 32 connections, both ways in one run)."""
SMALL_CELLS = 1 << 17
"""Small cells of this host that a reader remembers at the most."""
SOURCE_SAID = (SourceUnavailable, ObjectChanged)
"""Every worker would hear the same from the source: the others are asked only for what they hold already."""


class Reader:
    """Reads objects of one snapshot by their numbers in its manifest."""

    def __init__(
        self,
        manifest: Manifest,
        membership: Membership,
        config: ReaderConfig,
        sources: Callable[[int], Source],
        newer: Callable[[Membership], Membership] = lambda known: known,
    ) -> None:
        """`sources(mount)` opens a mount's source; `newer(membership)` is asked after a worker failed."""
        self.manifest = manifest
        self.membership = membership
        self.config = config
        self.stats = ReadStats()
        self.small_cells: dict[int, SmallCell] = {}
        """File number -> its cell on this host, of those read by read_many; single assignments, no lock."""
        self._sources = sources
        self._newer = newer
        self._threads: tuple[int, ThreadPoolExecutor] | None = None
        self._lock = ForkLock()

    def __repr__(self) -> str:
        return f"<Reader {self.manifest.digest[:12]} epoch {self.membership.access.epoch}, {self.stats.bytes}>"

    def path(self, index: int) -> str:
        return wire.object_path(self.membership.access.dataset, self.manifest.digest, index)

    def threads(self) -> ThreadPoolExecutor:
        """The reader's own threads; a forked child makes new ones."""
        with self._lock:
            if self._threads is None or self._threads[0] != os.getpid():
                self._threads = (os.getpid(), ThreadPoolExecutor(self.config.connections, "forebay-read"))
            return self._threads[1]

    def keep_small(self, index: int, cell: SmallCell) -> None:
        """Remember how to read a small file's cell; all are forgotten at once at 131,072 (about 40 MB)."""
        if len(self.small_cells) >= SMALL_CELLS:
            self.small_cells.clear()
        self.small_cells[index] = cell

    def readinto(self, index: int, view: memoryview, start: int) -> None:
        """Fill `view` with the bytes of object `index` from `start` on; they must exist. Raises CacheEngineError."""
        obj = self.manifest.object_id(index)
        stop = start + len(view)
        most = piece_size(len(view), self.config.connections, self.config.piece)
        pieces = pieces_of(start, stop, obj.size, most)
        if len(pieces) <= 1 or self.config.connections == 1:
            for first, last in pieces:
                self.pull(index, obj, view[first - start : last - start], first)
            return
        pool = self.threads()
        jobs = [pool.submit(self.pull, index, obj, view[a - start : b - start], a) for a, b in pieces]
        try:
            for job in jobs:
                job.result()
        finally:
            for job in jobs:
                job.cancel()
            wait(jobs)

    def pull(self, index: int, obj: ObjectId, view: memoryview, start: int) -> None:
        """One piece, from the first place that has it."""
        membership = self.membership
        ranked = membership.ring.owners(obj, start, len(membership.members)) if membership.members else []
        if self._pull_local(obj, view, start, membership.cells(ranked)):
            return
        order = membership.candidates(ranked)
        first = membership.access.owners + BEFORE_SOURCE
        failure = self._pull_workers(index, view, start, membership, order[:first])
        if failure is None:
            return
        source = self._own_source(index, failure)
        if isinstance(source, CacheEngineError):
            if self._pull_workers(index, view, start, membership, order[first:]) is not None:
                raise source
        else:
            self._pull_source(source, obj, view, start)

    def _own_source(self, index: int, failure: CacheEngineError) -> Source | CacheEngineError:
        """The source itself, where this process may read it and it may have the bytes; else what to raise."""
        if not self.config.source or isinstance(failure, ObjectChanged):
            return failure
        try:
            return self._sources(self.manifest.mount(index))
        except CacheEngineError as exc:
            kind = CorruptBlock if isinstance(failure, CorruptBlock) else type(failure)
            chained = kind(f"{failure}; and the source cannot be read from here: {exc}")
            chained.__cause__ = exc
            return chained

    def _pull_local(self, obj: ObjectId, view: memoryview, start: int, places: Sequence[LocalCells]) -> bool:
        for cells in places:
            cell = cells.open(obj)
            if cell is None:
                continue
            try:
                if cell.has(start, start + len(view)):
                    cell.readinto(view, start)
                    self.stats.add("local", len(view))
                    return True
            except CorruptBlock:
                self.stats.bad_blocks += 1
            finally:
                cell.close()
        return False

    def _pull_workers(
        self,
        index: int,
        view: memoryview,
        start: int,
        membership: Membership,
        order: Sequence[tuple[str, bool]],
    ) -> CacheEngineError | None:
        """None once the view is filled; else the most telling reason why no worker had it."""
        failure: CacheEngineError = WorkerUnavailable(f"Dataset {membership.access.dataset} has no worker")
        for name, stand_in in order:
            flags = [wire.HOP] if stand_in else []
            if isinstance(failure, SOURCE_SAID):
                flags.append(wire.HELD)
            try:
                origin = self._ask(membership.peer(name), index, view, start, flags)
            except CacheEngineError as exc:
                if not isinstance(exc, SOURCE_SAID):
                    self.passed_over(membership, name, exc)
                failure = max(exc, failure, key=_telling)  # of equals the newer one
            else:
                self.stats.add(origin, len(view))
                return None
        return failure

    def passed_over(self, membership: Membership, member: str, error: CacheEngineError) -> None:
        """A worker did not answer for what it was asked: somebody else will be, and the next reads know better."""
        self.stats.failed_over += 1
        if isinstance(error, WorkerUnavailable):
            membership.failed(member)
            self.membership = self._newer(membership)

    def _ask(self, peer: Peer, index: int, view: memoryview, start: int, flags: Sequence[str]) -> str:
        """One worker; a block that came damaged is reported to it and asked for once more, a broken body likewise."""
        few = self.config.connections <= FEW_CONNECTIONS
        late = [*flags, wire.LATE_CRC] if few and len(view) > BLOCK else flags
        try:
            return peer.get(self.path(index), view, start, late)
        except BadBlock as exc:
            self.report(peer, index, exc)
        except BrokenOff:
            pass
        return peer.get(self.path(index), view, start, flags)

    def report(self, peer: Peer, index: int, bad: BadBlock) -> None:
        """Tell the worker, which compares the block for itself and drops it."""
        self.stats.bad_blocks += 1
        peer.call("POST", f"{self.path(index)}/bad?block={bad.block}")

    def _pull_source(self, source: Source, obj: ObjectId, view: memoryview, start: int) -> None:
        stream = source.read(obj, start, start + len(view))
        try:
            if stream.readinto(view) != len(view):
                raise SourceUnavailable(f"{source.name} ended the body of {obj.key!r} early; try again")
        finally:
            stream.close()
        self.stats.add("source", len(view))

    def close(self) -> None:
        """End the threads and drop the connections; a read after that makes new ones."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None and threads[0] == os.getpid():
            threads[1].shutdown(wait=True, cancel_futures=True)
        self.membership.close()


def _telling(error: CacheEngineError) -> int:
    """Which of several workers' failures the caller should see: what was said of the object, then of the worker."""
    return next((rank for kind, rank in _TELLING if isinstance(error, kind)), 0)


_TELLING = ((ObjectChanged, 4), (SourceUnavailable, 3), (AccessDenied, 2), (UnsupportedSource, 2), (CorruptBlock, 1))

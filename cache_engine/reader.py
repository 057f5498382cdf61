"""The one path by which bytes are read: local cell, owner, next owner, source.

A reader belongs to one snapshot. Whatever fails on the way is passed over for the next; the caller sees an
error only where nobody has the bytes, or where the source says that they are no longer those of the snapshot.
Plain threads: the descriptors and sockets underneath let go of the GIL while bytes move. Mutable: `_avoid`
and `stats`, both by single atomic assignments or under `_lock`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from cache_engine import wire
from cache_engine.access import Access, Member
from cache_engine.block import ObjectId
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
from cache_engine.peers import BadBlock, Peer
from cache_engine.pieces import piece_size, pieces_of
from cache_engine.ring import Ring
from cache_engine.source import Source

BEFORE_SOURCE = 2
"""Workers that are asked beside the owners before the source is; all of them where this process cannot read it."""
SOURCE_SAID = (SourceUnavailable, ObjectChanged)
"""Every worker would hear the same from the source: the others are asked only for what they hold already."""
SMALL_CELLS = 1 << 17


@dataclass(slots=True)
class ReadStats:
    """Bytes handed to callers by where they came from, and what went wrong on the way. Guarded by `_lock`."""

    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("local", "cell", "fill", "past", "source"), 0))
    failed_over: int = 0
    """Requests that a worker did not answer and another place did."""
    bad_blocks: int = 0
    """Blocks whose CRC was wrong: never handed to a caller."""
    _lock: ForkLock = field(default_factory=ForkLock, repr=False)

    def add(self, origin: str, size: int) -> None:
        with self._lock:
            self.bytes[origin] = self.bytes.get(origin, 0) + size

    def copy(self) -> ReadStats:
        """The figures as of now."""
        with self._lock:
            return ReadStats(dict(self.bytes), self.failed_over, self.bad_blocks)

    def since(self, before: ReadStats) -> ReadStats:
        """What came after `before`."""
        bytes_ = {origin: size - before.bytes.get(origin, 0) for origin, size in self.bytes.items()}
        return ReadStats(bytes_, self.failed_over - before.failed_over, self.bad_blocks - before.bad_blocks)

    def total(self) -> int:
        return sum(self.bytes.values())

    def hit_ratio(self) -> float:
        """Share of the bytes that were in a cache when they were asked for."""
        return (self.bytes["local"] + self.bytes["cell"]) / max(1, self.total())


class Membership:
    """The workers of a Dataset as of one epoch, and who of them is better left alone for a while."""

    def __init__(self, access: Access, config: ReaderConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.access = access
        self.ring = Ring.of(access.members)
        self.members = {m.id: m for m in access.members}
        self._config = config
        self._clock = clock
        self._peers = {m.id: Peer(m, config.timeouts) for m in access.members}
        self._cells = {m.id: LocalCells(m.directory) for m in access.members if self._is_local(m)}
        self._near = next((m for m in access.members if config.node and m.node == config.node), None)
        self._avoid: dict[str, float] = {}

    def _is_local(self, member: Member) -> bool:
        return self._config.local and bool(self._config.node) and member.node == self._config.node

    def peer(self, member: str) -> Peer:
        return self._peers[member]

    def cells(self, ranked: Sequence[str]) -> list[LocalCells]:
        """Directories on this host that may hold the bytes: an owner's, and the near worker's."""
        names = dict.fromkeys((*ranked[: self.access.owners], self._near.id if self._near else ""))
        return [self._cells[name] for name in names if name in self._cells]

    def candidates(self, ranked: Sequence[str]) -> list[tuple[str, bool]]:
        """(member, whether it is a stand-in that asks nobody else), in the order to ask."""
        owners = list(ranked[: self.access.owners])
        first = [self._near.id] if self._near and self._keeps_near(owners) else []
        rest = [name for name in ranked[len(owners) :] if name not in first]
        order = [(name, False) for name in (*first, *owners)] + [(name, True) for name in rest]
        now = self._clock()
        return sorted(order, key=lambda item: self._avoid.get(item[0], 0.0) > now)

    def _keeps_near(self, owners: Sequence[str]) -> bool:
        """Whether this host's worker is asked first: it keeps near copies, and no owner is on this host."""
        here = any(self.members[name].node == self._config.node for name in owners)
        return not here and self.access.near_copies != "never"

    @property
    def has_local(self) -> bool:
        """Whether any worker's cells can be opened directly."""
        return bool(self._cells)

    def failed(self, member: str) -> None:
        self._avoid[member] = self._clock() + self._config.avoid

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()


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
        self, index: int, view: memoryview, start: int, membership: Membership, order: Sequence[tuple[str, bool]]
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
        """One worker; a block that came damaged is reported to it and asked for once more."""
        try:
            return peer.get(self.path(index), view, start, flags)
        except BadBlock as exc:
            self.report(peer, index, exc)
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
        if self._threads is not None and self._threads[0] == os.getpid():
            self._threads[1].shutdown(wait=True, cancel_futures=True)
        self.membership.close()


def _telling(error: CacheEngineError) -> int:
    """Which of several workers' failures the caller should see: what was said of the object, then of the worker."""
    return next((rank for kind, rank in _TELLING if isinstance(error, kind)), 0)


_TELLING = ((ObjectChanged, 4), (SourceUnavailable, 3), (AccessDenied, 2), (UnsupportedSource, 2), (CorruptBlock, 1))

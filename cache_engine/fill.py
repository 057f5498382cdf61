"""Bytes into cells: carries flights out in a bounded pool of threads.

A fetch is received, summed and written a block at a time: one block of buffer a thread, whatever the object's
size. Above: `server.py`; below: `flights.py` (who fetches what), `tier.py` (room and cells) and an `Origin`,
which says where the bytes come from (the source, or another worker).
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from crc32c import crc32c

from cache_engine.block import BLOCK, RUN, ObjectId, block_length
from cache_engine.errors import CacheEngineError, SourceUnavailable, WorkerUnavailable
from cache_engine.flights import Flight, Flights
from cache_engine.lease import Lease
from cache_engine.metrics import WorkerMetrics
from cache_engine.source import Stream
from cache_engine.tier import DiskTier

GRACE = 3.0
"""Seconds that fetches get to land their block when a worker stops; a source may hang for minutes."""
STOPPING = "this worker is stopping; ask the next owner"


class NoRoom(CacheEngineError):
    """The tier cannot take these blocks now (all leased and full, or the disk is); read past the cache."""


class Origin(Protocol):
    """Where the bytes of an object come from: a source, or a worker that holds or fetches them."""

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        """The bytes [start, stop), as the contract of Source.read says."""
        ...


class Filler:
    """Fills cells of one tier. Threads: `fetches` of them, each with one block of buffer.

    Mutable: `_running`, guarded by `_idle`; `_stopping`, set once.
    """

    def __init__(self, tier: DiskTier, fetches: int, metrics: WorkerMetrics) -> None:
        self.tier = tier
        self.flights = Flights()
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(fetches, thread_name_prefix="fetch")
        self._local = threading.local()
        self._stopping = False
        self._running = 0
        self._idle = threading.Condition()

    def ensure(self, lease: Lease, blocks: range, origin: Origin, label: str, near: bool) -> list[Future[None]]:
        """Start what is missing of `blocks`; wait for all the futures, then the lease is ready for them.

        A future fails with the source's error, or with NoRoom where the bytes have to go past the cache.
        May read from the disk (proving blocks after an unclean stop): call it in a thread unless `ready`.
        """
        missing = lease.missing(blocks)
        if not missing:
            return []
        started, futures = self.flights.board(
            lease.cell_name, missing, lambda block: lease.ready(range(block, block + 1)), RUN // BLOCK
        )
        for flight in started:
            self._start(flight, lease.obj, origin, label, near)
        return futures

    def _start(self, flight: Flight, obj: ObjectId, origin: Origin, label: str, near: bool) -> None:
        try:
            self._pool.submit(self._fly, flight, obj, origin, label, near)
        except RuntimeError as exc:
            self.flights.end(flight, WorkerUnavailable(STOPPING))
            raise WorkerUnavailable(STOPPING) from exc

    def _fly(self, flight: Flight, obj: ObjectId, origin: Origin, label: str, near: bool) -> None:
        with self._idle:
            self._running += 1
        try:
            self._carry_out(flight, obj, origin, label, near)
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def _carry_out(self, flight: Flight, obj: ObjectId, origin: Origin, label: str, near: bool) -> None:
        """One flight, in a pool thread, with a lease of its own: the asker's may be gone."""
        error: CacheEngineError | None = None
        try:
            with self.tier.lease(obj, label=label, near=near) as lease:
                if not lease.reserve(flight.run) and not lease.reserve(flight.run[:1]):
                    raise NoRoom(f"no room for {len(flight.run)} blocks in {self.tier!r}")
                try:
                    self._receive(flight, lease, origin)
                finally:
                    if flight.landed < flight.run.stop:
                        lease.cancel(range(flight.landed, flight.run.stop))
                        lease.vouch()
        except CacheEngineError as exc:
            error = exc
        except OSError as exc:
            error = NoRoom(f"the cache directory failed: {exc}")
        finally:
            self.flights.end(flight, error)

    def _receive(self, flight: Flight, lease: Lease, origin: Origin) -> None:
        obj = lease.obj
        first = flight.run.start * BLOCK
        stream = origin.read(obj, first, min(obj.size, flight.run.stop * BLOCK))
        try:
            for block in flight.run:
                if self._stopping:
                    raise WorkerUnavailable(STOPPING)
                view = self._buffer()[: block_length(obj.size, block)]
                if stream.readinto(view) != len(view):
                    raise SourceUnavailable(f"the bytes of {obj.key!r} ended inside block {block}; try again")
                if not lease.write(block, view, crc32c(view)) and not self._write_late(lease, block, view):
                    raise NoRoom(f"block {block} could not be written to the cache directory")
                self._metrics.filled(len(view))
                if block + 1 == flight.run.stop:
                    lease.vouch()  # before anybody is told: whoever waited for all of it may open the cell itself
                self.flights.land(flight, block)
        finally:
            stream.close()

    def _write_late(self, lease: Lease, block: int, view: memoryview) -> bool:
        """A block that was not reserved with its run: a tier smaller than a run takes what fits, block by block."""
        return lease.reserve(range(block, block + 1)) and lease.write(block, view, crc32c(view))

    def _buffer(self) -> memoryview:
        view: memoryview | None = getattr(self._local, "view", None)
        if view is None:
            view = self._local.view = memoryview(bytearray(BLOCK))
        return view

    def stop(self) -> None:
        """No new fetches; those under way end at their next block, and whoever waits is told so now."""
        self._stopping = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.flights.end_all(WorkerUnavailable(STOPPING))

    def close(self, grace: float = GRACE) -> bool:
        """Stop, and wait `grace` seconds for fetches to end; False where one still waits for its source."""
        self.stop()
        with self._idle:
            return self._idle.wait_for(lambda: not self._running, grace)


def read_past(origin: Origin, obj: ObjectId, start: int, stop: int) -> bytearray:
    """The bytes [start, stop) into memory, past a cache that has no room for them."""
    body = bytearray(stop - start)
    if body:
        stream = origin.read(obj, start, stop)
        try:
            for offset in range(0, len(body), BLOCK):
                view = memoryview(body)[offset : offset + BLOCK]
                if stream.readinto(view) != len(view):
                    raise SourceUnavailable(f"the bytes of {obj.key!r} ended before byte {stop}; try again")
        finally:
            stream.close()
    return body


def block_crcs(body: bytearray) -> list[int]:
    """One CRC32C for each block's length of `body`."""
    view = memoryview(body)
    return [crc32c(view[offset : offset + BLOCK]) for offset in range(0, len(view), BLOCK)]

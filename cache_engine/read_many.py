"""Many small files at once: local cells by two threads, the rest in batches to their owners.

Above: `client.py`; below: `reader.py`, which takes over file by file where a batch failed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice

from cache_engine import wire
from cache_engine.block import BLOCK, ObjectId
from cache_engine.errors import CacheEngineError, CorruptBlock
from cache_engine.fresh_bytes import fresh_bytes
from cache_engine.peers import BadBlock
from cache_engine.pieces import batches_of
from cache_engine.reader import Reader

LOCAL_THREADS = 2
"""Threads that read local cells: the work is half system calls, half Python under the GIL; more gain nothing."""
LOCAL_CHUNK = 256
"""Files of one thread's turn."""


class ManyRead:
    """One call of read_many. `results[n]` belongs to `indices[n]`: written once, by whoever read it."""

    def __init__(self, reader: Reader, indices: Sequence[int]) -> None:
        self._reader = reader
        self._indices = indices
        self._objects: list[ObjectId | None] = [None] * len(indices)
        self.results: list[bytes | CacheEngineError | None] = [None] * len(indices)

    def run(self) -> list[bytes | CacheEngineError]:
        """Every file's bytes, or its error, in the order asked."""
        left = self._local(list(range(len(self._indices))))
        small = [slot for slot in left if self._size(slot) <= BLOCK]
        alone = [slot for slot in left if self._size(slot) > BLOCK] + self._batches(small)
        for slot in alone:
            self.results[slot] = self._whole(slot)
        return [result if result is not None else b"" for result in self.results]

    def _object(self, slot: int) -> ObjectId:
        obj = self._objects[slot]
        if obj is None:
            obj = self._objects[slot] = self._reader.manifest.object_id(self._indices[slot])
        return obj

    def _size(self, slot: int) -> int:
        return self._reader.manifest.size(self._indices[slot])

    def _local(self, slots: list[int]) -> list[int]:
        """Reads what lies in cells on this host; returns the slots that are left."""
        if not self._reader.membership.has_local:
            return slots
        chunks = [slots[n : n + LOCAL_CHUNK] for n in range(0, len(slots), LOCAL_CHUNK)]
        pool = self._reader.threads()
        left: list[int] = []
        turns = iter(chunks)
        running: list[Future[list[int]]] = [
            pool.submit(self._local_chunk, chunk) for chunk in islice(turns, LOCAL_THREADS)
        ]
        while running:
            left += running.pop(0).result()
            running += [pool.submit(self._local_chunk, chunk) for chunk in islice(turns, 1)]
        return left

    def _local_chunk(self, slots: list[int]) -> list[int]:
        """A turn of one thread. What is known of a cell is kept: the next read needs no identity and no voucher."""
        known = self._reader.small_cells
        left = []
        size = 0
        for slot in slots:
            cell = known.get(self._indices[slot])
            try:
                body = cell.read() if cell else self._find_local(slot)
            except CorruptBlock:  # the worker will hear of it from the batch
                self._reader.stats.bad_blocks += 1
                body = None
            if body is None:
                left.append(slot)
            else:
                self.results[slot] = body
                size += len(body)
        self._reader.stats.add("local", size)
        return left

    def _find_local(self, slot: int) -> bytes | None:
        obj = self._object(slot)
        if not obj.size:
            return b""
        membership = self._reader.membership
        for cells in membership.cells(membership.ring.owners(obj, 0, membership.access.owners)):
            small = cells.small(obj)
            if small is not None:
                self._reader.keep_small(self._indices[slot], small)
                return small.read()
        return None

    def _batches(self, slots: list[int]) -> list[int]:
        """Reads in batches from owners, then from stand-ins; returns the slots to read one by one."""
        for rank in range(3):
            if not slots:
                break
            slots = self._round(slots, rank)
        return slots

    def _round(self, slots: list[int], rank: int) -> list[int]:
        """One attempt at every slot, at the candidate of this rank; returns those that nobody answered for."""
        membership = self._reader.membership
        by_member: dict[tuple[str, bool], list[int]] = defaultdict(list)
        left: list[int] = []
        for slot in slots:
            candidates = membership.order(self._indices[slot], partial(self._object, slot))
            if rank < len(candidates):
                by_member[candidates[rank]].append(slot)
            else:
                left.append(slot)
        pool = self._reader.threads()
        jobs = [
            pool.submit(self._batch, member, batch)
            for member, share in by_member.items()
            for batch in batches_of([(slot, self._size(slot)) for slot in share])
        ]
        for job in jobs:
            left += job.result()
        return left

    def _batch(self, member: tuple[str, bool], slots: list[int]) -> list[int]:
        """One batch at one worker; returns the slots that it did not answer for."""
        name, stand_in = member
        reader = self._reader
        membership = reader.membership
        base = f"/v1/d/{membership.access.dataset}/{reader.manifest.digest}"
        done = 0
        sizes: Counter[str] = Counter()
        left = []
        try:
            answers = membership.peer(name).batch(
                base, [self._indices[slot] for slot in slots], [wire.HOP] if stand_in else []
            )
            for slot, answer in zip(slots, answers, strict=True):
                done += 1
                if isinstance(answer, CacheEngineError):
                    left.append(slot)
                    if isinstance(answer, BadBlock):
                        reader.report(membership.peer(name), self._indices[slot], answer)
                else:
                    body, origin = answer
                    self.results[slot] = body
                    sizes[origin] += len(body)
        except CacheEngineError as exc:
            reader.passed_over(membership, name, exc)
            left += slots[done:]
        for origin, size in sizes.items():
            reader.stats.add(origin, size)
        return left

    def _whole(self, slot: int) -> bytes | CacheEngineError:
        obj = self._object(slot)
        body, view = fresh_bytes(obj.size)
        try:
            self._reader.readinto(self._indices[slot], view, 0)
        except CacheEngineError as exc:
            return exc
        return body

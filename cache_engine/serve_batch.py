"""A worker's answer to a batch: many small files, their sizes and CRCs first, then the bodies.

A file that cannot be had becomes a row with an error code and a message as its body; the others come all the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType

from crc32c import crc32c

from cache_engine import wire
from cache_engine.block import BLOCK, block_count
from cache_engine.crossing import wait_for_all
from cache_engine.datasets import ServedDataset
from cache_engine.errors import CacheEngineError, InvalidValue, NotFound
from cache_engine.fill import NoRoom, read_past
from cache_engine.lease import Lease
from cache_engine.origins import OwnerFirst, Target
from cache_engine.worker import Worker

_CODES = {origin: code for code, origin in wire.BATCH_ORIGINS.items()}


@dataclass(slots=True)
class _File:
    """One file of the batch on its way: its lease and what it waits for, or its error."""

    lease: Lease | None = None
    origin: OwnerFirst | None = None
    waits: Sequence[Future[None]] = ()
    where: str = "cell"
    past: bytes | bytearray | None = None
    error: CacheEngineError | None = None


class BatchAnswer:
    """Gathers the leases of one batch and lets them go at the end; used as a context manager."""

    def __init__(self, worker: Worker, served: ServedDataset, digest: str, indices: Sequence[int], hop: bool) -> None:
        self._worker = worker
        self._served = served
        self._digest = digest
        self._indices = indices
        self._hop = hop
        self._label = served.access.uid if digest == served.digest else ""
        self._files: list[_File] = []

    def __enter__(self) -> BatchAnswer:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for file in self._files:
            if file.lease is not None:
                file.lease.close()

    async def prepare(self) -> tuple[bytes, Iterator[tuple[int, int] | bytes | bytearray], int]:
        """(table, bodies in order, bytes of both) once every file is held or has failed."""
        await asyncio.to_thread(self._collect)
        await wait_for_all([wait for file in self._files for wait in file.waits])
        for file in self._files:
            if file.where == "past":
                await self._pass(file)
            elif file.waits:
                await self._arrive(file)
        rows = [_row(file) for file in self._files]
        self._count(rows)
        table = wire.pack_rows(rows)
        return table, self._bodies(), len(table) + sum(row.size for row in rows)

    def _count(self, rows: Sequence[wire.BatchRow]) -> None:
        sent: Counter[str] = Counter()
        for row in rows:
            if row.code in wire.BATCH_ORIGINS:
                sent[wire.BATCH_ORIGINS[row.code]] += row.size
        for origin, size in sent.items():
            self._worker.metrics.sent(origin, size)

    def _collect(self) -> None:
        files = self._served.manifest(self._digest).files
        for index in self._indices:
            file = _File()
            self._files.append(file)
            try:
                if index >= files:
                    raise NotFound(f"there is no file number {index}")
                self._lease(file, index)
            except CacheEngineError as exc:
                file.error = exc

    def _lease(self, file: _File, index: int) -> None:
        worker = self._worker
        obj, owned = self._served.file(self._digest, index, worker.id)
        if obj.size > BLOCK:
            raise InvalidValue(f"file number {index} is too large for a batch; ask for ranges of it")
        file.lease = lease = worker.tier.lease(obj, label=self._label, near=not owned)
        blocks = range(block_count(obj.size))
        if lease.ready(blocks):
            return
        target = Target(self._served, self._digest, index, obj)
        file.origin = origin = OwnerFirst(target, worker.id, self._hop, worker.peer, worker.metrics)
        file.where = "fill" if origin.keeps(0) else "past"
        if file.where == "fill":
            file.waits = worker.filler.ensure(lease, blocks, origin, self._label, not owned)

    async def _arrive(self, file: _File) -> None:
        assert file.lease is not None
        try:
            for wait in file.waits:
                wait.result(timeout=0)
        except NoRoom:
            await self._pass(file)
        except CacheEngineError as exc:
            file.error = exc
            self._worker.note(exc, self._served.access.dataset)
        else:
            if not file.lease.ready(range(block_count(file.lease.obj.size))):
                await self._pass(file)  # the cell was removed while its bytes came

    async def _pass(self, file: _File) -> None:
        assert file.lease is not None and file.origin is not None
        self._worker.metrics.went_past()
        file.where = "past"
        obj = file.lease.obj
        try:
            file.past = await asyncio.to_thread(read_past, file.origin, obj, 0, obj.size)
        except CacheEngineError as exc:
            self._worker.note(exc, file.origin.dataset)
            file.error = exc

    def _bodies(self) -> Iterator[tuple[int, int] | bytes | bytearray]:
        for file in self._files:
            if file.error is not None:
                yield str(file.error).encode()
            elif file.past is not None:
                yield file.past
            elif file.lease is not None:
                yield file.lease.fd, file.lease.obj.size


def _row(file: _File) -> wire.BatchRow:
    if file.error is not None:
        return wire.BatchRow(wire.status_of(file.error), 0, len(str(file.error).encode()))
    if file.past is not None:
        return wire.BatchRow(_CODES["past"], crc32c(file.past), len(file.past))
    assert file.lease is not None
    size = file.lease.obj.size
    return wire.BatchRow(_CODES[file.where], file.lease.crcs(range(1))[0] if size else 0, size)

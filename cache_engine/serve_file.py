"""A worker's answer to a file by its path, for people and curl: any length, piece by piece, each piece proved first.

Nobody checks a CRC at the other end, so every block is compared here before it is sent. A file may be larger than
the tier, or than memory: one piece of it is held at a time. What fails before the first byte is an error with a
status; afterwards the connection is cut, since a short body is the only way left to say it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aiohttp import web

from cache_engine.block import RUN, blocks_of
from cache_engine.errors import CacheEngineError, CorruptBlock
from cache_engine.fill import NoRoom, read_past
from cache_engine.lease import Lease
from cache_engine.origins import OwnerFirst, Target
from cache_engine.sending import send_cell
from cache_engine.verify import prove
from cache_engine.worker import Worker


class FileAnswer:
    """The bytes [start, stop) of one file as the body of one response."""

    def __init__(self, worker: Worker, target: Target, origin: OwnerFirst, past: asyncio.Semaphore) -> None:
        self._worker = worker
        self._target = target
        self._origin = origin
        self._past = past

    async def send(self, request: web.Request, response: web.StreamResponse, start: int, stop: int) -> None:
        """Raises CacheEngineError while nothing is sent, ConnectionResetError later."""
        for first, last in _cut(start, stop):
            try:
                await self._piece(request, response, first, last)
            except CacheEngineError as exc:
                if not response.prepared:
                    raise
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError(f"cut off at byte {first}: {exc}") from exc
        await response.write_eof()

    async def _piece(self, request: web.Request, response: web.StreamResponse, start: int, stop: int) -> None:
        worker, target = self._worker, self._target
        near = not self._origin.is_owner(start)
        with worker.tier.lease(target.obj, label=target.label, near=near) as lease:
            try:
                where = await self._proved(lease, blocks_of(start, stop))
            except NoRoom:
                await self._send_past(request, response, start, stop)
                return
            if near:
                worker.complete_later(lease, target, self._origin)
            if not response.prepared:
                await response.prepare(request)
            worker.metrics.sent(where, stop - start)
            await send_cell(request, lease, start, stop)

    async def _proved(self, lease: Lease, blocks: range) -> str:
        """The blocks are held and were compared just now; a damaged one is fetched again, once."""
        where = await self._worker.ensure(lease, blocks, self._origin, self._target.label)
        try:
            await asyncio.to_thread(prove, lease, blocks)
        except CorruptBlock:
            self._worker.metrics.bad_block()
            where = await self._worker.ensure(lease, blocks, self._origin, self._target.label)
            await asyncio.to_thread(prove, lease, blocks)
        return where

    async def _send_past(self, request: web.Request, response: web.StreamResponse, start: int, stop: int) -> None:
        self._worker.metrics.went_past()
        async with self._past:
            body = await asyncio.to_thread(read_past, self._origin, self._target.obj, start, stop)
            if not response.prepared:
                await response.prepare(request)
            self._worker.metrics.sent("past", stop - start)
            await response.write(body)


def _cut(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """[start, stop) at every multiple of a run, so that no piece lies in two spans."""
    while start < stop:
        last = min(stop, (start // RUN + 1) * RUN)
        yield start, last
        start = last
